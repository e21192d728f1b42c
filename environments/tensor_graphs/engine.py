"""Rules applied one after another: a graph, what applies to it, and its cost.

engine = Engine(rules, objective)
state = engine.start(graph)
while state.matches:
    state = state.apply(state.matches[0])
print(state.cost_ms)
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.match_index import MatchIndex, Starts
from environments.tensor_graphs.matching import Match, apply, compile_rules
from environments.tensor_graphs.nodes import Change
from environments.tensor_graphs.substitutions import Substitution

# Costs are added and taken away as whole numbers of this: so the way to a graph does not show in
# the last bits of its cost.
_UNIT_MS = 2.0**-40


class NodeCost(Protocol):
    """What `Engine` needs of an objective; `objectives.Objective` has it."""

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        """The cost of one node, which does not depend on constants alone.

        If it depends on more than the node and the types of its inputs, the objective has a method
        `affected(before, after, change)` as well; see `objectives.Objective`. If it takes long to
        find out, it has `known_cost_ms(graph, number)`: what the node costs at least, and whether
        it is known to cost that.
        """


class Engine:
    """Rules and an objective.

    Attributes:
      rules: the substitutions, as they are numbered in states.
    """

    def __init__(
        self, rules: Sequence[Substitution], objective: NodeCost, limit: float = math.inf
    ) -> None:
        """Compiles the rules.

        Args:
          rules: names differ.
          objective: asked once for each node.
          limit: a graph that costs so many times the one it was made from is of no interest: that
            it does is enough to know, its cost need not be measured.

        Raises:
          RuleError: a rule uses an operator that there is none of, or two have one name.
        """
        self.rules = tuple(rules)
        self._objective = objective
        self._limit = limit
        self._compiled = compile_rules(self.rules)
        self._starts = Starts(self._compiled)

    def start(self, graph: Graph) -> State:
        """A graph, its matches and its cost."""
        index = MatchIndex(graph, self._compiled, self._starts)
        costs, _ = self.costs(graph, graph.nodes)
        total = sum(costs.values())
        return State(self, index, costs, total, self._limit * total)

    def costs(
        self, graph: Graph, nodes: Iterable[int], room: float = math.inf
    ) -> tuple[dict[int, int], frozenset[int]]:
        """Costs of nodes in units; of those that depend on constants alone, none.

        Args:
          graph: that has the nodes.
          nodes: their numbers.
          room: units. Where the nodes cost more for certain, nothing is measured.

        Returns:
          The costs; and the nodes of which it is only known that they cost no less.
        """
        numbers = [number for number in nodes if not graph.is_constant(number)]
        known_cost_ms = getattr(self._objective, "known_cost_ms", None)
        costs: dict[int, int] = {}
        if known_cost_ms is not None and room < math.inf:
            least: dict[int, int] = {}
            for number in numbers:
                cost_ms, is_known = known_cost_ms(graph, number)
                (costs if is_known else least)[number] = round(cost_ms / _UNIT_MS)
            if sum(costs.values()) + sum(least.values()) > room:
                return costs | least, frozenset(least)
        for number in numbers:
            if number not in costs:
                costs[number] = round(self._objective.node_cost_ms(graph, number) / _UNIT_MS)
        return costs, frozenset()

    def touched(self, before: Graph, after: Graph, change: Change) -> set[int]:
        """Nodes of the graph after an edit whose cost may differ from before, or that are new."""
        affected = getattr(self._objective, "affected", None)
        if affected is not None:
            return affected(before, after, change)
        touched = {*change.added, *change.rewired}
        for number in change.rewired:
            # An input that becomes constant can change a cost.
            if after.is_constant(number):
                touched.update(after.users(number))
        return touched


class State:
    """A graph, what applies to it, and its cost. It never changes."""

    __slots__ = ("_costs", "_engine", "_index", "_least", "_most", "_total")

    def __init__(
        self, engine: Engine, index: MatchIndex, costs: Mapping[int, int], total: int, most: float,
        least: frozenset[int] = frozenset(),
    ) -> None:  # fmt: skip
        """Made by `Engine.start` and `apply`.

        Args:
          engine: the rules.
          index: the graph and its matches.
          costs: of nodes, in units.
          total: their sum.
          most: units. Of a graph that costs more only that need be known.
          least: nodes that may cost more than `costs` says.
        """
        self._engine, self._index, self._costs = engine, index, costs
        self._total, self._most, self._least = total, most, least

    @property
    def engine(self) -> Engine:
        """The rules and the objective."""
        return self._engine

    @property
    def graph(self) -> Graph:
        """The graph."""
        return self._index.graph

    @property
    def matches(self) -> tuple[Match, ...]:
        """All matches, by rule and location. Each one applies; nothing else does."""
        return self._index.matches

    @property
    def matches_by_rule(self) -> Sequence[tuple[Match, ...]]:
        """The matches of each rule, by location."""
        return self._index.by_rule

    @property
    def cost_ms(self) -> float:
        """The sum of the costs of the nodes; above the engine's limit perhaps less than that."""
        return self._total * _UNIT_MS

    @property
    def node_costs_ms(self) -> dict[int, float]:
        """What `cost_ms` is the sum of, by number of the node; constants have no cost."""
        return {number: units * _UNIT_MS for number, units in self._costs.items()}

    @property
    def num_matches(self) -> np.ndarray:
        """Matches of each rule: int32 [num_rules]."""
        by_rule = self._index.by_rule
        return np.fromiter(map(len, by_rule), np.int32, len(by_rule))

    @property
    def xfer_mask(self) -> np.ndarray:
        """Which rules match somewhere: bool [num_rules]."""
        return self.num_matches > 0

    def apply(self, match: Match) -> State:
        """The state after a match was applied; this one stays as it is."""
        graph, change = apply(self.graph, match)
        index = self._index.after(graph, change)
        costs = dict(self._costs)
        total = self._total
        for number in change.removed:
            total -= costs.pop(number, 0)
        touched = self._engine.touched(self.graph, graph, change)
        touched.update(number for number in self._least if number in graph.nodes)
        for number in touched:
            total -= costs.pop(number, 0)
        found, least = self._engine.costs(graph, touched, self._most - total)
        costs.update(found)
        total += sum(found.values())
        return State(self._engine, index, costs, total, self._most, least)
