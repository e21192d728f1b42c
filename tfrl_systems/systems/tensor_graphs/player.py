"""A policy that plays on one model, and remembers what steps save there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from environments.tensor_graphs.rewriting.engine import State
from environments.tensor_graphs.rewriting.matching import Match
from environments.tensor_graphs.search.neighbourhoods import NodeSignatures
from environments.tensor_graphs.search.savings import Savings
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy


class PolicyPlayer:
    """A policy that plays on one model (`search.rollouts.Player`).

    Args:
      policy: the policy.
      name: name of the model.
      start: the model, with rules that the policy may have learned with.
    """

    def __init__(self, policy: GraphPolicy, name: str, start: State) -> None:
        self._policy, self._name = policy, name
        # All episodes share one engine, because it remembers what rules make.
        self._episodes = policy.make_episodes(start)
        self._savings = Savings()

    def play(self, number: int, start: Any) -> Iterator[tuple[Match, State]]:
        """Play an episode; see `GraphPolicy.play`."""
        episode, here = self._episodes.begin(start, self._name), start
        for match, after in self._policy.play(episode, number):
            self._savings.observe(here, match, after)
            yield match, after
            here = after

    def probe(self, number: int, start: Any) -> Iterator[tuple[Match, State]]:
        """Take single steps in an order drawn from the policy; skip those whose saving is known."""
        episode = self._episodes.begin(start, self._name)
        state = episode.state
        signatures = NodeSignatures(state.graph)
        for xfer, location in self._policy.draw_all(episode.observation, number):
            match = state.matches_by_rule[xfer][location]
            if not self._savings.is_known(signatures, match):
                yield match, self._savings.apply(state, match)

    def descend(self, start: Any) -> Iterator[tuple[Match, State]]:
        """Take the steps that are known to save something; see `Savings.descend`."""
        yield from self._savings.descend(start)
