"""Systems to search in whose optima are known by hand."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Change, Ref, TensorType

TYPE = TensorType("float32", (2, 3))


@dataclasses.dataclass(frozen=True)
class FakeMatch:
    rule: str
    location: tuple[int, ...]
    only_removes: bool = False

    @property
    def nodes(self):
        return self.location


class Spot(int):
    """A graph that is a number, and has no nodes."""

    nodes = ()


@dataclasses.dataclass(frozen=True)
class TableState:
    """A drawing: graphs are numbers, arrows are rules."""

    graph: int
    arrows: Mapping[int, Mapping[str, int]]
    costs: Mapping[int, float]
    change: None = None

    def __post_init__(self):
        object.__setattr__(self, "graph", Spot(self.graph))

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
    0, {0: {"down": 1, "over": 3}, 3: {"down": 4}}, {0: 10.0, 1: 9.0, 3: 10.2, 4: 5.0}
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
            FakeMatch(name, location, name in REMOVING)
            for name, rule in self.rules.items()
            for location, _ in sorted(rule(self.graph), key=lambda rewrite: rewrite[0])
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


def rewrite(outer: str, inner: str, replace, *, num_located: int = 2, is_alone: bool = False):
    """A rule for outer(inner(x)); `replace(edit, old, inner, x)` says what becomes of it."""

    def rule(graph):
        for number in graph.order():
            if graph.nodes[number].op == outer:
                (ref,) = graph.nodes[number].inputs
                is_free = not is_alone or graph.users(ref.node) == (number,)
                if graph.nodes[ref.node].op == inner and is_free:
                    location = (number, ref.node)[:num_located]
                    yield location, functools.partial(_rewritten, graph, number, replace)

    return rule


def _rewritten(graph, number, replace):
    edit, (ref,) = graph.edit(), graph.nodes[number].inputs
    replace(edit, Ref(number), ref, graph.nodes[ref.node].inputs[0])
    return edit.finish()


def same_twice(op: str, becomes: int) -> Rewrite:
    """op(op(x)) → op(x) or x."""

    def replace(edit, old, inner, x):
        edit.replace({old: inner if becomes else x})

    return rewrite(op, op, replace, num_located=1)


def swap(outer: str, inner: str) -> Rewrite:
    """outer(inner(x)) → inner(outer(x)), where nothing else uses the inner one."""

    def replace(edit, old, _, x):
        first = edit.add(outer, [x], (), [TYPE])
        second = edit.add(inner, [first], (), [TYPE])
        edit.replace({old: second}, {first.node, second.node})

    return rewrite(outer, inner, replace, is_alone=True)


def fuse(outer: str, inner: str, fused: str) -> Rewrite:
    """outer(inner(x)) → fused(x)."""

    def replace(edit, old, _, x):
        edit.replace({old: edit.add(fused, [x], (), [TYPE])})

    return rewrite(outer, inner, replace)


def chain(*ops: str) -> Graph:
    """input → op → op …"""
    return branches(ops)


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


RULES = {
    "neg_neg": same_twice("Neg", 0),
    "relu_relu": same_twice("Relu", 1),
    "neg_relu": swap("Neg", "Relu"),
    "relu_neg": swap("Relu", "Neg"),
    "fuse": fuse("Tanh", "Relu", "Fast"),
}

REMOVING = ("neg_neg", "relu_relu")


#  Neg(Relu(Neg(x))): one Neg must pass the Relu, which saves nothing, before both go.
LAYER = ("Neg", "Relu", "Neg")


class Guide:
    """Takes, of the first rule that matches, the first match; or the last match of all."""

    def __init__(self, *rules, num_steps=100):
        self.rules = rules
        self.num_steps = num_steps
        self.begun = []

    def play(self, number, start):
        assert number == 0
        self.begun.append(start)
        here = start
        for _ in range(self.num_steps):
            if not here.matches:
                return
            matches = [match for match in here.matches if match.rule in self.rules]
            match = min(
                matches, key=lambda match: self.rules.index(match.rule), default=here.matches[-1]
            )
            here = here.apply(match)
            yield match, here
