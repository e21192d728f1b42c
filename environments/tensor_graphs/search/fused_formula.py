"""Costs by formula that know how onnxruntime runs operators: chains as one, broadcasts in runs.

Its CPU provider goes through two operands that it broadcasts in runs, within which each operand is
either one number or as long as the run. A run takes some 20 ns beside its arithmetic: no matter
where a channel's factor serves thousands of numbers, and all of the time where the last axis is
short. Rows of 8 take 10 times as long as ReLU.
"""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from environments.tensor_graphs.costs.analytic import AnalyticObjective, at, input_types
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Change
from environments.tensor_graphs.rewriting.match_index import MatchIndex, Starts
from environments.tensor_graphs.rewriting.matching import Match, compile_rules
from environments.tensor_graphs.rules.language.rule import FusedChain

_MOST_GRAPHS = 32
_BROADCASTING = frozenset({"Add", "Sub", "Mul", "Div", "Pow"})

RUN_MS = 2e-5
"""Milliseconds that a run takes beside its arithmetic."""


class _Chain(NamedTuple):
    nodes: tuple[int, ...]
    slowness: float

    @property
    def root(self) -> int:
        return self.nodes[-1]


Chains = Mapping[int, _Chain]
"""The chain that a node is in, by its number."""


class FusedFormula:
    """The costs of a formula, but a chain costs as much as the kernel that runs it.

    Without that, a search takes a scale out of a Gelu to save a product, and the backend, which no
    longer recognises what is left, runs four operators instead of one.
    """

    def __init__(
        self,
        formula: AnalyticObjective,
        chains: Sequence[FusedChain],
        slowness: Mapping[str, float] | None = None,
    ) -> None:
        """Make the objective of a formula, and of the chains that the backend runs as one kernel.

        `slowness` is how many times longer some operators take than the formula says.
        """
        self._formula = formula
        self._slowness_of_op = slowness or {}
        self.sizes = formula.sizes
        self._slowness = {chain.rule.name: chain.slowness for chain in chains}
        self._compiled = compile_rules([chain.rule for chain in chains])
        self._starts = Starts(self._compiled)
        # A search applies many matches to one graph, so the graphs used last keep their chains.
        self._latest: deque[tuple[MatchIndex, Chains]] = deque(maxlen=_MOST_GRAPHS)

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        """Return the cost of a node in ms; the root of a chain has that of the chain."""
        _, chains = self._chains_of(graph)
        chain = chains.get(number, _Chain((number,), 1.0))
        if number != chain.root:
            return 0.0
        if len(chain.nodes) == 1:
            return self._single_cost_ms(graph, number) + self._broadcasting_ms(graph, number)
        return chain.slowness * max(self._single_cost_ms(graph, n) for n in chain.nodes)

    def _single_cost_ms(self, graph: Graph, number: int) -> float:
        slowness = self._slowness_of_op.get(graph.nodes[number].op, 1.0)
        return slowness * self._formula.node_cost_ms(graph, number)

    def _broadcasting_ms(self, graph: Graph, number: int) -> float:
        """Return what the runs of a broadcast take, beyond the first; see the module."""
        node = graph.nodes[number]
        if node.op not in _BROADCASTING or graph.is_constant(number):
            return 0.0
        kinds = [at(kind, self.sizes) for kind in input_types(graph, node)]
        if any(kind is None or kind.shape is None for kind in kinds):
            return 0.0
        first, second = (kind.shape for kind in kinds)  # type: ignore[union-attr]
        return RUN_MS * (num_runs(first, second) - 1)  # type: ignore[arg-type]

    def affected(self, before: Graph, after: Graph, change: Change) -> set[int]:
        """Return the nodes of `after` that the edit added, or whose cost it may have changed."""
        index, old = self._chains_of(before)
        new = self._keep(index.after(after, change))
        users = (user for number in change.rewired for user in after.users(number))
        moved = (number for number in {*old, *new} if old.get(number) != new.get(number))
        touched = {*change.added, *change.rewired, *users, *moved}
        return {number for number in touched if number in after.nodes}

    def _chains_of(self, graph: Graph) -> tuple[MatchIndex, Chains]:
        for entry in self._latest:
            if entry[0].graph is graph:
                self._latest.remove(entry)
                self._latest.append(entry)
                return entry
        index = MatchIndex(graph, self._compiled, self._starts)
        return index, self._keep(index)

    def _keep(self, index: MatchIndex) -> Chains:
        chains: dict[int, _Chain] = {}
        for match in index.matches:
            nodes = _chain_of(index.graph, match)
            if not any(number in chains for number in nodes):
                chains.update(dict.fromkeys(nodes, _Chain(nodes, self._slowness[match.rule])))
        self._latest.append((index, chains))
        return chains


def _chain_of(graph: Graph, match: Match) -> tuple[int, ...]:
    """Return a match's nodes, its root last; none if others use what its inner nodes return."""
    (root,) = match.replaced
    inner = [number for number in match.nodes if number != root.node]
    returned = {ref.node for ref in graph.outputs}
    for number in inner:
        if number in returned or not set(graph.users(number)) <= set(match.nodes):
            return ()
    return (*inner, root.node)


def num_runs(first: Sequence[int], second: Sequence[int]) -> int:
    """Return in how many runs two operands of these shapes are computed.

    A run ends before the axis where one operand, which was as long as the result so far, has but 1,
    or the other way round. Axes where both have 1 say nothing, but for one case: a shape of fewer
    axes that has only said 1 counts as long, and the next axis ends the run. Where nothing is
    computed, that is one run.
    """
    if 0 in first or 0 in second:
        return 1
    pairs = list(itertools.zip_longest(reversed(first), reversed(second), fillvalue=1))
    # An operand without axes is compared by one axis of the other.
    num_shared = max(1, min(len(first), len(second)))
    total = math.prod(max(pair) for pair in pairs)
    run, ways = 1, (True, True) if set(pairs[:num_shared]) == {(1, 1)} else None
    for pair in pairs:
        longest = max(pair)
        if longest == 1:
            continue
        own = pair[0] == longest, pair[1] == longest
        if ways is None:
            ways = own
        if own != ways:
            break
        run *= longest
    return total // run
