"""Inlining for size as a TF-Agents environment."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from environments import contexts
from environments.contexts import ContextSampler
from environments.credit import Credit
from environments.inlining.collection.episode import CompileEpisode
from environments.inlining.compilers.compilation import CallSite, CompiledModule, CompilerError
from environments.inlining.compilers.compiler import Compiler, SharedCompilers
from environments.inlining.compilers.embedded import EmbeddedLlvm
from environments.inlining.compilers.object_size import ObjectSize, read_section_bytes
from environments.inlining.corpus.modules import Module
from environments.inlining.features import Scope, feature_names
from environments.inlining.function_credit import function_credit
from environments.inlining.linking.objective import OBJECT, Objective
from environments.views import Views

Result = TypeVar("Result")
# How often a module is compiled whose compiler dies or hangs.
_MAX_ATTEMPTS = 2


class InliningEnvironment(py_environment.PyEnvironment):
    """One episode compiles one module at -Oz; one step decides one call site.

    Context: a `Module` of a corpus.

    Observation: a dict from the name of a feature to its value, int64 []. The features are those
      that the compiler's channel announces (they differ between versions of LLVM) and those of
      `features.DERIVED_FEATURES`. At the end of an episode there is no call site, so all are 0.

    Action: int64 [], 1 to inline the call site and 0 not to.

    Reward: 0 until the end, then (d - s) / d. Here s is what the object costs in bytes and d what
      the module's object from a plain -Oz costs. By default the cost is the text column of
      `llvm-size`. With the objective "image" of `linking.objective`, a byte of a COMDAT group that
      n objects of the project hold counts 1/n, so that the costs of a project's objects add up to
      the linked image. A reward of 0.1 means an object that costs 10% less than LLVM's; a negative
      reward means one that costs more. If d is 0, the reward is 0.

    End: when the module is compiled. The discount is 1 until then and 0 at the end. A module
      without call sites has an episode of two time steps, FIRST and LAST: its first observation is
      all 0, the action is ignored, and the reward is 0, since s = d.

    The environment is deterministic: its seed and the actions determine everything. If the compiler
    dies or hangs, the environment compiles the module again and repeats the earlier decisions up to
    the same call site. If that fails too, `step` or `reset` raises `CompilerError`, and the next
    call starts the next episode.

    Args:
      sampler: draws the module of each episode.
      compiler: the compiler; the environment closes it. By default the embedded LLVM.
      seed: seed of the sampler's random generator.
      default_sizes: known sizes of plain -Oz objects, by name of the module. The environment
        compiles the other modules to find their sizes.
      objective: what a byte of an object counts.
      scope_feature: name of a feature. Then only call sites where it is 1, and which LLVM by itself
        would not inline, are steps; the others are decided as LLVM does. "" for all call sites.
    """

    def __init__(
        self,
        sampler: ContextSampler[Module],
        compiler: Compiler | None = None,
        seed: int = 0,
        default_sizes: Mapping[str, ObjectSize] | None = None,
        objective: Objective = OBJECT,
        scope_feature: str = "",
    ) -> None:
        super().__init__(handle_auto_reset=True)
        self._sampler = sampler
        self._compilers = SharedCompilers(EmbeddedLlvm() if compiler is None else compiler)
        self._compilers.join()
        self._own_compiler: Compiler | None = None
        self._is_closed = False
        self._default_sizes = default_sizes or {}
        self._plain_sizes: dict[Module, ObjectSize] = {}
        self._objective = objective
        self._generator = np.random.default_rng(seed)
        self._names = feature_names(self._compiler.announced)
        self._scope = Scope.of(scope_feature, self._names)
        self._module: Module | None = None
        self._episode: CompileEpisode | None = None
        self._decisions: list[int] = []
        self._compiled: CompiledModule | None = None
        self._decided: tuple[CallSite, int] | None = None
        self._row = [0] * len(self._names)
        self._site: CallSite | None = None
        self._info: dict[str, Any] = {}
        self._ended: tuple[Module, CompiledModule] | None = None
        self._calls: dict[Module, Mapping[str, Sequence[str]]] = {}

    def observation_spec(self) -> dict[str, array_spec.ArraySpec]:
        """See the class."""
        return {name: array_spec.ArraySpec((), np.int64, name) for name in self._names}

    def action_spec(self) -> array_spec.BoundedArraySpec:
        """See the class."""
        return array_spec.BoundedArraySpec((), np.int64, 0, 1, "inline")

    def get_info(self) -> dict[str, Any]:
        """Return the results of the episode that ended last.

        Returns:
          `context`, the module's name; `size_bytes` and `default_size_bytes`, the text columns;
          `exec_bytes` and `default_exec_bytes`, executable sections only; `cost_bytes` and
          `default_cost_bytes`, what the objective counts; and `decisions`, the number of call
          sites. Empty until an episode has ended.
        """
        return dict(self._info)

    def get_credit(self) -> Credit:
        """Return which functions each action of the episode that ended last may have changed.

        Raises:
          CompilerError: the module cannot be read again.
        """
        assert self._ended is not None, "no episode has ended"
        module, compiled = self._ended
        if module not in self._calls:
            self._calls[module] = self._compiler.read_calls(module)
        steps = np.flatnonzero(self._scope.holds(compiled.features))
        return function_credit(
            tuple(compiled.names[step] for step in steps),
            compiled.decisions[steps].tolist(),
            self._objective.function_bytes(module.project, compiled.data),
            self._calls[module],
        )

    def seed(self, seed: int) -> None:
        """Restart the sampler's random generator; this affects the next episode and later ones."""
        self._generator = np.random.default_rng(seed)

    def reset_at(self, context: Module | str) -> ts.TimeStep:
        """Start an episode at a module.

        Args:
          context: the module, or its name if the sampler knows names (`contexts.Named`).

        Raises:
          UserError: the sampler has no module of that name.
          CompilerError: the module cannot be compiled.
        """
        module = contexts.find(self._sampler, context) if isinstance(context, str) else context
        self._abandon()
        self._current_time_step = self._begin(module)
        return self._current_time_step

    def fork(self) -> InliningEnvironment:
        """Return a copy of the environment in the middle of the same episode; close it, too.

        Both draw the same modules if the sampler has no state of its own. The copy compiles the
        module again, by the same decisions, when it is first asked for a step.
        """
        twin = copy.copy(self)
        twin._generator = contexts.copy_generator(self._generator)
        twin._decisions = list(self._decisions)
        twin._episode = twin._own_compiler = None
        twin._is_closed = False
        self._compilers.join()
        return twin

    def describe(self) -> str:
        """Return in words what the last step decided, and in the end what that saved."""
        if self._module is None:
            return "no episode has begun"
        words = self._module.name
        if self._decided is not None:
            words += f", call site {len(self._decisions)}: {_in_words(*self._decided)}"
        if self._compiled is not None and self._info:
            costs = self._info["cost_bytes"], self._info["default_cost_bytes"]
            words += f"; {costs[0]:g} bytes, LLVM's {costs[1]:g}"
        return words

    def views(self) -> Views:
        """Return what else can be seen of the episode.

        Returns:
          By name: context, the module's name and digest; features, those of the next call site by
          name; site, the names of its caller and callee, None where LLVM does not tell them; calls,
          which functions each function calls, and instructions, how many it has, both before
          optimisation; sections, the bytes of each section that is loaded, {} before the end.
        """
        assert self._module is not None, "no episode has begun"
        module, site = self._module, self._site
        compiled = self._compiled
        return Views(
            {
                "context": lambda: {"name": module.name, "digest": module.sha256},
                "features": lambda: dict(zip(self._names, self._row, strict=True)),
                "site": lambda: (site.caller, site.callee) if site else None,
                "calls": lambda: self._compiler.read_calls(module),
                "instructions": lambda: self._compiler.read_instructions(module),
                "sections": lambda: read_section_bytes(compiled.data) if compiled else {},
            }
        )

    def close(self) -> None:
        """End the compile in progress, if there is one, and the compiler; may be called again."""
        self._abandon()
        if self._own_compiler is not None:
            self._compilers.give_back(self._own_compiler)
            self._own_compiler = None
        if not self._is_closed:
            self._is_closed = True
            self._compilers.leave()

    @property
    def _compiler(self) -> Compiler:
        if self._is_closed:
            self._is_closed = False
            self._compilers.join()
        if self._own_compiler is None:
            self._own_compiler = self._compilers.take()
        return self._own_compiler

    def _reset(self) -> ts.TimeStep:
        self._abandon()
        return self._begin(self._sampler(self._generator))

    def _begin(self, module: Module) -> ts.TimeStep:
        self._module = module
        self._attempt(self._advance)
        return ts.restart(self._observation())

    def _step(self, action: np.ndarray) -> ts.TimeStep:
        decision = int(action)
        if decision not in (0, 1):
            raise ValueError(f"action: expected 0 or 1, found {action}; give one of them")
        if self._site is not None:
            self._decisions.append(decision)
            self._decided = self._site, decision
            self._attempt(self._advance)
        if self._site is not None:
            return ts.transition(self._observation(), reward=0.0)
        reward = self._attempt(self._finish)
        return ts.termination(self._observation(), reward=reward)

    def _attempt(self, act_fn: Callable[[], Result]) -> Result:
        """Call `act_fn`, and again if the compiler fails; in the end, forget the episode."""
        for attempt in range(_MAX_ATTEMPTS):
            try:
                return act_fn()
            except CompilerError:
                # The decisions so far stay: the next attempt repeats them in a new compile.
                self._end_episode()
                if attempt + 1 == _MAX_ATTEMPTS:
                    self._abandon()
                    raise
            except BaseException:
                self._abandon()
                raise
        raise AssertionError("unreachable")

    def _advance(self) -> None:
        """Go on to the call site after the decisions so far, or to the end."""
        assert self._module is not None
        # In a compile that goes on, all decisions but the last have been made.
        row, pending = None, self._decisions[-1:]
        if self._episode is None:
            self._episode = CompileEpisode(self._compiler, self._module)
            row, pending = self._next_step(self._episode), self._decisions
        for decision in pending:
            self._episode.decide(decision)
            row = self._next_step(self._episode)
        self._row, self._site = row or [0] * len(self._names), self._episode.site

    def _next_step(self, episode: CompileEpisode) -> list[int] | None:
        """Go on to the next call site in the scope, deciding the others as LLVM does."""
        while (row := episode.next_row()) is not None:
            default = self._scope.default_outside(row)
            if default is None:
                return row
            episode.decide(default)
        return None

    def _finish(self) -> float:
        """End the episode: keep its compile and return its reward."""
        assert self._module is not None
        if self._compiled is None:
            if self._episode is None:
                self._advance()
            assert self._episode is not None
            self._compiled = self._episode.result()
            self._ended = self._module, self._compiled
            self._end_episode()
        name, project = self._module.name, self._module.project
        size, default = self._compiled.size, self._default_size(self._module)
        costs = [self._objective.cost(project, object_size) for object_size in (size, default)]
        self._info = {
            "context": name,
            "size_bytes": size.text_bytes,
            "default_size_bytes": default.text_bytes,
            "exec_bytes": size.exec_bytes,
            "default_exec_bytes": default.exec_bytes,
            "cost_bytes": float(costs[0]),
            "default_cost_bytes": float(costs[1]),
            "decisions": len(self._compiled.decisions),
        }
        return relative_saving(*costs)

    def _default_size(self, module: Module) -> ObjectSize:
        if module.name in self._default_sizes:
            return self._default_sizes[module.name]
        if module not in self._plain_sizes:
            self._plain_sizes[module] = self._compiler.compile_plain(module).size
        return self._plain_sizes[module]

    def _observation(self) -> dict[str, np.ndarray]:
        values = np.array(self._row, np.int64)
        return {name: np.asarray(value) for name, value in zip(self._names, values, strict=True)}

    def _end_episode(self) -> None:
        if self._episode is not None:
            self._episode.close()
            self._episode = None

    def _abandon(self) -> None:
        """Forget the episode in progress; the next call of `step` or `reset` starts another."""
        self._end_episode()
        self._decisions = []
        self._compiled = None
        self._decided = self._site = None
        self._current_time_step = None


def relative_saving(size_bytes: float, default_size_bytes: float) -> float:
    """Return (default - size) / default, the saved part of the default size; 0 if that is 0."""
    if default_size_bytes == 0:
        return 0.0
    return (default_size_bytes - size_bytes) / default_size_bytes


def _in_words(site: CallSite, decision: int) -> str:
    callee, caller = site.callee, site.caller
    call = f"{callee} in {caller}" if callee and caller else "a call without a name"
    done = "inlined" if decision else "not inlined"
    as_default = "as" if decision == int(site.default) else "unlike"
    return f"{call}: {done}, {as_default} LLVM by itself"
