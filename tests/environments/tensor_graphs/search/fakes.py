"""Systems to search in whose optima are known by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Change, Ref, TensorType

TYPE = TensorType("float32", (2, 3))


@dataclasses.dataclass(frozen=True)
class FakeMatch:
    rule: str
    location: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class TableState:
    """A drawing: nodes are integers, arrows are rules."""

    graph: int
    arrows: Mapping[int, Mapping[str, int]]
    costs: Mapping[int, float]
    change: None = None

    @property
    def matches(self):
        return [FakeMatch(name, (self.graph,)) for name in self.arrows.get(self.graph, {})]

    @property
    def cost_ms(self):
        return self.costs[self.graph]

    def apply(self, match):
        assert match in self.matches
        return dataclasses.replace(self, graph=self.arrows[self.graph][match.rule])


#       down       up            down
#  0 ───────▶ 1          3 ──────────▶ 4
#  10         9   over  10.2           5
#  └───────────────────▶ ┘
HILL = TableState(
    0,
    {0: {"down": 1, "over": 3}, 3: {"down": 4}},
    {0: 10.0, 1: 9.0, 3: 10.2, 4: 5.0},
)


Rewrite = Callable[[Graph], Iterator[tuple[tuple[int, ...], Callable[[], tuple[Graph, Change]]]]]


@dataclasses.dataclass(frozen=True)
class ToyState:
    """Chains and trees of real nodes; an operator costs what `COSTS` says."""

    graph: Graph
    rules: Mapping[str, Rewrite]
    change: Change | None = None

    COSTS = {"Relu": 4.0, "Exp": 4.0, "Neg": 1.0, "Tanh": 8.0, "Fast": 2.0, "Add": 3.0}

    @property
    def matches(self):
        return [
            FakeMatch(name, location)
            for name, rule in self.rules.items()
            for location, _ in sorted(rule(self.graph), key=lambda one: one[0])
        ]

    @property
    def cost_ms(self):
        return sum(self.COSTS[op] for op in ops_of(self.graph))

    def apply(self, match):
        for location, make in self.rules[match.rule](self.graph):
            if location == match.location:
                graph, change = make()
                return dataclasses.replace(self, graph=graph, change=change)
        raise AssertionError(f"{match} is no match")


def same_twice(op: str, becomes: int) -> Rewrite:
    """op(op(x)) → op(x) or x."""

    def rule(graph):
        for number in graph.order():
            node = graph.nodes[number]
            if node.op == op and graph.nodes[node.inputs[0].node].op == op:
                inner = node.inputs[0]
                kept = inner if becomes else graph.nodes[inner.node].inputs[0]
                yield (number,), _replaced(graph, number, kept)

    return rule


def swap(outer: str, inner: str) -> Rewrite:
    """outer(inner(x)) → inner(outer(x)), where nothing else uses the inner one."""

    def rule(graph):
        for number in graph.order():
            node = graph.nodes[number]
            if node.op != outer:
                continue
            below = graph.nodes[node.inputs[0].node]
            if below.op == inner and graph.users(node.inputs[0].node) == (number,):
                yield (
                    (number, node.inputs[0].node),
                    _swapped(graph, number, outer, inner, below.inputs[0]),
                )

    return rule


def fuse(outer: str, inner: str, fused: str) -> Rewrite:
    """outer(inner(x)) → fused(x)."""

    def rule(graph):
        for number in graph.order():
            node = graph.nodes[number]
            if node.op == outer and graph.nodes[node.inputs[0].node].op == inner:
                below = graph.nodes[node.inputs[0].node]
                yield (number, node.inputs[0].node), _fused(graph, number, fused, below.inputs[0])

    return rule


def _replaced(graph, number, kept):
    def make():
        edit = graph.edit()
        edit.replace({Ref(number): kept})
        return edit.finish()

    return make


def _swapped(graph, number, outer, inner, below):
    def make():
        edit = graph.edit()
        first = edit.add(outer, [below], (), [TYPE])
        second = edit.add(inner, [first], (), [TYPE])
        edit.replace({Ref(number): second}, {first.node, second.node})
        return edit.finish()

    return make


def _fused(graph, number, fused, below):
    def make():
        edit = graph.edit()
        edit.replace({Ref(number): edit.add(fused, [below], (), [TYPE])})
        return edit.finish()

    return make


def chain(*ops: str) -> Graph:
    """input → op → op …"""
    edit = Graph().edit()
    ref = edit.add(INPUT, [], (("name", "x"),), [TYPE])
    for op in ops:
        ref = edit.add(op, [ref], (), [TYPE])
    edit.set_outputs([ref], ["y"])
    return edit.finish()[0]


def branches(*chains: tuple[str, ...], types: Sequence[TensorType] = ()) -> Graph:
    """Chains that begin at inputs of their own, of these types if given; all are outputs."""
    edit = Graph().edit()
    outputs = []
    for number, ops in enumerate(chains):
        kind = types[number] if types else TYPE
        ref = edit.add(INPUT, [], (("name", f"x{number}"),), [kind])
        for op in ops:
            ref = edit.add(op, [ref], (), [kind])
        outputs.append(ref)
    edit.set_outputs(outputs, [f"y{number}" for number in range(len(chains))])
    return edit.finish()[0]


def ops_of(graph: Graph) -> list[str]:
    return [graph.nodes[number].op for number in graph.order() if graph.nodes[number].op != INPUT]
