"""Exploration: find out how the size of a module changes if some decisions are changed.

Algorithm 3 of the BC-Max paper (Marinov et al., D.2) follows a policy to one call site, plays the
other action there, and goes on with the policy: one compile for one Δbytes. Here one compile plays
the other action at many call sites that share no function, and `credit` separates their Δbytes.
With one call site in each compile, this is the paper's own step.

The policy makes all of its departures from LLVM at once, so exploration also takes back several of
them together (`plans.joint_changes`), and divides the Δbytes evenly among them. The Δbytes of a
decision is its mean over all variations that it took part in: between what it is worth as the last
of the policy's departures and as the first.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from environments.inlining.collection.store import Trajectory, TrajectoryStore
from environments.inlining.collection.tasks import ModuleStore, perform
from environments.inlining.collection.variation import POLICY_ALONE, Variation
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.corpus.modules import Module
from environments.inlining.exploration.credit import ATTRIBUTION, attribute
from environments.inlining.exploration.detail import DetailedCompile, compile_in_detail
from environments.inlining.exploration.plans import (
    Planned,
    joint_changes,
    plan_rounds,
    single_changes,
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
      refusals: largest number of compiles that try one call site that LLVM itself inlines.
      flips_per_round: largest number of changes in one compile; 1 is exactly Algorithm 3.
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
"""(features int64 [N, F]) -> |p(inline) - p(not)| float64 [N] of the exploration policy."""


@dataclasses.dataclass(frozen=True)
class Explore:
    """Algorithm 3 for one module, as a `tasks.Task`.

    The task tries call sites from the least certain one on, or in random order if there is no
    `certainty_fn`. At the end it changes all decisions that saved bytes together, which is often
    better than each alone. The smallest of all compiles is the trajectory to imitate.

    Attributes:
      policy: the policy to explore around.
      config: how much to explore.
      certainty_fn: the policy's certainty, if it has one.
      objective: what counts as a byte.
      scope_feature: name of a feature; only call sites where it is 1 are tried. All if empty.
    """

    policy: Policy
    config: ExplorationConfig
    certainty_fn: CertaintyFn | None = None
    scope_feature: str = ""
    objective: Objective = OBJECT

    def recall(self, module_store: ModuleStore) -> Explored | None:
        """See `Task`."""
        record = module_store.get_record(self._request(module_store.project))
        if record is None:
            return None
        base, best = module_store.get(record["base"]), module_store.get(record["best"])
        if base is None or best is None:
            return None
        return Explored(base, record["steps"], record["deltas"], best)

    def run(self, compiler: Compiler, module: Module) -> Explored:
        """See `Task`."""
        base = self._compile(compiler, module, POLICY_ALONE)
        met = [base]
        deltas_of_step: dict[int, list[float]] = collections.defaultdict(list)
        rounds = self._plan(base, module)
        # A compile with a single change needs no calls: the whole difference belongs to it.
        calls = compiler.read_calls(module) if any(len(chosen) > 1 for chosen in rounds) else {}
        for chosen in rounds:
            variation = self._compile(compiler, module, together(chosen))
            met.append(variation)
            for planned, delta in zip(chosen, _deltas(chosen, base, variation, calls), strict=True):
                if delta is not None:
                    for step in planned.steps:
                        deltas_of_step[step].append(delta / len(planned.steps))
        steps = sorted(deltas_of_step)
        deltas = [float(np.mean(deltas_of_step[step])) for step in steps]
        saving = [base.keys[step] for step, delta in zip(steps, deltas, strict=True) if delta < 0]
        flips = frozenset(key for key in saving if key is not None)
        if flips:
            met.append(self._compile(compiler, module, Variation(flips)))
        best = min(met, key=lambda compiled: compiled.cost)
        return Explored(
            base.trajectory,
            np.array(steps, np.int64),
            np.array(deltas, np.float64),
            best.trajectory,
        )

    def _compile(self, compiler: Compiler, module: Module, variation: Variation) -> DetailedCompile:
        return compile_in_detail(compiler, module, self.policy, variation, self.objective)

    def _plan(self, base: DetailedCompile, module: Module) -> list[list[Planned]]:
        """Return the changes of each compile to make."""
        config = self.config
        steps = np.flatnonzero(_in_scope(base.trajectory, self.scope_feature))
        ordered = _in_order(steps, base, module, config, self.certainty_fn)
        named = [step for step in ordered if base.keys[step] is not None]
        unnamed = [step for step in ordered if base.keys[step] is None]

        def divide(planned: Sequence[Planned], num_rounds: int) -> list[list[Planned]]:
            return plan_rounds(
                planned,
                num_rounds,
                config.flips_per_round,
                config.decisions_per_flip,
                len(base.keys),
            )

        rounds = divide(joint_changes(base), config.joint_rounds)
        rounds += divide(single_changes(base, named), config.num_rounds)
        rounds += [[planned] for planned in single_changes(base, unnamed[: config.refusals])]
        if config.budget_bytes:
            rounds = rounds[: config.budget_bytes // max(module.path.stat().st_size, 1)]
        return rounds

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
        module_store.put_record(self._request(module_store.project), arrays)

    def _request(self, project: str) -> str:
        how = dataclasses.astuple(dataclasses.replace(self.config, max_bitcode_bytes=0))
        counted = self.objective.digest(project)
        what = f"{self.policy.fingerprint} {how} {self.scope_feature}"
        return f"explore {what} {counted} {ATTRIBUTION}"


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


def _in_scope(trajectory: Trajectory, scope_feature: str) -> np.ndarray:
    """Return which call sites may be tried, bool [T]."""
    if not scope_feature:
        return np.ones(len(trajectory.decisions), bool)
    return trajectory.features[:, trajectory.names.index(scope_feature)] == 1


def _deltas(
    chosen: Sequence[Planned],
    base: DetailedCompile,
    variation: DetailedCompile,
    calls: Mapping[str, Sequence[str]],
) -> list[float | None]:
    """Return the Δbytes of each change that `variation` made; None where they are unknown."""
    if len(chosen) == 1:
        # The whole difference belongs to this change, even constants, jump tables and padding.
        return [variation.cost - base.cost]
    changes = [planned.change for planned in chosen]
    deltas = attribute(changes, base.function_bytes, variation.function_bytes, calls)
    played = set(variation.keys)
    return [
        delta if planned.variation.flips <= played else None
        for planned, delta in zip(chosen, deltas, strict=True)
    ]


def _in_order(
    steps: np.ndarray,
    base: DetailedCompile,
    module: Module,
    config: ExplorationConfig,
    certainty_fn: CertaintyFn | None,
) -> list[int]:
    """Return the steps in the order to try them: the least certain first, else at random."""
    digest = hashlib.sha256(f"{config.seed} {module.name}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    shuffled = rng.permutation(steps)
    if certainty_fn is not None and len(steps):
        certainty = certainty_fn(base.trajectory.features[shuffled])
        shuffled = shuffled[np.argsort(certainty, kind="stable")]
    return shuffled.tolist()
