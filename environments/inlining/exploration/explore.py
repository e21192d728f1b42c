"""Exploration: what would have happened, had one decision been another?

Algorithm 3 of the BC-Max paper (Marinov et al., D.2) follows a policy to one call site, plays the
other action there, and goes on with the policy: one compile for one Δbytes. Here one compile plays
the other action at many call sites that share no function, and `credit` tells their Δbytes
apart; with one call site a compile it is the paper's own step.

A call site is named by caller, callee and how often that pair occurred before, because its place in
the compile moves when earlier decisions change. Sites whose functions LLVM does not name before the
decision (see `compilation.CallSite`) are not explored: those that its default inlines, and all of
them on an LLVM whose default cannot be asked for.
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
from environments.inlining.corpus.modules import Module
from environments.inlining.exploration.credit import (
    ATTRIBUTION,
    ChangedSite,
    attribute,
    disjoint_rounds,
)
from environments.inlining.features import feature_names
from environments.inlining.heuristics import Policy, one_at_a_time

_MIN_ROUNDS = 2

SiteKey = tuple[str, str, int]
"""(caller, callee, how often this pair has been met, this time included)."""


@dataclasses.dataclass(frozen=True)
class DetailedCompile:
    """A compile under a policy, with all that exploration needs of it.

    Attributes:
      trajectory: its T call sites and the sizes it came to.
      keys: for each of the T call sites its name, or None where LLVM does not tell it in time.
      function_bytes: bytes by function.
    """

    trajectory: Trajectory
    keys: tuple[SiteKey | None, ...]
    function_bytes: Mapping[str, int]

    @property
    def text_bytes(self) -> int:
        """The text column of the object."""
        return self.trajectory.size.text_bytes


class SiteNames:
    """Names the call sites of one compile as they come."""

    def __init__(self) -> None:
        self._seen: collections.Counter[tuple[str, str]] = collections.Counter()

    def name(self, site: CallSite) -> SiteKey | None:
        """The site's name, if LLVM told its caller and callee."""
        if site.caller is None or site.callee is None:
            return None
        pair = (site.caller, site.callee)
        self._seen[pair] += 1
        return (*pair, self._seen[pair])


def compile_in_detail(
    compiler: Compiler, module: Module, policy: Policy, flips: Collection[SiteKey] = ()
) -> DetailedCompile:
    """Compiles under `policy`, playing the other action at the call sites `flips`.

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
        return DetailedCompile(
            episode.trajectory(), tuple(keys), episode.compilation.function_bytes()
        )


@dataclasses.dataclass(frozen=True)
class ExplorationConfig:
    """How much to explore.

    Attributes:
      num_rounds: compiles with changed decisions at most, for each module and policy.
      flips_per_round: decisions changed in one compile at most; 1 is Algorithm 3 to the letter.
      decisions_per_flip: a round is worth its compile if it changes one decision of so many. The
        first two rounds are played all the same.
      max_bitcode_bytes: larger modules are not learned on, because exploring compiles a module
        many times; 0 for no limit.
      seed: orders call sites where the policy gives no order.
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
      steps: int64 [N], call sites of `base` where the other action was tried.
      deltas: int64 [N], the bytes that this added to the object (negative: saved).
      best: the smallest compile that was met, `base` included.
    """

    base: Trajectory
    steps: np.ndarray
    deltas: np.ndarray
    best: Trajectory


CertaintyFn = Callable[[np.ndarray], np.ndarray]
"""(features int64 [N, F]) -> |p(inline) - p(not)| float64 [N] of the exploration policy."""


@dataclasses.dataclass(frozen=True)
class Explore:
    """Algorithm 3 for one module (`tasks.Task`).

    Call sites are tried from the least certain on (in random order without a `certainty_fn`). At
    the end all decisions that saved bytes are changed together, which is often better than each
    alone; the smallest compile met is the trajectory to imitate.

    Attributes:
      policy: what to explore around.
      config: how much to explore.
      certainty_fn: of the policy, if it has one.
      scope_feature: only call sites where this feature is 1 are tried; all if empty.
    """

    policy: Policy
    config: ExplorationConfig
    certainty_fn: CertaintyFn | None = None
    scope_feature: str = ""

    def recall(self, module_store: ModuleStore) -> Explored | None:
        """See `Task`."""
        record = module_store.get_record(self._request())
        if record is None:
            return None
        base, best = module_store.get(record["base"]), module_store.get(record["best"])
        if base is None or best is None:
            return None
        return Explored(base, record["steps"], record["deltas"], best)

    def run(self, compiler: Compiler, module: Module) -> Explored:
        """See `Task`."""
        base = compile_in_detail(compiler, module, self.policy)
        inside = _in_scope(base.trajectory, self.scope_feature)
        step_of = {
            key: step for step, key in enumerate(base.keys) if key is not None and inside[step]
        }
        keys = _in_order(list(step_of), step_of, base, module, self.config, self.certainty_fn)
        met, found = self._try(compiler, module, base, keys)
        saving = frozenset(flip for flip, delta in found.items() if delta < 0)
        if saving:
            met.append(compile_in_detail(compiler, module, self.policy, saving))
        best = min(met, key=lambda compiled: compiled.text_bytes)
        return Explored(
            base.trajectory,
            np.array([step_of[flip] for flip in found], np.int64),
            np.array(list(found.values()), np.int64),
            best.trajectory,
        )

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
        module_store.put_record(self._request(), arrays)

    def _request(self) -> str:
        config = self.config
        how = (config.num_rounds, config.flips_per_round, config.decisions_per_flip, config.seed)
        return f"explore {self.policy.fingerprint} {how} {self.scope_feature} {ATTRIBUTION}"

    def _try(
        self, compiler: Compiler, module: Module, base: DetailedCompile, keys: list[SiteKey]
    ) -> tuple[list[DetailedCompile], dict[SiteKey, int]]:
        """All compiles that were met, and Δbytes by call site."""
        sites = [ChangedSite(caller, callee) for caller, callee, _ in keys]
        calls = compiler.read_calls(module) if keys else {}
        found: dict[SiteKey, int] = {}
        met = [base]
        for chosen in _rounds(sites, len(base.keys), self.config):
            flips = [keys[k] for k in chosen]
            trial = compile_in_detail(compiler, module, self.policy, frozenset(flips))
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
) -> Explored:
    """`Explore` for one module, or what the store kept of it.

    Raises:
      CompilerError: the compiler failed, died or hung.
    """
    return perform(Explore(policy, config, certainty_fn, scope_feature), compiler, module, store)


def _in_scope(trajectory: Trajectory, scope_feature: str) -> np.ndarray:
    """Which call sites may be tried, bool [T]."""
    if not scope_feature:
        return np.ones(len(trajectory.decisions), bool)
    return trajectory.features[:, trajectory.names.index(scope_feature)] == 1


def _deltas(
    sites: Sequence[ChangedSite],
    base: DetailedCompile,
    trial: DetailedCompile,
    calls: Mapping[str, Sequence[str]],
) -> list[int | None]:
    """Δbytes of each of `sites`, which were changed in `trial`."""
    if len(sites) == 1:
        # All of it is this one's: also constants, jump tables and padding.
        return [trial.text_bytes - base.text_bytes]
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
