"""Keep the features of a graph's nodes and edges up to date as the graph changes.

A constant expression is shown as one node, without the nodes that it is computed from, since no
rule replaces them and they cost nothing when the model runs. A constant that only other constants
use is not shown.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping

import numpy as np

from environments.tensor_graphs.costs import analytic
from environments.tensor_graphs.execution.sizes import NONE_OPEN, Sizes
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Change, Node
from environments.tensor_graphs.observation import features
from environments.tensor_graphs.rewriting.engine import State
from environments.tensor_graphs.rewriting.matching import Match

# Larger than the number of inputs of any node; used to number the edges.
_MOST_INPUTS = 1 << 12

COST, FLOPS, BYTES, KERNELS, ROOFLINE = range(5)
"""Columns of `nodes.work`: ms by the objective, operations, bytes, kernels, ms by the roofline."""

_FREE = np.iinfo(np.int64).max


class RowTable:
    """A row of numbers for each key. A row keeps its place until its key is dropped.

    Attributes:
      values: float32 [capacity, width], the features in each place.
      work: float64 [capacity, 5], five numbers that need more precision than float32 has.
      ends: int32 [capacity, 2], two node numbers, used for the ends of an edge.
    """

    __slots__ = ("_free", "_keys", "_order", "_places", "ends", "values", "work")

    def __init__(self, width: int, capacity: int = 64) -> None:
        """Make an empty table; it grows when it is full."""
        self.values = np.zeros((capacity, width), np.float32)
        self.work = np.zeros((capacity, 5))
        self.ends = np.zeros((capacity, 2), np.int32)
        self._keys: np.ndarray = np.full(capacity, _FREE)
        self._places: dict[int, int] = {}
        self._free = list(range(capacity - 1, -1, -1))
        self._order: np.ndarray | None = None

    def __len__(self) -> int:
        """The number of keys."""
        return len(self._places)

    def __contains__(self, key: int) -> bool:
        """Whether a key has a row."""
        return key in self._places

    def __getitem__(self, key: int) -> int:
        """Return the place of a key; it must be in the table."""
        return self._places[key]

    @property
    def capacity(self) -> int:
        """The number of places, used and free."""
        return len(self._keys)

    def put(self, key: int) -> int:
        """Return the place of a key; give it a free place if it has none."""
        place = self._places.get(key)
        if place is None:
            if not self._free:
                self._grow()
            place = self._places[key] = self._free.pop()
            self._keys[place] = key
            self._order = None
        return place

    def drop(self, key: int) -> None:
        """Free the place of a key, if it has one."""
        place = self._places.pop(key, None)
        if place is not None:
            self._keys[place] = _FREE
            self._free.append(place)
            self._order = None

    def order(self) -> np.ndarray:
        """Return the used places, sorted by key."""
        if self._order is None:
            self._order = np.argsort(self._keys, kind="stable")[: len(self._places)]
        return self._order

    def keys(self) -> np.ndarray:
        """Return the keys in ascending order."""
        return self._keys[self.order()]

    def copy(self) -> RowTable:
        """Return an independent copy."""
        table = RowTable.__new__(RowTable)
        table.values, table.work = self.values.copy(), self.work.copy()
        table.ends, table._keys = self.ends.copy(), self._keys.copy()
        table._places, table._free = dict(self._places), list(self._free)
        table._order = self._order
        return table

    def _grow(self) -> None:
        capacity = self.capacity
        self.values = np.concatenate((self.values, np.zeros_like(self.values)))
        self.work = np.concatenate((self.work, np.zeros_like(self.work)))
        self.ends = np.concatenate((self.ends, np.zeros_like(self.ends)))
        self._keys = np.concatenate((self._keys, np.full(capacity, _FREE)))
        self._free += range(2 * capacity - 1, capacity - 1, -1)


class Tracker:
    """Tables of a graph's nodes and edges, which follow the graph from step to step.

    Attributes:
      nodes: a row per node, by its number. `values` are the features, with 0 for COST_FEATURES;
        `work` has the columns COST, FLOPS, BYTES, KERNELS and ROOFLINE.
      edges: a row per edge, by its receiver and input. `values` are the features; `ends` are the
        numbers of the sender and the receiver.
      end: a number that is larger than those of all nodes so far.
    """

    def __init__(
        self,
        graph: Graph,
        costs_ms: Mapping[int, float],
        constants: bool = True,
        sizes: Sizes = NONE_OPEN,
    ) -> None:
        """Fill the tables from the whole graph.

        Nodes without a cost cost 0. `constants` says whether constants are shown as nodes at all,
        and `sizes` how large the sizes are that the model leaves open.
        """
        self.graph = graph
        self.nodes = RowTable(len(features.NODE_FEATURES), 2 * len(graph.nodes) + 16)
        self.edges = RowTable(len(features.EDGE_FEATURES), 2 * len(graph.nodes) + 16)
        self._shows_constants, self.sizes = constants, sizes
        self._num_edges: dict[int, int] = {}
        self._outputs = {ref.node for ref in graph.outputs}
        self.end = max(graph.nodes, default=-1) + 1
        self._see(graph.nodes, graph.nodes, costs_ms)

    def copy(self) -> Tracker:
        """Return an independent copy."""
        tracker = copy.copy(self)
        tracker.nodes, tracker.edges = self.nodes.copy(), self.edges.copy()
        tracker._num_edges = dict(self._num_edges)
        return tracker

    def advance(self, graph: Graph, change: Change, costs_ms: Mapping[int, float]) -> None:
        """Update the tables to a graph that was made from the current one.

        `costs_ms` are those that may have changed.
        """
        old_nodes, self.graph = self.graph.nodes, graph
        nodes, removed = graph.nodes, change.removed
        self.end = max(self.end, max(change.added, default=-1) + 1)
        changed = {*change.added, *change.rewired}
        for number in (*change.added, *change.rewired):
            # The features of an edge say whether its sender is constant.
            if graph.is_constant(number):
                changed.update(graph.users(number))
        seen = set(changed)
        for number in changed:
            seen.update(nodes[number].used)
            if number in old_nodes:
                seen.update(old_nodes[number].used)
        for number in removed:
            seen.update(old_nodes[number].used)
        outputs = {ref.node for ref in graph.outputs}
        seen |= self._outputs ^ outputs
        self._outputs = outputs
        for number in removed:
            self._forget(number)
        self._see([number for number in seen if number in nodes], changed, costs_ms)

    def _see(
        self, seen: Iterable[int], changed: Iterable[int], costs_ms: Mapping[int, float]
    ) -> None:
        """Update the rows of some nodes, and the edges that end at those that changed.

        `changed` are those whose incoming edges may have changed.
        """
        graph = self.graph
        for number in seen:
            node, is_constant = graph.nodes[number], graph.is_constant(number)
            if is_constant and not self._is_shown(number):
                self._forget(number)
                continue
            place = self.nodes.put(number)
            row, work = features.node_row(graph, node, is_constant, self.sizes)
            values = self.nodes.values[place]
            values[:] = row
            values[features.FIRST_CHANGING : features.FIRST_COST] = features.changing(
                graph, number, number in self._outputs
            )
            self.nodes.work[place, FLOPS:] = work
            if is_constant:
                self.nodes.work[place, COST] = 0
        for number, cost_ms in costs_ms.items():
            if number in self.nodes:
                self.nodes.work[self.nodes[number], COST] = cost_ms
        for number in changed:
            self._join(number, graph.nodes[number])

    def _join(self, number: int, node: Node) -> None:
        """Update the edges that end at a node; a constant node has none."""
        graph, edges = self.graph, self.edges
        self._cut(number)
        if graph.is_constant(number):
            return
        for position, ref in enumerate(node.inputs):
            if ref is None or ref.node not in self.nodes:
                continue
            place = edges.put(number * _MOST_INPUTS + position)
            is_constant = graph.is_constant(ref.node)
            kind = analytic.at(graph.type_of(ref), self.sizes)
            edges.values[place] = features.edge_row(position, ref.output, kind, is_constant)
            edges.ends[place] = ref.node, number
        self._num_edges[number] = len(node.inputs)

    def _cut(self, number: int) -> None:
        for position in range(self._num_edges.pop(number, 0)):
            self.edges.drop(number * _MOST_INPUTS + position)

    def _forget(self, number: int) -> None:
        self._cut(number)
        if number in self.nodes:
            self.nodes.work[self.nodes[number]] = 0
            self.nodes.drop(number)

    def _is_shown(self, number: int) -> bool:
        """Whether a constant is shown: the model returns it, or a node that runs uses it."""
        graph = self.graph
        return self._shows_constants and (
            number in self._outputs
            or not all(graph.is_constant(user) for user in graph.users(number))
        )

    def total(self) -> np.ndarray:
        """Return the sum of `nodes.work` over all nodes: float64 [5]."""
        return self.nodes.work[self.nodes.order()].sum(axis=0)


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
