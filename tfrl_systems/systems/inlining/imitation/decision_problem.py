"""Inlining as a problem for offline imitation: modules are contexts, projects are groups."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from environments.errors import Failure
from environments.inlining.collection.collector import Collector
from environments.inlining.collection.store import Trajectory
from environments.inlining.corpus.modules import Module, largest_first
from environments.inlining.exploration.explore import ExplorationConfig, Explore
from environments.inlining.exploration.successive import ExploreSuccessively
from environments.inlining.features import feature_names
from environments.inlining.heuristics import Policy
from environments.inlining.linking.images import ImageSize
from environments.inlining.linking.objective import Objective
from tfrl_systems.systems.inlining.linking import link_projects
from tfrl_systems.systems.inlining.policies import load_policy
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy
from tfrl_systems.systems.inlining.problem import SCOPES

Result = TypeVar("Result")
Progress = Callable[[str, int], Callable[[int], None]]
"""(label, number of modules) -> a function that is called with 1 after each."""


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One deterministic episode.

    Attributes:
      context: name of the context, a module.
      features: int64 [T, F], the features that the policy saw at each step.
      actions: int8 [T], the action at each step.
      cost: cost of the episode, smaller is better.
    """

    context: str
    features: np.ndarray
    actions: np.ndarray
    cost: float


class Exploration(NamedTuple):
    """The results of exploring around a policy's episode.

    Attributes:
      base: the policy's own episode.
      steps: int64 [N], the steps of `base` at which the other action was tried by itself.
      deltas: float64 [N], what each of these trials added to the cost; negative is better.
      best: the cheapest episode that was met.
    """

    base: Outcome
    steps: np.ndarray
    deltas: np.ndarray
    best: Outcome


class InliningProblem:
    """Modules of a corpus to decide in; the cost is what their objects are worth, in bytes.

    Args:
      collector: compiles the modules.
      modules: the modules to compile. Once a module fails to compile, it is left out.
      exploration: how much to explore.
      make_objective: makes what counts the bytes of an object; called when a cost is first needed.
      progress: shows how many modules of a round are done.
      seed: seed of the random baseline.
      scope_feature: the feature that is 1 where a policy may depart from LLVM's own decisions; ""
        if it may do so everywhere.

    Attributes:
      feature_names: names of the F features.
      baseline_feature: name of the feature that holds LLVM's own decision.
      scope_feature: the same.
      group_of: the project of each module, by its name; policies must generalise to other ones.
      failures: why a module could not be compiled, by name of the module.
    """

    baseline_feature = "inlining_default"

    def __init__(
        self,
        collector: Collector,
        modules: Sequence[Module],
        exploration: ExplorationConfig,
        make_objective: Callable[[], Objective],
        progress: Progress,
        seed: int = 0,
        scope_feature: str = SCOPES["linkonce"],
    ) -> None:
        self.scope_feature = scope_feature
        self._collector = collector
        self._modules = largest_first(modules)
        self._exploration = exploration
        self._make_objective = make_objective
        self._progress = progress
        self._seed = seed
        self.failures: dict[str, str] = {}
        self._not_linked: set[str] = set()
        self._told: set[str] = set()
        self.group_of = {module.name: module.project for module in self._modules}
        self.feature_names = feature_names(collector.compiler.announced)

    @property
    def table_weight(self) -> float:
        """What a byte of an image counts that is not code."""
        return self._objective.table_weight

    @functools.cached_property
    def _objective(self) -> Objective:
        return self._make_objective()

    def baseline(self, name: str) -> Policy:
        """Return the policy called `name`: a heuristic, or one that a directory holds.

        Raises:
          UserError: there is no such policy, or it needs features that the compiler lacks.
        """
        policy = load_policy(name, self._seed)
        policy.begin("", self.feature_names)
        return policy

    def play(self, policy: Policy, label: str) -> list[Outcome]:
        """Compile each module once under a policy."""
        modules = self._playable()
        played = self._collector.play(modules, policy, self._progress(label, len(modules)))
        return [self._outcome(trajectory) for trajectory in self._succeeded(played)]

    def play_default(self, label: str) -> list[Outcome]:
        """Return LLVM's own decisions in each module, with the object sizes of plain compiles.

        Policies are measured against these costs. They can differ from those of `play`, which plays
        LLVM's decisions one by one.
        """
        modules = self._playable()
        played = self._collector.play_default(modules, self._progress(label, len(modules)))
        return [self._outcome(trajectory) for trajectory in self._succeeded(played)]

    def link(self, policy: Policy, label: str) -> dict[str, ImageSize]:
        """Link the objects of each project under a policy.

        Returns:
          The sizes of the images by project, of those that can be linked; `tell_failures` names
          the others. Modules that failed are in none of them.

        Raises:
          UserError: a module no longer compiles.
        """
        modules = self._playable()
        progress = self._progress(label, len(modules))
        return link_projects(self._collector, modules, policy, progress, self._not_linked.add)

    def explore(
        self,
        policy: Policy,
        explorer: CallSitePolicy | None,
        label: str,
        scoped: bool,
        max_flips: Mapping[str, int] | None = None,
    ) -> list[Exploration]:
        """Explore around a policy in each module.

        Args:
          policy: the policy, π of Algorithm 3.
          explorer: the policy whose least certain decisions are tried first, π̂; None if there is
            none yet.
          label: what progress reports show.
          scoped: whether only decisions in the scope are tried.
          max_flips: T of Algorithm 3, by module, to explore as printed; None to explore as
            `exploration.explore` does.
        """
        modules = self._playable()
        certainty_fn, digest = None, ""
        if explorer is not None:
            # It refers to the policy alone, because it may be sent to other processes.
            certainty_fn = functools.partial(explorer.certainty, self.feature_names)
            digest = explorer.fingerprint if explorer.fingerprint != policy.fingerprint else ""
        scope = self.scope_feature if scoped else ""
        how = (policy, self._exploration, certainty_fn, scope, self._objective, digest)
        task = Explore(*how) if max_flips is None else ExploreSuccessively(*how, max_flips)
        explored = self._collector.map(task, modules, self._progress(label, len(modules)))
        return [
            Exploration(
                self._outcome(exploration.base),
                exploration.steps,
                exploration.deltas,
                self._outcome(exploration.best),
            )
            for exploration in self._succeeded(explored)
        ]

    def tell_failures(self, say_fn: Callable[[str], None]) -> None:
        """Say what was left out since the last call, and why: modules, and projects not linked."""
        left_out = [f"left out: {message}" for message in self.failures.values()]
        for message in (*left_out, *sorted(self._not_linked)):
            if message not in self._told:
                say_fn(message)
        self._told.update(left_out, self._not_linked)

    def _outcome(self, trajectory: Trajectory) -> Outcome:
        project = self.group_of[trajectory.module]
        return Outcome(
            trajectory.module,
            trajectory.features,
            trajectory.decisions,
            self._objective.cost(project, trajectory.size),
        )

    def _playable(self) -> list[Module]:
        return [module for module in self._modules if module.name not in self.failures]

    def _succeeded(self, results: Sequence[Result | Failure]) -> Iterator[Result]:
        for result in results:
            if isinstance(result, Failure):
                self.failures[result.name] = result.message
            else:
                yield result
