"""A state of an episode, with the data that its observations are made from."""

from __future__ import annotations

import copy

import numpy as np

from environments.tensor_graphs.execution.sizes import Sizes
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.observation import features
from environments.tensor_graphs.observation.tracking import BYTES, COST, Tracker
from environments.tensor_graphs.rewriting.engine import State
from environments.tensor_graphs.rewriting.matching import Match


class View:
    """The current state of an episode, with the data that its observation is made from.

    Attributes:
      is_model: whether the episode began at a model, not at a state on the way from one.
      tracker: features of the current graph's nodes and edges.
      num_steps: number of rules that were applied.
      first: the state where the episode began.
      work: sums over the current graph's nodes, float64 [5], as `Tracker.total` returns them.
      start_work: the same sums for the first graph.
    """

    def __init__(self, name: str, state: State, tracker: Tracker, is_model: bool = True) -> None:
        """Make the view that an episode begins with."""
        self.name, self.state, self.tracker, self.num_steps = name, state, tracker, 0
        self.first, self.is_model = state, is_model
        self.start_cost_ms = state.cost_ms
        self.start_work = self.work = tracker.total()
        self._match_tables: dict[int, MatchTable] = {}

    def copy(self) -> View:
        """Return an independent copy."""
        view = copy.copy(self)
        view.tracker, view._match_tables = self.tracker.copy(), dict(self._match_tables)
        return view

    def advance(self, state: State) -> None:
        """Move on to a state that one step has made from the current one."""
        assert state.change is not None
        self.state = state
        self.num_steps += 1
        self.tracker.advance(state.graph, state.change, state.changed_costs_ms)
        self.work = self.tracker.total()

    @property
    def cost(self) -> float:
        """RT: the cost divided by that of the first graph."""
        return part(self.state.cost_ms, self.start_cost_ms)

    def totals_ms(self, column: int) -> tuple[float, float]:
        """Return what the current graph and the first one cost, by a column of `nodes.work`."""
        if column == COST:
            return self.state.cost_ms, self.start_cost_ms
        return float(self.work[column]), float(self.start_work[column])

    @property
    def memory(self) -> float:
        """M: the bytes moved divided by those of the first graph."""
        return part(float(self.work[BYTES]), float(self.start_work[BYTES]))

    def match_tables(
        self, rules: np.ndarray, num_touched: int, num_inputs: int
    ) -> list[MatchTable]:
        """Return a table of matches for each of some rules.

        `num_touched` is K and `num_inputs` V, as in `MatchTable`.
        """
        by_rule, tables = self.state.matches_by_rule, []
        for rule in rules.tolist():
            matches = by_rule[rule]
            table = self._match_tables.get(rule)
            # The engine keeps the same tuple of matches for rules that the step did not touch.
            if table is None or table.matches is not matches:
                where = self.state.graph, self.tracker.sizes
                table = MatchTable(*where, matches, num_touched, num_inputs, table)
                self._match_tables[rule] = table
            tables.append(table)
        return tables


class MatchTable:
    """The nodes and the work of one rule's matches.

    Attributes:
      rows: int32 [matches, K + V], numbers of the nodes in the match's source, then of those that
        the variables stand for; -1 for none.
      works: float64 [matches, 4], as `features.match_work` returns them.
    """

    __slots__ = ("_places", "matches", "rows", "works")

    def __init__(
        self,
        graph: Graph,
        sizes: Sizes,
        matches: tuple[Match, ...],
        num_touched: int,
        num_inputs: int,
        last: MatchTable | None,
    ) -> None:
        """Make the table; copy the rows of matches that the last table has."""
        self.matches = matches
        self._places = {match.location: place for place, match in enumerate(matches)}
        old = [-1 if last is None else last._place_of(match) for match in matches]
        self.rows = np.full((len(matches), num_touched + num_inputs), -1, np.int32)
        self.works = np.zeros((len(matches), len(features.MATCH_FEATURES)))
        if last:
            self.rows[:] = last.rows[old]
            self.works[:] = last.works[old]
        for place, (match, row) in enumerate(zip(matches, old, strict=True)):
            if row >= 0:
                continue
            touched = list(dict.fromkeys([*[ref.node for ref in match.replaced], *match.nodes]))
            touched += [-1] * (num_touched - len(touched))
            inputs = [ref.node for ref in match.refs]
            self.rows[place] = [*touched, *inputs, *[-1] * (num_inputs - len(inputs))]
            self.works[place] = features.match_work(graph, match, sizes)

    def _place_of(self, match: Match) -> int:
        """Return the index of a match; -1 if this very match is not in the table."""
        place = self._places.get(match.location, -1)
        return place if place >= 0 and self.matches[place] is match else -1


def part(value: float, start: float) -> float:
    """Return value / start; if `start` is 0, return 1 + value, which is 1 at the start."""
    return 1 + (value - start) / (start or 1.0)
