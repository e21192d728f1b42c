"""A state of an episode, with all that observations of it are made of, kept up to date."""

from __future__ import annotations

import numpy as np

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.observation import features
from environments.tensor_graphs.observation.tracking import BYTES, Tracker
from environments.tensor_graphs.rewriting.engine import State
from environments.tensor_graphs.rewriting.matching import Match


class View:
    """A state of an episode, and what is to be known of it to observe it.

    Attributes:
      name: of the model.
      state: where the episode is.
      tracker: of its graph.
      num_steps: rules that were applied.
      first: where it began.
      start_cost_ms: the cost there.
      work: sums over the graph's nodes, as `Tracker.total` has them.
      start_work: the same of the first graph.
    """

    def __init__(self, name: str, state: State, tracker: Tracker) -> None:
        """The beginning of an episode."""
        self.name, self.state, self.tracker, self.num_steps = name, state, tracker, 0
        self.first = state
        self.start_cost_ms = state.cost_ms
        self.start_work = self.work = tracker.total()
        self._match_tables: dict[int, MatchTable] = {}

    def copy(self) -> View:
        """Another view of the same."""
        other = View.__new__(View)
        other.name, other.num_steps = self.name, self.num_steps
        other.first, other.state = self.first, self.state
        other.tracker, other._match_tables = self.tracker.copy(), dict(self._match_tables)
        other.start_cost_ms, other.start_work = self.start_cost_ms, self.start_work
        other.work = self.work
        return other

    def advance(self, state: State) -> None:
        """Goes on to the state that one step made of the last one."""
        assert state.change is not None
        self.state = state
        self.num_steps += 1
        self.tracker.advance(state.graph, state.change, state.changed_costs_ms)
        self.work = self.tracker.total()

    @property
    def cost(self) -> float:
        """RT: the cost as a part of the first graph's."""
        return _part(self.state.cost_ms, self.start_cost_ms)

    @property
    def memory(self) -> float:
        """M: bytes moved as a part of the first graph's."""
        return _part(float(self.work[BYTES]), float(self.start_work[BYTES]))

    def match_tables(
        self, rules: np.ndarray, num_touched: int, num_inputs: int
    ) -> list[MatchTable]:
        """For each of these rules, what is known of its matches."""
        by_rule, found = self.state.matches_by_rule, []
        for rule in rules.tolist():
            matches = by_rule[rule]
            known = self._match_tables.get(rule)
            # The engine takes over the matches of rules that nothing has happened to.
            if known is None or known.matches is not matches:
                graph = self.state.graph
                known = MatchTable(graph, matches, num_touched, num_inputs, known)
                self._match_tables[rule] = known
            found.append(known)
        return found


class MatchTable:
    """The nodes of a rule's matches.

    Attributes:
      matches: of the rule.
      rows: int32 [matches, K + V], numbers of nodes, -1 for none.
      works: float64 [matches, 4], as `features.match_work` gives them.
    """

    __slots__ = ("_places", "matches", "rows", "works")

    def __init__(
        self,
        graph: Graph,
        matches: tuple[Match, ...],
        num_touched: int,
        num_inputs: int,
        last: MatchTable | None,
    ) -> None:
        """Most matches are those that were there before.

        Args:
          graph: that they are in.
          matches: of the rule.
          num_touched: K.
          num_inputs: V.
          last: of the same rule, from another state.
        """
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
            self.works[place] = features.match_work(graph, match)

    def _place_of(self, match: Match) -> int:
        """The place of a match; -1 if it is not there, even if another one is at its location."""
        place = self._places.get(match.location, -1)
        return place if place >= 0 and self.matches[place] is match else -1


def _part(value: float, start: float) -> float:
    """A value over the first one, 1 at the start also where that is 0."""
    return 1 + (value - start) / (start or 1.0)
