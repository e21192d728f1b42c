"""Systems to search in whose optima are known by hand."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, TensorType
from environments.tensor_graphs.rewriting.engine import Engine, State
from environments.tensor_graphs.rules.language.rule import Rule

TYPE = TensorType("float32", (2, 3))


@dataclasses.dataclass(frozen=True)
class FakeMatch:
    rule: str
    location: tuple[int, ...]
    only_removes = False

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


# An operator of chains and trees costs so many ms.
COSTS = {"Relu": 4.0, "Exp": 4.0, "Neg": 1.0, "Tanh": 8.0, "Abs": 2.0, "Sqrt": 3.0}


class Costs:
    def node_cost_ms(self, graph, number):
        return COSTS.get(graph.nodes[number].op, 0.0)


def swap(outer: str, inner: str) -> tuple[str, str]:
    return f"({outer} ({inner} ?x))", f"({inner} ({outer} ?x))"


def fuse(outer: str, inner: str, fused: str) -> tuple[str, str]:
    return f"({outer} ({inner} ?x))", f"({fused} ?x)"


# Sources and targets; few are true, but searches need not know.
RULES = {
    "neg_neg": ("(Neg (Neg ?x))", "?x"),
    "relu_relu": ("(Relu (Relu ?x))", "(Relu ?x)"),
    "neg_relu": swap("Neg", "Relu"),
    "relu_neg": swap("Relu", "Neg"),
    "fuse": fuse("Tanh", "Relu", "Abs"),
}


def start_of(graph: Graph, rules=RULES, objective=None) -> State:
    of_texts = [
        Rule.from_dict({"name": name, "source": [source], "target": [target]})
        for name, (source, target) in rules.items()
    ]
    return Engine(of_texts, objective or Costs()).start(graph)


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
