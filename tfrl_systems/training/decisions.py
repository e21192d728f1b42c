"""What offline imitation needs of a system: play policies on contexts, and explore around them.

The environments stay unknown here. The command line hands training a `DecisionProblem` made from
one of them; everything that travels between the two is one of the small records below.
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
      context: name of what was decided in, for instance a module.
      features: int64 [T, F], what the policy saw at each step.
      actions: int8 [T].
      cost: what the episode cost, smaller is better, in the units of `DecisionProblem.cost_name`.
    """

    context: str
    features: np.ndarray
    actions: np.ndarray
    cost: float


@dataclasses.dataclass(frozen=True)
class Exploration:
    """What exploring around a policy's episode found (BC-Max, Algorithm 3).

    Attributes:
      base: the episode under the policy.
      steps: int64 [N], steps of `base` where the other action was tried.
      deltas: float64 [N], what that added to the cost; negative is better.
      best: the cheapest episode that was met.
    """

    base: Outcome
    steps: np.ndarray
    deltas: np.ndarray
    best: Outcome


class Policy(Protocol):
    """A policy as training hands it to a problem.

    Attributes:
      name: for tables.
      fingerprint: changes with its decisions.
    """

    name: str
    fingerprint: str

    def begin(
        self, module_name: str, names: tuple[str, ...]
    ) -> Callable[[np.ndarray, int], np.ndarray]:
        """A function from (features [N, F], first step) to actions [N], for one episode."""


CertaintyFn = Callable[[np.ndarray], np.ndarray]


class DecisionProblem(Protocol):
    """Contexts to decide in.

    Attributes:
      feature_names: names of the F features.
      baseline_feature: the feature that holds the default's action.
      scope_feature: the feature that is 1 where departures from the default carry over to other
        groups; "" where they do everywhere.
      cost_name: name of the cost, with its unit.
      contexts: names of all contexts to train on.
      groups: for each context, what it belongs to (its project): generalisation is across groups.
    """

    feature_names: tuple[str, ...]
    baseline_feature: str
    scope_feature: str
    cost_name: str
    contexts: tuple[str, ...]
    groups: tuple[str, ...]

    def baseline(self, name: str) -> Policy:
        """The baseline policy called `name`."""

    def play(self, policy: Policy, label: str) -> list[Outcome]:
        """One episode for each context that can be played; `label` is for progress."""

    def play_default(self, label: str) -> list[Outcome]:
        """The default in each context, with the costs that policies are measured against.

        They can differ from those of `play`, where the default's actions are played one by one.
        """

    def explore(
        self, policy: Policy, certainty_fn: CertaintyFn | None, label: str, scoped: bool
    ) -> list[Exploration]:
        """Algorithm 3 for each context that can be played; with `scoped` only in the scope."""


def best_per_context(pool: Sequence[Sequence[Outcome]]) -> dict[str, Outcome]:
    """The cheapest episode of each context, over the episodes of several policies.

    This is the oracle, and line 5 of BC-Max's Algorithm 1 (which prints argmin of the reward beside
    the words "highest reward"; Algorithm 2 and the text say argmax). The first of equals is kept.
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
    """Time step and action spec of a problem: a dict of int64 scalars, and an action 0 or 1."""
    observation = {name: tf.TensorSpec((), tf.int64, name) for name in feature_names}
    action = tensor_spec.BoundedTensorSpec((), tf.int64, 0, 1, "action")
    return ts.time_step_spec(observation), action
