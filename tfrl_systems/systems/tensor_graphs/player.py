"""A policy that plays on one model, for a search or without one.

The policy that comes with the installation has learned from measured costs what pays, and sees
none. So it knows before anything is measured here what a formula does not.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from environments.tensor_graphs.rewriting.engine import State
from environments.tensor_graphs.rewriting.matching import Match
from environments.tensor_graphs.search import EXHAUSTED, OUT_OF_TIME, Result, Visited
from environments.tensor_graphs.search.neighbourhoods import NodeSignatures
from environments.tensor_graphs.search.savings import Savings
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy

# A policy that comes back so often to what it has seen has no plan for this model.
_MOST_RETURNS = 24


class PolicyPlayer:
    """A policy that plays on one model (`search.rollouts.Player`).

    The rules of `start`, the model, are those that the policy may have learned with.
    """

    def __init__(self, policy: GraphPolicy, name: str, start: State) -> None:
        self._policy, self._name, self.start = policy, name, start
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


def walk(player: PolicyPlayer, until_s: float) -> Result:
    """Take the likeliest steps from the model on; the result's one candidate is where they lead.

    Costs decide nothing, unless the policy sees them. It stops where it likes. After `until_s`, by
    `time.monotonic`, no further step is taken.
    """
    began_s, stopped = time.monotonic(), EXHAUSTED
    start, end = player.start, Visited(player.start)
    seen, num_returns = {_view_of(start)}, 0
    for match, state in player.play(0, start):
        end = Visited(state, end, match)
        view = _view_of(state)
        num_returns += view in seen
        seen.add(view)
        if num_returns > _MOST_RETURNS:
            break
        if time.monotonic() > until_s:
            stopped = OUT_OF_TIME
            break
    path = end.path
    return Result(
        method="policy",
        best=end.state,
        path=path,
        candidates=(end,),
        start_cost_ms=start.cost_ms,
        expansions=len(path),
        seconds=time.monotonic() - began_s,
        stopped=stopped,
        expansions_of_best=len(path),
    )


def _view_of(state: Any) -> tuple[float, bytes]:
    """Return what tells states apart, in less time than it takes to hash a graph."""
    return state.cost_ms, state.num_matches.tobytes()
