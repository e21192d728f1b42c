"""Looks for the decisions that leave the least code, by exploring a module again and again."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from environments.inlining.collection.episode import compile_under
from environments.inlining.collection.store import Trajectory
from environments.inlining.collection.variation import POLICY_ALONE, SiteKey, site_keys
from environments.inlining.compilers.compilation import CompiledModule
from environments.inlining.compilers.object_size import read_object_size
from environments.inlining.corpus.modules import Module
from environments.inlining.exploration.explore import ExplorationConfig, Explore
from environments.inlining.features import feature_names
from environments.inlining.heuristics import Policy, make_heuristic
from environments.inlining.linking.objective import Objective
from environments.inlining.plugin.compiler import PluginClang
from environments.inlining.plugin.toolchain import Toolchain

# LLVM names both functions of a call where it does not inline it itself. With this threshold that
# is everywhere, so any decision can be changed by its name; the rule is LLVM's own at -Oz.
_UNWILLING = ("-mllvm", "-inline-threshold=-1000000")
_OZ_THRESHOLD = 5
_RULE = make_heuristic(f"cost<{_OZ_THRESHOLD}")
_CONFIG = ExplorationConfig(num_rounds=6, joint_rounds=1, callee_rounds=3)
_NUM_SINGLE = 6  # decisions that a round adds one at a time, at most
_CODE = Objective(table_weight=0.0)
Flips = frozenset[SiteKey]


class Explorer(PluginClang):
    """A clang that compiles around decisions that were found before.

    Attributes:
      base: where these differ from LLVM's.
      options: options of clang, for each compile.
      num_compiles: how often it compiled.
    """

    def __init__(self, toolchain: Toolchain) -> None:
        super().__init__(toolchain)
        self.base: Flips = frozenset()
        self.options: tuple[str, ...] = _UNWILLING
        self.num_compiles = 0

    def compile_inside(
        self,
        policy: Policy,
        module: Module,
        names: tuple[str, ...],
        variation: Mapping[str, Any] | None = None,
    ) -> CompiledModule:
        """See `PluginClang`; a variation is one of the decisions found before."""
        varied = {**POLICY_ALONE.to_json(), **(variation or {})}
        callees, callers = {callee for callee, _ in varied["callees"]}, set(varied["restored"])
        inherited = {key for key in self.base if key[1] not in callees and key[0] not in callers}
        varied["flips"] = sorted(inherited ^ set(map(tuple, varied["flips"])))
        compiled = super().compile_inside(policy, module, names, varied)
        if compiled is None:  # It has no call sites.
            compiled = self.compile_plain(module)
            compiled = dataclasses.replace(compiled, features=np.empty((0, len(names)), np.int64))
        return compiled

    def compile_plain(
        self,
        module: Module,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> CompiledModule:
        """See `SystemClang`."""
        self.num_compiles += 1
        return super().compile_plain(module, [*options, *self.options], environment)

    def trajectory(self, policy: Policy, module: Module) -> Trajectory:
        """Return the compile under a policy as clang has it, without names."""
        self.base, self.options = frozenset(), ()
        compiled = compile_under(policy, self, module)
        self.options = _UNWILLING
        return Trajectory.of(module.name, feature_names(self.announced), compiled)

    def departures(self, trajectory: Trajectory, module: Module) -> Flips:
        """Return the call sites of a compile that are not decided by the rule."""
        differs = trajectory.decisions != (trajectory.column("cost_estimate") < _OZ_THRESHOLD)
        steps = np.flatnonzero(differs).tolist()
        base, self.base = self.base, frozenset()
        compiled = self.compile_inside(_RULE, module, trajectory.names, {"steps": steps})
        self.base = base
        keys = site_keys(compiled.names)
        return frozenset(key for step in steps if (key := keys[step]) is not None)

    def compile_around(self, flips: Flips, module: Module) -> CompiledModule:
        """Return the compile whose decisions differ from LLVM's at some call sites."""
        base, self.base = self.base, flips
        compiled = compile_under(_RULE, self, module)
        self.base = base
        return compiled


class LinkingExplorer(Explorer):
    """Decides in the linker: a compile is a link.

    Its size is that of the image, and its object what LLVM makes of all modules.

    Args:
      toolchain: the clang, and what plugins for it are built with.
      link_fn: links with some options and environment variables; returns the object and the image.
    """

    def __init__(self, toolchain: Toolchain, link_fn: Callable[..., tuple[bytes, bytes]]) -> None:
        super().__init__(toolchain)
        self._link_fn = link_fn

    def compile_plain(
        self,
        module: Module,
        options: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> CompiledModule:
        """See `Explorer`."""
        self.num_compiles += 1
        words = [word.replace("-fpass-plugin=", "--load-pass-plugin=") for word in options]
        words = [f"-Wl,{word}" for word in (*words, *self.options)]
        data, image = self._link_fn(*words, **(environment or {}))
        return CompiledModule(read_object_size(image), data, np.empty(0, np.int8))


def climb(explorer: Explorer, module: Module, policy: Policy, rounds: int) -> CompiledModule:
    """Return the compile with the least code that exploration finds.

    It begins with LLVM's decisions or the policy's, whichever leave less code. Each round explores
    around the best decisions so far, and then adds those that seemed to save most, one at a time.
    """
    steered = explorer.trajectory(policy, module)
    flips = explorer.departures(steered, module)
    explorer.base = frozenset()
    best = compile_under(_RULE, explorer, module)
    if steered.size.exec_bytes < best.size.exec_bytes:
        best = explorer.compile_around(flips, module)
    else:
        flips = frozenset()
    for seed in range(rounds):
        if not len(best.decisions):
            break
        explorer.base = flips
        config = dataclasses.replace(_CONFIG, seed=seed)
        explored = Explore(_RULE, config, objective=_CODE).run(explorer, module)
        keys = site_keys(best.names)
        if explored.best.size.exec_bytes < best.size.exec_bytes:
            flips = explorer.departures(explored.best, module)
            best = explorer.compile_around(flips, module)
        order = np.argsort(explored.deltas, kind="stable")[:_NUM_SINGLE]
        for place in order[explored.deltas[order] < 0].tolist():
            key = keys[explored.steps[place]]
            if key is None or (key in flips) != (key in explorer.base):
                continue  # changed already
            varied = explorer.compile_around(flips ^ {key}, module)
            if varied.size.exec_bytes < best.size.exec_bytes:
                best, flips = varied, flips ^ {key}
    return explorer.compile_around(flips, module)
