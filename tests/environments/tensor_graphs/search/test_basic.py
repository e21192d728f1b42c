"""Greedy, TASO's and beam search, on systems whose optima are known by hand."""

from __future__ import annotations

import dataclasses

from environments.tensor_graphs.search import Step, search
from tests.environments.tensor_graphs.search.fakes import HILL, TableState


def test_greedy_stays_on_its_side_of_the_hill_and_beam_goes_over_it():
    result = search(HILL, "greedy")
    assert (result.best.graph, result.path) == (1, (Step("down", (0,)),))
    assert (result.expansions, result.stopped) == (2, "exhausted")
    assert search(HILL, "beam").best.cost_ms == 5.0


def test_taso_goes_over_a_hill_of_alpha():
    """10.2 < 1.05 × 10 when the arrow over the hill is looked at before the one down."""
    over_first = dataclasses.replace(HILL, arrows={0: {"over": 3, "down": 1}, 3: {"down": 4}})
    result = search(over_first, "taso")
    assert result.path == (Step("over", (0,)), Step("down", (3,)))
    assert (result.best.cost_ms, result.expansions) == (5.0, 3)
    # As Algorithm 1 is printed: with a best of 9 known, 10.2 is too much.
    assert search(HILL, "taso").best.cost_ms == 9.0


@dataclasses.dataclass(frozen=True)
class Watched(TableState):
    """Notes which graphs are taken from the queue: only their matches are asked for."""

    dequeued: list[int] = dataclasses.field(default_factory=list)

    @property
    def matches(self):
        self.dequeued.append(self.graph)
        return super().matches


def test_algorithm_1_by_hand():
    """α = 1.05. A graph joins the queue if it costs less than α times the best so far.

    taken   finds     best   α best   joins?    queue afterwards
    0: 10   1: 9.2    9.2    9.66     yes
            2: 9      9      9.45     yes
            3: 9.5    9      9.45     no        2, 1
    2: 9    4: 9.4    9      9.45     yes       1, 4
            1: 9.2    seen
    1: 9.2  5: 9.3    9      9.45     yes       5, 4
    5: 9.3  6: 8      8      8.4      yes       6, 4
    6: 8    2: 9      seen                      4
    4: 9.4  7: 7      7      7.35     yes       7      it is too dear by now, but is in the queue
    7: 7    none                                empty

    As printed, 2 → 1 would come again each time that 2 is taken: the hashes are TASO's.
    """
    costs = {0: 10.0, 1: 9.2, 2: 9.0, 3: 9.5, 4: 9.4, 5: 9.3, 6: 8.0, 7: 7.0}
    arrows = {0: (1, 2, 3), 2: (4, 1), 1: (5,), 5: (6,), 6: (2,), 4: (7,)}
    named = {begin: {f"to{end}": end for end in ends} for begin, ends in arrows.items()}
    start = Watched(0, named, costs)
    result = search(start, "taso")
    is_first = [graph for number, graph in enumerate(start.dequeued)
                if graph not in start.dequeued[:number]]  # fmt: skip
    assert is_first == [0, 2, 1, 5, 6, 4, 7]
    assert (result.best.cost_ms, result.stopped) == (7.0, "exhausted")
    assert [step.rule for step in result.path] == ["to2", "to4", "to7"]
    # Nine arrows, of which two lead to graphs that were seen.
    assert (result.expansions, result.expansions_of_best) == (7, 7)
