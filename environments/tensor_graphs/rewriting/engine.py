"""Rules applied one after another: a graph, what applies to it, and its cost.

engine = Engine(rules, objective)
state = engine.start(graph)
while state.matches:
    state = state.apply(state.matches[0])
print(state.cost_ms)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Change
from environments.tensor_graphs.rewriting.match_index import MatchIndex, Starts
from environments.tensor_graphs.rewriting.matching import Match, apply, compile_rules
from environments.tensor_graphs.rules.language.rule import Rule

# Costs are added and subtracted as whole multiples of this, so that the last bits of a graph's cost
# do not depend on the path to it.
_UNIT_MS = 2.0**-40


class NodeCost(Protocol):
    """What `Engine` needs of an objective; `objectives.Objective` has it."""

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        """The cost of one node, which does not depend on constants alone.

        If it depends on more than the node and the types of its inputs, the objective has a method
        `affected(before, after, change)` as well; see `objectives.Objective`.
        """


class Engine:
    """Rules and an objective.

    Attributes:
      rules: the rules, as states number them.
    """

    def __init__(self, rules: Sequence[Rule], objective: NodeCost) -> None:
        """Compiles the rules.

        Args:
          rules: names differ.
          objective: asked once for each node.

        Raises:
          RuleError: a rule uses an operator that there is none of, or two have one name.
        """
        self.rules = tuple(rules)
        self._objective = objective
        self._compiled = compile_rules(self.rules)
        self._starts = Starts(self._compiled)

    def start(self, graph: Graph) -> State:
        """A graph, its matches and its cost."""
        index = MatchIndex(graph, self._compiled, self._starts)
        costs_ms = self.costs_ms(graph, graph.nodes)
        return State(self, index, _in_units(costs_ms), None, {})

    def costs_ms(self, graph: Graph, nodes: Iterable[int]) -> dict[int, float]:
        """What the objective says of nodes; nodes that depend on constants alone are left out."""
        node_cost_ms = self._objective.node_cost_ms
        return {n: node_cost_ms(graph, n) for n in nodes if not graph.is_constant(n)}

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
    """A graph, what applies to it, and its cost. It never changes.

    Attributes:
      change: what the step that made this state changed in the graph; None at the start.
      changed_costs_ms: what the objective said in that step, by number of the node.
    """

    __slots__ = ("_costs", "_engine", "_index", "_total", "change", "changed_costs_ms")

    def __init__(
        self,
        engine: Engine,
        index: MatchIndex,
        costs: Mapping[int, int],
        change: Change | None,
        changed_costs_ms: Mapping[int, float],
    ) -> None:
        """Made by `Engine.start` and `apply`.

        Args:
          engine: the rules.
          index: the graph and its matches.
          costs: of nodes, in units.
          change: see above.
          changed_costs_ms: see above.
        """
        self._engine, self._index, self._costs = engine, index, costs
        self._total = sum(costs.values())
        self.change, self.changed_costs_ms = change, changed_costs_ms

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
        """The sum of the costs of the nodes."""
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
        touched = self._engine.touched(self.graph, graph, change)
        costs = dict(self._costs)
        for number in (*change.removed, *touched):
            costs.pop(number, None)
        changed_costs_ms = self._engine.costs_ms(graph, touched)
        costs.update(_in_units(changed_costs_ms))
        return State(self._engine, index, costs, change, changed_costs_ms)


def _in_units(costs_ms: Mapping[int, float]) -> dict[int, int]:
    return {number: round(cost_ms / _UNIT_MS) for number, cost_ms in costs_ms.items()}
