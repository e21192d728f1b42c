"""A policy that is followed on one model, and learns meanwhile what is worth it there."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.engine import State
from environments.tensor_graphs.environment import Model
from environments.tensor_graphs.objectives import Objective
from environments.tensor_graphs.search import Step
from environments.tensor_graphs.search.neighbourhoods import Looks
from environments.tensor_graphs.search.results import match_of, step_of
from environments.tensor_graphs.search.savings import Savings
from environments.tensor_graphs.substitutions import Substitution
from tfrl_systems.cli.tensor_graphs.policy import GraphPolicy

# Of which an environment remembers as many.
_MOST_STARTS = 64
# As if each rule had that many good steps already, where as many were to be expected.
_PRIOR = 4.0


class RuleOdds:
    """How much more often than others each rule leads to cheaper graphs.

    Were all rules alike, a rule would have its part of all good steps: as many of them are
    expected as it has of all steps. Its odds are

        log((good + κ) / (expected + κ))

    where κ, as if so many had been good already, lets a few steps say little. They are added to
    the logits of a policy, so what it has learned before is where they start. Generalised nested
    rollout policy adaptation (T. Cazenave, 2020) has the same sum; there gradients make it.

    Args:
      rules: names; after them comes NO-OP, whose odds are 0.
    """

    def __init__(self, rules: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(rules)}
        self._taken, self._good = np.zeros((2, len(rules) + 1))

    @property
    def logits(self) -> np.ndarray:
        """Of each rule and of NO-OP, float64 [R + 1]."""
        expected = self._taken * (self._good.sum() / max(self._taken.sum(), 1))
        return np.log((self._good + _PRIOR) / (expected + _PRIOR))

    def learn(self, steps: Sequence[Step], num_good: int) -> None:
        """Is told that of these steps the first `num_good` were good."""
        for number, step in enumerate(steps):
            place = self._places[step.xfer]
            self._taken[place] += 1
            self._good[place] += number < num_good


class PolicyPlayer:
    """A policy on one model; see `search.Player`.

    Args:
      policy: any.
      name: of the model.
      rules: those that the policy was trained with, or others.
      objective: gives costs.
    """

    def __init__(
        self,
        policy: GraphPolicy,
        name: str,
        rules: Sequence[Substitution],
        objective: Objective,
    ) -> None:
        self._policy = policy
        self._start: Model
        # One environment for all: its engine remembers what rules make.
        self._environment = policy.environment_of(lambda _: self._start, rules, objective)
        self._odds = RuleOdds([rule.name for rule in rules])
        self._savings = Savings()

        # Not by graph: equal ones may number their nodes differently, and steps name nodes by
        # number.
        @functools.lru_cache(maxsize=_MOST_STARTS)
        def model_of(start: Any) -> Model:
            return Model(name, start.graph, start)

        self._model_of = model_of

    def play(
        self, number: int, start: Any, *, by_chance: bool = False
    ) -> Iterator[tuple[Step, State]]:
        """An episode; see `GraphPolicy.play`."""
        self._start = self._model_of(start)
        odds = self._odds.logits
        here = start
        for step, after in self._policy.play(
            self._environment, number, by_chance=by_chance, odds=odds
        ):
            self._savings.tell(here, match_of(here, step), after)
            yield step, after
            here = after

    def look(self, number: int, start: Any) -> Iterator[tuple[Step, State]]:
        """What the policy draws first comes first; nothing of which the change is known."""
        self._start = self._model_of(start)
        observation = self._environment.reset().observation
        state = self._environment.state
        assert state is not None
        looks = Looks(state.graph)
        for xfer, location in self._policy.draw_all(observation, number, self._odds.logits):
            match = state.matches_by_rule[xfer][location]
            if not self._savings.is_known(looks, match):
                yield step_of(match), self._savings.apply(state, match)

    def descend(self, start: Any) -> Iterator[tuple[Step, State]]:
        """See `Savings.descend`."""
        yield from self._savings.descend(start)

    def learn(self, steps: Sequence[Step], num_good: int) -> None:
        """Steps to cheaper graphs make their rules likelier on this model, others less likely."""
        self._odds.learn(steps, num_good)
