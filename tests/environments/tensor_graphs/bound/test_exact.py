"""The exact bound: equality saturation and extraction."""

from __future__ import annotations

import time

import pytest

from environments.tensor_graphs.bound.exact import Operation, bound, least_cost_ms
from environments.tensor_graphs.bound.saturation import Saturation
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Ref, TensorType
from environments.tensor_graphs.operators.building import add
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.search import search

TYPE = TensorType("float32", (4, 4))
COSTS = {"Relu": 2, "Neg": 1, "Add": 1, "Mul": 3, "MatMul": 10, "Concat": 1, "Split": 1}


class Costs:
    def node_cost_ms(self, graph, number):
        return COSTS.get(graph.nodes[number].op, 0.0)


def rule(name, *pairs, **fields):
    texts = {field: list(value) for field, value in fields.items()}
    source, target = zip(*pairs, strict=True)
    return Rule.from_dict({"name": name, "source": list(source), "target": list(target), **texts})


NEG_NEG = rule("neg_neg", ("(Neg (Neg ?x))", "?x"))
RELU_RELU = rule("relu_relu", ("(Relu (Relu ?x))", "(Relu ?x)"))
FACTOR = rule("factor", ("(Add (Mul ?x ?z) (Mul ?y ?z))", "(Mul (Add ?x ?y) ?z)"))
NEG_OUT = rule("neg_out", ("(Mul (Neg ?x) ?y)", "(Neg (Mul ?x ?y))"))
NEG_OUT_OF_SUM = rule("neg_sum", ("(Add (Neg ?x) (Neg ?y))", "(Neg (Add ?x ?y))"))
MERGE = rule(
    "merge",
    (
        "(MatMul ?x ?v)",
        "(output 0 (Split (MatMul ?x (Concat ?v ?w :axis 1)) :axis 1 :split (list 4 4)))",
    ),
    (
        "(MatMul ?x ?w)",
        "(output 1 (Split (MatMul ?x (Concat ?v ?w :axis 1)) :axis 1 :split (list 4 4)))",
    ),
)


def graph_of(build):
    edit = Graph().edit()
    x, y, z = (edit.add(INPUT, [], (("name", name),), [TYPE]) for name in "xyz")
    outputs = build(lambda *arguments, **more: add(edit, *arguments, **more)[0], x, y, z)
    edit.set_outputs(outputs, [f"y{number}" for number in range(len(outputs))])
    return edit.finish()[0]


def optimum(graph, *rules):
    result = bound(graph, rules, Costs())
    assert result.is_proved
    return pytest.approx(result.bound_ms)


def test_nothing_to_do():
    graph = graph_of(lambda add, x, y, z: [add("Mul", x, y)])
    assert optimum(graph) == 3 == optimum(graph, NEG_NEG)


def test_a_graph_that_disappears():
    graph = graph_of(lambda add, x, y, z: [add("Neg", add("Neg", x))])
    assert optimum(graph, NEG_NEG) == 0


def test_what_several_use_is_paid_once():
    """x·z + y·z → (x + y)·z saves a product, but not where others need both products."""

    def build(add, x, y, z):
        first, second = add("Mul", x, z), add("Mul", y, z)
        return [add("Add", first, second), add("Relu", first), add("Relu", second)]

    assert optimum(graph_of(build), FACTOR) == 3 + 3 + 1 + 2 + 2
    alone = graph_of(lambda add, x, y, z: build(add, x, y, z)[:1])
    assert optimum(alone, FACTOR) == 1 + 3


def test_steps_that_only_together_save_anything():
    """-x·z + -y·z → -(x·z) + -(y·z) → -(x·z + y·z) → -((x + y)·z)"""

    def build(add, x, y, z):
        return [add("Add", add("Mul", add("Neg", x), z), add("Mul", add("Neg", y), z))]

    graph = graph_of(build)
    rules = (NEG_OUT, NEG_OUT_OF_SUM, FACTOR)
    assert optimum(graph, *rules) == 3 + 1 + 1
    assert search(Engine(rules, Costs()).start(graph), "regions").best.cost_ms == 3 + 1 + 1


def test_several_outputs_at_once():
    graph = graph_of(lambda add, x, y, z: [add("MatMul", x, y), add("MatMul", x, z)])
    assert optimum(graph) == 20
    assert optimum(graph, MERGE) == 12
    assert search(Engine([MERGE], Costs()).start(graph), "regions").best.cost_ms == 12


def test_a_saturation_that_is_given_up_proves_nothing():
    """Neg(x) → Neg(Relu(Neg(x))) makes Neg(Relu(Neg(x))) equal to Neg(x), and so ends by itself."""
    once = rule("once", ("(Neg ?x)", "(Neg (Relu (Neg ?x)))"))
    graph = graph_of(lambda add, x, y, z: [add("Neg", x)])
    assert optimum(graph, once) == 1
    endless = rule("endless", ("(Add ?x ?y)", "(Neg (Add (Neg ?x) (Neg ?y)))"))
    graph = graph_of(lambda add, x, y, z: [add("Add", x, add("Add", y, z))])
    result = bound(graph, [endless], Costs(), max_operations=50)
    assert not result.is_proved and result.bound_ms == pytest.approx(2)


def test_operations_that_support_each_other():
    """a needs b and b needs a, both for nothing; only c gives a from what there is."""
    a, b = Ref(1), Ref(2)
    operations = [
        Operation(frozenset(gives), frozenset(needs), cost_ms)
        for gives, needs, cost_ms in (
            ([a], [b], 0.0),
            ([b], [a], 0.0),
            ([a], [], 5.0),
            ([b], [], 7.0),
        )
    ]
    assert least_cost_ms(operations, {a, b}, time.monotonic() + 10) == pytest.approx(5)


def test_congruence():
    """If Relu(x) and x are equal, so are Neg(Relu(x)) and Neg(x), and then Neg of those."""
    graph = graph_of(
        lambda add, x, y, z: [add("Neg", add("Neg", add("Relu", x))), add("Neg", add("Neg", x))]
    )
    no_relu = rule("no_relu", ("(Relu ?x)", "?x"))
    for rules, is_equal in (((), False), ((no_relu,), True)):
        saturation = Saturation(graph, rules)
        saturation.grow(100, time.monotonic() + 10)
        first, second = (saturation.view.names[ref] for ref in graph.outputs)
        assert (first == second) is is_equal
