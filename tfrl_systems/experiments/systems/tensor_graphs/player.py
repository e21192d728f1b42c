"""A policy that plays on one model and meanwhile learns which rules save cost on that model."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.costs.objectives import Objective
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.rewriting.engine import State
from environments.tensor_graphs.rewriting.matching import Match
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.search import results
from environments.tensor_graphs.search.neighbourhoods import NodeSignatures
from environments.tensor_graphs.search.savings import Savings
from tfrl_systems.experiments.systems.tensor_graphs.policy import GraphPolicy

# κ, the prior: each rule starts as if this many good steps had been seen, and as many expected.
_PRIOR = 4.0


class RuleOdds:
    """The log odds of each rule: how much oftener than expected it led to cheaper graphs here.

    If all rules were alike, a rule's share of the good steps would be its share of all steps. This
    gives the number of good steps expected of the rule. Its log odds are

        log((good + κ) / (expected + κ))

    where the prior κ keeps the odds near 0 until there are many steps. The log odds are added to
    the policy's logits, so they correct what the policy learned in training. Generalised nested
    rollout policy adaptation (T. Cazenave, 2020) adds a term of the same kind, and learns it by
    gradients.

    Args:
      rules: names of the R rules; NO-OP comes after them, and its log odds are always 0.
    """

    def __init__(self, rules: Sequence[str]) -> None:
        self._places = {name: place for place, name in enumerate(rules)}
        self._taken, self._good = np.zeros((2, len(rules) + 1))

    @property
    def logits(self) -> np.ndarray:
        """The log odds of each rule and of NO-OP, float64 [R + 1]."""
        expected = self._taken * (self._good.sum() / max(self._taken.sum(), 1))
        return np.log((self._good + _PRIOR) / (expected + _PRIOR))

    def learn(self, matches: Sequence[results.Match], num_good: int) -> None:
        """Count matches that were applied, the first `num_good` of which were good."""
        for number, match in enumerate(matches):
            place = self._places[match.rule]
            self._taken[place] += 1
            self._good[place] += number < num_good


class PolicyPlayer:
    """A policy that plays on one model (`search.Player`).

    Args:
      policy: the policy.
      name: name of the model.
      graph: graph of the model.
      rules: the rules to play with; they need not be those that the policy was trained with.
      objective: gives the costs.
    """

    def __init__(
        self,
        policy: GraphPolicy,
        name: str,
        graph: Graph,
        rules: Sequence[Rule],
        objective: Objective,
    ) -> None:
        self._policy, self._name = policy, name
        # All episodes share one environment, because its engine remembers what rules make.
        self._environment = policy.make_environment(name, graph, rules, objective)
        self._odds = RuleOdds([rule.name for rule in rules])
        self._savings = Savings()

    def play(
        self, number: int, start: Any, *, by_chance: bool = False
    ) -> Iterator[tuple[Match, State]]:
        """Play an episode; see `GraphPolicy.play`."""
        time_step = self._environment.reset_to(start, self._name)
        odds = self._odds.logits
        here = start
        for match, after in self._policy.play(
            self._environment, number, time_step, by_chance=by_chance, odds=odds
        ):
            self._savings.observe(here, match, after)
            yield match, after
            here = after

    def probe(self, number: int, start: Any) -> Iterator[tuple[Match, State]]:
        """Take single steps in an order drawn from the policy; skip those whose saving is known."""
        observation = self._environment.reset_to(start, self._name).observation
        state = self._environment.state
        assert state is not None
        signatures = NodeSignatures(state.graph)
        for xfer, location in self._policy.draw_all(observation, number, self._odds.logits):
            match = state.matches_by_rule[xfer][location]
            if not self._savings.is_known(signatures, match):
                yield match, self._savings.apply(state, match)

    def descend(self, start: Any) -> Iterator[tuple[Match, State]]:
        """Take the steps that are known to save something; see `Savings.descend`."""
        yield from self._savings.descend(start)

    def learn(self, matches: Sequence[results.Match], num_good: int) -> None:
        """Make rules that led to cheaper graphs likelier on this model, and others less likely."""
        self._odds.learn(matches, num_good)
