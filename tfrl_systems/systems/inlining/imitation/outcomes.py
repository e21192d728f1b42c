"""The interface that offline imitation needs of a system: playing policies, and exploring.

Training does not know the environments. The command line makes a `DecisionProblem` from one of them
and hands it to training. All that the two exchange are the small records below.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts


@dataclasses.dataclass(frozen=True)
class Outcome:
    """One deterministic episode.

    Attributes:
      context: name of the context, for instance of a module.
      features: int64 [T, F], the features that the policy saw at each step.
      actions: int8 [T], the action at each step.
      cost: cost of the episode in the units of `DecisionProblem.cost_name`; smaller is better.
    """

    context: str
    features: np.ndarray
    actions: np.ndarray
    cost: float


@dataclasses.dataclass(frozen=True)
class Exploration:
    """The results of exploring around a policy's episode (BC-Max, Algorithm 3).

    Attributes:
      base: the policy's own episode.
      steps: int64 [N], the steps of `base` at which the other action was tried.
      deltas: float64 [N], what each of these trials added to the cost; negative is better.
      best: the cheapest episode that was met.
    """

    base: Outcome
    steps: np.ndarray
    deltas: np.ndarray
    best: Outcome


class Policy(Protocol):
    """A policy as training hands it to a problem.

    Attributes:
      name: name for tables and messages.
      fingerprint: hash that differs between policies that decide differently.
    """

    name: str
    fingerprint: str

    def begin(
        self, module_name: str, names: tuple[str, ...]
    ) -> Callable[[np.ndarray, int], np.ndarray]:
        """Return a function from (features [N, F], first row's step) to actions [N] of an episode.

        Args:
          module_name: name of the episode's context.
          names: names of the F features.
        """


CertaintyFn = Callable[[np.ndarray], np.ndarray]


class DecisionProblem(Protocol):
    """Contexts in which a policy takes binary decisions, and ways to play episodes in them.

    Attributes:
      feature_names: names of the F features.
      baseline_feature: name of the feature that holds the default's action.
      scope_feature: name of the feature that is 1 where departures from the default carry over to
        other groups; "" if they carry over everywhere.
      cost_name: name of the cost, with its unit.
      contexts: names of all contexts to train on.
      groups: group of each context, such as its project; policies must generalise to other groups.
    """

    feature_names: tuple[str, ...]
    baseline_feature: str
    scope_feature: str
    cost_name: str
    contexts: tuple[str, ...]
    groups: tuple[str, ...]

    def baseline(self, name: str) -> Policy:
        """Return the baseline policy called `name`."""

    def play(self, policy: Policy, label: str) -> list[Outcome]:
        """Play one episode in each context that can be played; progress reports show `label`."""

    def play_default(self, label: str) -> list[Outcome]:
        """Play the default in each context, for the costs that policies are measured against.

        These costs can differ from those of `play`, which plays the default's actions one by one.
        """

    def explore(
        self, policy: Policy, certainty_fn: CertaintyFn | None, label: str, scoped: bool
    ) -> list[Exploration]:
        """Run Algorithm 3 in each context that can be played; if `scoped`, only in the scope."""


def best_per_context(pool: Sequence[Sequence[Outcome]]) -> dict[str, Outcome]:
    """Return the cheapest episode of each context, over the episodes of several policies.

    This is the oracle, and line 5 of BC-Max's Algorithm 1 (which prints argmin of the reward beside
    the words "highest reward"; Algorithm 2 and the text say argmax). Ties go to the first episode.
    """
    best: dict[str, Outcome] = {}
    for outcomes in pool:
        for outcome in outcomes:
            if outcome.context not in best or outcome.cost < best[outcome.context].cost:
                best[outcome.context] = outcome
    return best


def decision_specs(
    feature_names: Sequence[str],
) -> tuple[ts.TimeStep, tensor_spec.BoundedTensorSpec]:
    """Return a problem's specs: time steps with a dict of int64 scalars, and an action 0 or 1."""
    observation = {name: tf.TensorSpec((), tf.int64, name) for name in feature_names}
    action = tensor_spec.BoundedTensorSpec((), tf.int64, 0, 1, "action")
    return ts.time_step_spec(observation), action
