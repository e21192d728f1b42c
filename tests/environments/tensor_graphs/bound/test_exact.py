"""The exact bound: equality saturation and extraction."""

from __future__ import annotations

import time

import pytest

from environments.tensor_graphs.bound.exact import Operation, bound, least_cost_ms
from environments.tensor_graphs.bound.saturation import Saturation
from environments.tensor_graphs.graph.nodes import Ref
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.search import search
from tests.environments.tensor_graphs.rules import making

COSTS = {"Relu": 2, "Neg": 1, "Add": 1, "Mul": 3, "MatMul": 10, "Concat": 1, "Split": 1}


class Costs:
    def node_cost_ms(self, graph, number):
        return COSTS.get(graph.nodes[number].op, 0.0)


NEG_NEG = making.make("(Neg (Neg ?x))", "?x")
FACTOR = making.make("(Add (Mul ?x ?z) (Mul ?y ?z))", "(Mul (Add ?x ?y) ?z)", name="factor")
NEG_OUT = making.make("(Mul (Neg ?x) ?y)", "(Neg (Mul ?x ?y))", name="neg_out")
NEG_OUT_OF_SUM = making.make("(Add (Neg ?x) (Neg ?y))", "(Neg (Add ?x ?y))", name="neg_sum")
_PARTS = "(Split (MatMul ?x (Concat ?v ?w :axis 1)) :axis 1 :split (list 4 4))"
MERGE = making.make(
    ["(MatMul ?x ?v)", "(MatMul ?x ?w)"], [f"(output 0 {_PARTS})", f"(output 1 {_PARTS})"]
)


def graph_of(*texts):
    """A graph of matrices of 4 × 4."""
    return making.graph_of(*texts, x=(4, 4), y=(4, 4), z=(4, 4))


BOTH = ("(Mul ?x ?z)", "(Mul ?y ?z)")


@pytest.mark.parametrize(
    ("texts", "rules", "cost_ms"),
    [
        pytest.param(["(Mul ?x ?y)"], [NEG_NEG], 3, id="nothing to do"),
        pytest.param(["(Neg (Neg ?x))"], [NEG_NEG], 0, id="a graph that disappears"),
        # x·z + y·z → (x + y)·z saves a product, but not where others need both products.
        pytest.param(["(Add {} {})".format(*BOTH)], [FACTOR], 1 + 3, id="a factor"),
        pytest.param(
            ["(Add {} {})".format(*BOTH), *map("(Relu {})".format, BOTH)],
            [FACTOR],
            3 + 3 + 1 + 2 + 2,
            id="what several use is paid once",
        ),
        # -x·z + -y·z → -(x·z) + -(y·z) → -(x·z + y·z) → -((x + y)·z)
        pytest.param(
            ["(Add (Mul (Neg ?x) ?z) (Mul (Neg ?y) ?z))"],
            [NEG_OUT, NEG_OUT_OF_SUM, FACTOR],
            3 + 1 + 1,
            id="steps that only together save anything",
        ),
        pytest.param(["(MatMul ?x ?y)", "(MatMul ?x ?z)"], [], 20, id="two products"),
        pytest.param(["(MatMul ?x ?y)", "(MatMul ?x ?z)"], [MERGE], 12, id="two at once"),
        # It makes Neg(Relu(Neg(x))) equal to Neg(x), and so ends by itself.
        pytest.param(
            ["(Neg ?x)"],
            [making.make("(Neg ?x)", "(Neg (Relu (Neg ?x)))")],
            1,
            id="a rule that applies to what it makes",
        ),
    ],
)
def test_an_optimum_by_hand_is_proved_and_our_search_finds_it(texts, rules, cost_ms):
    graph = graph_of(*texts)
    result = bound(graph, rules, Costs())
    assert result.is_proved and result.bound_ms == pytest.approx(cost_ms)
    assert search(Engine(rules, Costs()).start(graph), "regions").best.cost_ms == cost_ms


def test_a_saturation_that_is_given_up_proves_nothing():
    endless = making.make("(Add ?x ?y)", "(Neg (Add (Neg ?x) (Neg ?y)))")
    graph = graph_of("(Add ?x (Add ?y ?z))")
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
    graph = graph_of("(Neg (Neg (Relu ?x)))", "(Neg (Neg ?x))")
    for rules, is_equal in (((), False), ((making.make("(Relu ?x)", "?x"),), True)):
        saturation = Saturation(graph, rules)
        saturation.grow(100, time.monotonic() + 10)
        first, second = (saturation.view.names[ref] for ref in graph.outputs)
        assert (first == second) is is_equal
