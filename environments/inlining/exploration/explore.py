"""Exploration: find out how the size of a module changes if single decisions are changed.

Algorithm 3 of the BC-Max paper (Marinov et al., D.2) follows a policy to one call site, plays the
other action there, and goes on with the policy: one compile for one Δbytes. Here one compile plays
the other action at many call sites that share no function, and `credit` separates their Δbytes.
With one call site in each compile, this is the paper's own step.

Exploration names a call site by its caller, its callee and how often that pair has been met. The
site's place in the compile would not do, because it moves when earlier decisions change. LLVM must
name both functions before the decision (see `compilation.CallSite`). So exploration leaves out the
sites that LLVM's default inlines. With an LLVM that cannot send its default, it leaves out all
sites.
"""

from __future__ import annotations

import collections
import dataclasses
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from environments.inlining.collection.episode import CompileEpisode
from environments.inlining.collection.store import Trajectory, TrajectoryStore
from environments.inlining.collection.tasks import ModuleStore, perform
from environments.inlining.compilers.compilation import CallSite
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.compilers.object_size import read_function_bytes
from environments.inlining.corpus.modules import Module
from environments.inlining.exploration.credit import (
    ATTRIBUTION,
    ChangedSite,
    attribute,
    disjoint_rounds,
)
from environments.inlining.features import feature_names
from environments.inlining.heuristics import Policy, one_at_a_time
from environments.inlining.linking.objective import OBJECT, Objective

_MIN_ROUNDS = 2

SiteKey = tuple[str, str, int]
"""(caller, callee, how often this pair has been met, this time included)."""


@dataclasses.dataclass(frozen=True)
class DetailedCompile:
    """A compile under a policy, with all that exploration needs to know about it.

    Attributes:
      trajectory: the T call sites, their decisions and the sizes of the object.
      keys: name of each of the T call sites; None if LLVM does not give it before the decision.
      cost: what the object costs, in bytes.
      function_bytes: the same by name of the function, without what functions share.
    """

    trajectory: Trajectory
    keys: tuple[SiteKey | None, ...]
    cost: float
    function_bytes: Mapping[str, float]


class SiteNames:
    """Names the call sites of one compile, in their order."""

    def __init__(self) -> None:
        self._seen: collections.Counter[tuple[str, str]] = collections.Counter()

    def name(self, site: CallSite) -> SiteKey | None:
        """Return the next site's name; None if LLVM does not name its caller and callee."""
        if site.caller is None or site.callee is None:
            return None
        pair = (site.caller, site.callee)
        self._seen[pair] += 1
        return (*pair, self._seen[pair])


def compile_in_detail(
    compiler: Compiler,
    module: Module,
    policy: Policy,
    flips: Collection[SiteKey] = (),
    objective: Objective = OBJECT,
) -> DetailedCompile:
    """Compile a module under a policy, but play the other action at the call sites `flips`.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    decide = one_at_a_time(policy.begin(module.name, feature_names(compiler.announced)))
    site_names = SiteNames()
    keys: list[SiteKey | None] = []
    with CompileEpisode(compiler, module) as episode:
        while (row := episode.next_row()) is not None:
            assert episode.site is not None
            key = site_names.name(episode.site)
            decision = decide(row, len(keys))
            keys.append(key)
            episode.decide(1 - decision if key in flips else decision)
        trajectory = episode.trajectory()
        worth = objective.of_project(module.project)
        return DetailedCompile(
            trajectory,
            tuple(keys),
            objective.cost(module.project, trajectory.size),
            read_function_bytes(episode.compilation.result().data, worth),
        )


@dataclasses.dataclass(frozen=True)
class ExplorationConfig:
    """How much to explore.

    Attributes:
      num_rounds: largest number of compiles with changed decisions, for each module and policy.
      flips_per_round: largest number of decisions changed in one compile; 1 is exactly Algorithm 3.
      decisions_per_flip: a round is compiled only if it changes at least one decision of this many.
        The first two rounds are compiled in any case.
      max_bitcode_bytes: modules with more bitcode are not learned on, because exploration compiles
        a module many times; 0 for no limit.
      seed: seed of the random order of call sites, used if the policy gives no order.
    """

    num_rounds: int = 12
    flips_per_round: int = 1000
    decisions_per_flip: int = 30
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
        base = self._compile(compiler, module)
        inside = _in_scope(base.trajectory, self.scope_feature)
        step_of = {
            key: step for step, key in enumerate(base.keys) if key is not None and inside[step]
        }
        keys = _in_order(list(step_of), step_of, base, module, self.config, self.certainty_fn)
        met, found = self._try(compiler, module, base, keys)
        saving = frozenset(flip for flip, delta in found.items() if delta < 0)
        if saving:
            met.append(self._compile(compiler, module, saving))
        best = min(met, key=lambda compiled: compiled.cost)
        return Explored(
            base.trajectory,
            np.array([step_of[flip] for flip in found], np.int64),
            np.array(list(found.values()), np.float64),
            best.trajectory,
        )

    def _compile(
        self, compiler: Compiler, module: Module, flips: Collection[SiteKey] = ()
    ) -> DetailedCompile:
        return compile_in_detail(compiler, module, self.policy, flips, self.objective)

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
        config = self.config
        how = (config.num_rounds, config.flips_per_round, config.decisions_per_flip, config.seed)
        counted = self.objective.digest(project)
        what = f"{self.policy.fingerprint} {how} {self.scope_feature}"
        return f"explore {what} {counted} {ATTRIBUTION}"

    def _try(
        self, compiler: Compiler, module: Module, base: DetailedCompile, keys: list[SiteKey]
    ) -> tuple[list[DetailedCompile], dict[SiteKey, float]]:
        """Compile all rounds; return all compiles, and the Δbytes by call site."""
        sites = [ChangedSite(caller, callee) for caller, callee, _ in keys]
        calls = compiler.read_calls(module) if keys else {}
        found: dict[SiteKey, float] = {}
        met = [base]
        for chosen in _rounds(sites, len(base.keys), self.config):
            flips = [keys[k] for k in chosen]
            trial = self._compile(compiler, module, frozenset(flips))
            met.append(trial)
            deltas = _deltas([sites[k] for k in chosen], base, trial, calls)
            played = set(trial.keys)
            found |= {
                flip: delta
                for flip, delta in zip(flips, deltas, strict=True)
                if delta is not None and flip in played
            }
        return met, found


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
    sites: Sequence[ChangedSite],
    base: DetailedCompile,
    trial: DetailedCompile,
    calls: Mapping[str, Sequence[str]],
) -> list[float | None]:
    """Return the Δbytes of each of `sites`, whose decisions `trial` changed."""
    if len(sites) == 1:
        # The whole difference belongs to this site, even constants, jump tables and padding.
        return [trial.cost - base.cost]
    return attribute(sites, base.function_bytes, trial.function_bytes, calls)


def _rounds(
    sites: Sequence[ChangedSite], num_decisions: int, config: ExplorationConfig
) -> list[list[int]]:
    rounds = disjoint_rounds(sites, config.num_rounds, config.flips_per_round)
    if config.flips_per_round == 1:
        return rounds
    return [
        chosen
        for k, chosen in enumerate(rounds)
        if k < _MIN_ROUNDS or len(chosen) * config.decisions_per_flip >= num_decisions
    ]


def _in_order(
    keys: list[SiteKey],
    step_of: Mapping[SiteKey, int],
    base: DetailedCompile,
    module: Module,
    config: ExplorationConfig,
    certainty_fn: CertaintyFn | None,
) -> list[SiteKey]:
    digest = hashlib.sha256(f"{config.seed} {module.name}".encode()).digest()
    rng = np.random.default_rng(int.from_bytes(digest[:8], "little"))
    shuffled = [keys[k] for k in rng.permutation(len(keys))]
    if certainty_fn is None or not keys:
        return shuffled
    certainty = certainty_fn(base.trajectory.features[[step_of[key] for key in shuffled]])
    return [shuffled[k] for k in np.argsort(certainty, kind="stable")]
