"""Apply one rule after another to a graph, and keep its matches and its cost up to date.

engine = Engine(rules, objective)
state = engine.start(graph)
while state.matches:
    state = state.apply(state.matches[0])
print(state.cost_ms)
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Change
from environments.tensor_graphs.rewriting.match_index import MatchIndex, Starts
from environments.tensor_graphs.rewriting.matching import Match, apply, compile_rules
from environments.tensor_graphs.rewriting.plans import AdmitsFn, admits_all
from environments.tensor_graphs.rules.language.rule import Rule

# A state stores costs as integer multiples of this unit. Integer sums are exact, so the cost of a
# graph does not depend on the path that led to it.
_UNIT_MS = 2.0**-40


class Objective(Protocol):
    """Gives each node of a graph a cost; the cost of the graph is their sum.

    An objective may also have a method `affected(before, after, change)`. It returns the nodes of
    the graph `after` that the edit added, or whose cost it may have changed. Without this method,
    these are the new nodes, the rewired nodes, and the users of nodes that have become constant.
    And it may have `sizes`, at which it takes those that the model leaves open.
    """

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        """Return the cost of a node in ms; 0 for an Input, or if it depends on constants alone."""


class Engine:
    """Compiled rules with an objective; makes the states of graphs.

    Attributes:
      rules: the rules; a state numbers them in this order.
    """

    def __init__(
        self, rules: Sequence[Rule], objective: Objective, admits_fn: AdmitsFn = admits_all
    ) -> None:
        """Compile the rules, no two of which have the same name.

        A step asks the objective only about the nodes whose cost may have changed.

        Raises:
          RuleError: a rule uses an operator that does not exist, or two rules have the same name.
        """
        self.rules = tuple(rules)
        self.objective = objective
        self._compiled = compile_rules(self.rules, admits_fn)
        self._starts = Starts(self._compiled)

    def with_objective(self, objective: Objective) -> Engine:
        """Return an engine with the same compiled rules and another objective."""
        engine = copy.copy(self)
        engine.objective = objective
        return engine

    def start(self, graph: Graph) -> State:
        """Return the state of a graph: find all of its matches, and its cost."""
        index = MatchIndex(graph, self._compiled, self._starts)
        costs_ms = self.costs_ms(graph, graph.nodes)
        return State(self, index, _in_units(costs_ms), None, {})

    def costs_ms(self, graph: Graph, nodes: Iterable[int]) -> dict[int, float]:
        """Return the costs of nodes, by number; leave out those that depend on constants alone."""
        node_cost_ms = self.objective.node_cost_ms
        return {n: node_cost_ms(graph, n) for n in nodes if not graph.is_constant(n)}

    def touched(self, before: Graph, after: Graph, change: Change) -> set[int]:
        """Return the nodes that an edit added, or whose cost it may have changed."""
        affected = getattr(self.objective, "affected", None)
        if affected is not None:
            return affected(before, after, change)
        touched = {*change.added, *change.rewired}
        for number in change.rewired:
            # A node may cost something else once one of its inputs has become constant.
            if after.is_constant(number):
                touched.update(after.users(number))
        return touched


class State:
    """An immutable graph with its matches and its cost.

    Attributes:
      change: what the step that made this state changed in the graph; None at the start.
      changed_costs_ms: costs of the nodes that the objective was asked about in that step, by
        number of the node; empty at the start.
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
        """Make a state; use `Engine.start` or `State.apply` instead."""
        self._engine, self._index, self._costs = engine, index, costs
        self._total = sum(costs.values())
        self.change, self.changed_costs_ms = change, changed_costs_ms

    def with_objective(self, objective: Objective) -> State:
        """Return the state of the same graph, with the same matches, by another objective."""
        engine = self._engine.with_objective(objective)
        costs = _in_units(engine.costs_ms(self.graph, self.graph.nodes))
        return State(engine, self._index, costs, None, {})

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
        """All matches, sorted by rule and location; each can be applied, and none is missing."""
        return self._index.matches

    @property
    def matches_by_rule(self) -> Sequence[tuple[Match, ...]]:
        """The matches of each rule, sorted by location."""
        return self._index.by_rule

    @property
    def cost_ms(self) -> float:
        """The cost of the graph in ms: the sum over its nodes."""
        return self._total * _UNIT_MS

    @property
    def node_costs_ms(self) -> dict[int, float]:
        """The cost of each node in ms, by number; nodes that are constant are left out."""
        return {number: units * _UNIT_MS for number, units in self._costs.items()}

    @property
    def num_matches(self) -> np.ndarray:
        """The number of matches of each rule: int32 [num_rules]."""
        by_rule = self._index.by_rule
        return np.fromiter(map(len, by_rule), np.int32, len(by_rule))

    @property
    def xfer_mask(self) -> np.ndarray:
        """Whether each rule has a match: bool [num_rules]."""
        return self.num_matches > 0

    def apply(self, match: Match) -> State:
        """Apply a match; return the state after it. This state does not change."""
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
