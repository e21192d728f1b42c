"""Walking: the likeliest steps of a policy, from the model on, without a search or a measurement.

The policy that comes with the installation has learned from measured costs what pays, and sees
none. So it knows before anything is measured here what a formula does not.
"""

from __future__ import annotations

import time
from typing import Any

from environments.tensor_graphs.search import EXHAUSTED, OUT_OF_TIME, Result, Visited
from tfrl_systems.systems.tensor_graphs.player import PolicyPlayer
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem

# A policy that comes back so often to what it has seen has no plan for this model.
_MOST_RETURNS = 24


def walk(problem: GraphProblem, policy: GraphPolicy, until_s: float) -> Result:
    """Take the likeliest steps; the result's one candidate is where they lead.

    Args:
      problem: the model; its costs decide nothing, unless the policy sees them.
      policy: the policy, which stops where it likes.
      until_s: the `time.monotonic()` after which no further step is taken.
    """
    began_s, stopped = time.monotonic(), EXHAUSTED
    start = problem.without_contrib().start
    player, end = PolicyPlayer(policy, problem.name, start), Visited(start)
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
