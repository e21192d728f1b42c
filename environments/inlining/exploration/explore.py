"""Exploration: find out how the size of a module changes if some decisions are changed.

This is not Algorithm 3 of the BC-Max paper (Marinov et al., D.2), which `successive.py` has. There
a change is kept, and the next is tried at a later call site of the trajectory that results. Here
every change starts from the policy's own trajectory, so that its Δbytes is a label for one
decision. And one compile plays the other action at many call sites that share no function, whose
Δbytes `attribute` separates. Both begin where the exploration policy is least certain.

The policy makes all of its departures from LLVM at once, so exploration also takes back several of
them together (`joint_changes`), and divides the Δbytes evenly among them. The Δbytes of a
decision is its mean over all variations that it took part in: between what it is worth as the last
of the policy's departures and as the first. Where all calls of its callee were changed together, it
is its share of that: a policy mostly decides alike at all of them, and a function goes away only
with its last call.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from environments.inlining.collection.episode import compile_under
from environments.inlining.collection.store import ModuleStore, Trajectory, TrajectoryStore
from environments.inlining.collection.tasks import Task, perform
from environments.inlining.collection.variation import SiteKey, Variation, site_keys
from environments.inlining.compilers.compilation import CompiledModule
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.corpus.modules import Module
from environments.inlining.exploration.changes import (
    ATTRIBUTION,
    Change,
    attribute,
    callee_changes,
    joint_changes,
    plan_rounds,
    single_change,
    together,
)
from environments.inlining.heuristics import Policy
from environments.inlining.linking.objective import OBJECT, Objective


@dataclasses.dataclass(frozen=True)
class ExplorationConfig:
    """How much to explore.

    Attributes:
      num_rounds: largest number of compiles that try decisions alone, for each module and policy.
      joint_rounds: largest number of compiles that take several departures back together.
      callee_rounds: largest number of compiles that inline all calls of a function together.
      refusals: largest number of compiles that try one call site that LLVM itself inlines.
      flips_per_round: largest number of changes in one compile; with 1, none needs `attribute`.
      decisions_per_flip: a round is compiled only if it changes at least one decision of this many.
        The first two rounds of each kind are compiled in any case.
      budget_bytes: how much bitcode all variations of a module and policy may compile, so that
        large modules are tried less often; 0 for no limit.
      max_bitcode_bytes: modules with more bitcode are not learned on, because exploration compiles
        a module many times; 0 for no limit.
      seed: seed of the random order of call sites, used if the policy gives no order.
    """

    num_rounds: int = 12
    joint_rounds: int = 4
    callee_rounds: int = 4
    refusals: int = 4
    flips_per_round: int = dataclasses.field(default=1000, metadata={"minimum": 1})
    decisions_per_flip: int = dataclasses.field(default=30, metadata={"minimum": 1})
    budget_bytes: int = 0
    max_bitcode_bytes: int = 600_000
    seed: int = 0


@dataclasses.dataclass(frozen=True)
class Explored:
    """What exploration found around a policy's compile of one module.

    Attributes:
      base: the compile under the policy.
      steps: int64 [N], numbers of the call sites of `base` where the other action was tried.
      deltas: float64 [N], bytes that the other action added to the cost (negative: saved).
      best: the cheapest of all compiles, `base` included.
    """

    base: Trajectory
    steps: np.ndarray
    deltas: np.ndarray
    best: Trajectory


CertaintyFn = Callable[[np.ndarray], np.ndarray]
"""(features int64 [N, F]) -> |p(inline) - p(not)| float64 [N] of the exploration policy, π̂."""


@dataclasses.dataclass(frozen=True)
class Explore(Task[Explored]):
    """Exploration of one module, as a `tasks.Task`.

    The task tries call sites from the least certain one on, or in random order if there is no
    `certainty_fn`. At the end it changes all decisions that saved bytes together, which is often
    better than each alone. The smallest of all compiles is the trajectory to imitate.

    Attributes:
      policy: the policy to explore around.
      config: how much to explore.
      certainty_fn: certainty of the exploration policy, if there is one.
      scope_feature: name of a feature; only call sites where it is 1 are tried. All if empty.
      objective: what counts as a byte.
      explorer: fingerprint of the exploration policy, if that is not `policy` itself.
    """

    policy: Policy
    config: ExplorationConfig
    certainty_fn: CertaintyFn | None = None
    scope_feature: str = ""
    objective: Objective = OBJECT
    explorer: str = ""

    def recall(self, module_store: ModuleStore) -> Explored | None:
        """See `Task`."""
        record = module_store.get_record(self._request(module_store))
        if record is None:
            return None
        base, best = module_store.get(record["base"]), module_store.get(record["best"])
        if base is None or best is None:
            return None
        return Explored(base, record["steps"], record["deltas"], best)

    def run(self, compiler: Compiler, module: Module) -> Explored:
        """See `Task`."""
        base = best = compile_under(self.policy, compiler, module)
        trajectory, keys = Trajectory.of(module, compiler, base), site_keys(base.names)
        rounds = self._plan(trajectory, keys, module)
        # A compile with a single change needs no calls: the whole difference belongs to it.
        calls = compiler.read_calls(module) if any(len(chosen) > 1 for chosen in rounds) else {}
        compare_fn = self._comparison(base, module.project, calls)
        deltas_of_step: dict[int, list[float]] = collections.defaultdict(list)
        delta_with_all: dict[int, float] = {}

        def cost(compiled: CompiledModule) -> float:
            return self.objective.cost(module.project, compiled.size)

        for chosen in rounds:
            varied = compile_under(self.policy, compiler, module, together(chosen))
            best = min(best, varied, key=cost)
            for change, delta in zip(chosen, compare_fn(chosen, varied), strict=True):
                if delta is None:
                    continue
                share = delta / len(change.steps)
                for step in change.steps:
                    if change.variation.callees:
                        delta_with_all[step] = share
                    else:
                        deltas_of_step[step].append(share)
        delta_of_step = {step: float(np.mean(deltas)) for step, deltas in deltas_of_step.items()}
        delta_of_step |= delta_with_all
        steps = sorted(delta_of_step)
        deltas = [delta_of_step[step] for step in steps]
        saving = [keys[step] for step, delta in zip(steps, deltas, strict=True) if delta < 0]
        flips = frozenset(key for key in saving if key is not None)
        if flips:
            varied = compile_under(self.policy, compiler, module, Variation(flips))
            best = min(best, varied, key=cost)
        return Explored(
            trajectory,
            np.array(steps, np.int64),
            np.array(deltas, np.float64),
            Trajectory.of(module, compiler, best),
        )

    def _comparison(
        self, base: CompiledModule, project: str, calls: Mapping[str, Sequence[str]]
    ) -> Callable[[Sequence[Change], CompiledModule], list[float | None]]:
        """Return a function of changes and a compile that made them, which returns their Δbytes."""
        base_cost = self.objective.cost(project, base.size)
        base_bytes = self.objective.function_bytes(project, base.data)

        def compare(chosen: Sequence[Change], varied: CompiledModule) -> list[float | None]:
            if len(chosen) == 1:
                # The whole difference belongs to this change: also constants, jump tables, padding.
                return [self.objective.cost(project, varied.size) - base_cost]
            varied_bytes = self.objective.function_bytes(project, varied.data)
            deltas = attribute(chosen, base_bytes, varied_bytes, calls)
            # A site that an earlier change removed was never asked about, so nothing changed there.
            played = {key for key in site_keys(varied.names) if key is not None}
            called = {callee for _, callee, _ in played}
            return [
                delta
                if change.variation.flips <= played
                and {callee for callee, _ in change.variation.callees} <= called
                else None
                for change, delta in zip(chosen, deltas, strict=True)
            ]

        return compare

    def _plan(
        self, base: Trajectory, keys: Sequence[SiteKey | None], module: Module
    ) -> list[list[Change]]:
        """Return the changes of each compile to make."""
        config = self.config
        ordered = [single_change(step, keys[step]) for step in self._in_order(base)]
        named = [change for change in ordered if not change.variation.steps]
        unnamed = [change for change in ordered if change.variation.steps]

        def divide(changes: Sequence[Change], num_rounds: int) -> list[list[Change]]:
            return plan_rounds(
                changes, num_rounds, config.flips_per_round, config.decisions_per_flip, len(keys)
            )

        rounds = divide(joint_changes(base, keys), config.joint_rounds)
        tried = {change.steps[0] for change in ordered}
        in_scope = [key if step in tried else None for step, key in enumerate(keys)]
        rounds += divide(list(callee_changes(base, in_scope)), config.callee_rounds)
        rounds += divide(named, config.num_rounds)
        rounds += [[change] for change in unnamed[: config.refusals]]
        if config.budget_bytes:
            rounds = rounds[: config.budget_bytes // max(module.path.stat().st_size, 1)]
        return rounds

    def _in_order(self, base: Trajectory) -> list[int]:
        """Return the steps that may be tried: the least certain first, else in random order."""
        is_tried = np.ones(len(base.decisions), bool)
        if self.scope_feature:
            is_tried = base.column(self.scope_feature) == 1
        digest = hashlib.sha256(f"{self.config.seed} {base.module}".encode()).digest()
        generator = np.random.default_rng(int.from_bytes(digest[:8], "little"))
        steps = generator.permutation(np.flatnonzero(is_tried))
        if self.certainty_fn is not None and len(steps):
            certainty = self.certainty_fn(base.features[steps])
            steps = steps[np.argsort(certainty, kind="stable")]
        return steps.tolist()

    def keep(self, module_store: ModuleStore, result: Explored) -> None:
        """See `Task`."""
        for trajectory in (result.base, result.best):
            module_store.put(trajectory)
        arrays = {
            "base": result.base.decisions,
            "best": result.best.decisions,
            "steps": result.steps,
            "deltas": result.deltas,
        }
        module_store.put_record(self._request(module_store), arrays)

    def _request(self, module_store: ModuleStore) -> str:
        how = dataclasses.astuple(dataclasses.replace(self.config, max_bitcode_bytes=0))
        counted = self.objective.digest(module_store.project)
        what = f"{self.policy.fingerprint} {how} {self.scope_feature}"
        return f"explore {what} {counted} {ATTRIBUTION}{self.explorer and f' {self.explorer}'}"


def explore(
    compiler: Compiler,
    module: Module,
    policy: Policy,
    store: TrajectoryStore,
    config: ExplorationConfig,
    certainty_fn: CertaintyFn | None = None,
    scope_feature: str = "",
    objective: Objective = OBJECT,
) -> Explored:
    """Explore one module, or take the result from the store; arguments are as in `Explore`.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    task = Explore(policy, config, certainty_fn, scope_feature, objective)
    return perform(task, compiler, module, store)
