"""Costs by formula know what onnxruntime runs as one kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules import library
from environments.tensor_graphs.rules.library.recognition import fused_chains
from environments.tensor_graphs.search import search
from environments.tensor_graphs.search.fused_formula import RUN_MS, FusedFormula, num_runs
from tests.environments.tensor_graphs.costs.graphs import graph_cost, graph_of
from tests.environments.tensor_graphs.execution.models import parsed

HALF, ROOT = np.float32(0.5), np.float32(2**0.5)
ONES = np.ones(16, np.float32)
NUMBERS = {"one": np.float32(1), "half": HALF, "two": np.float32(2), "e": np.float32(1e-5)}
GELU = "a = Div(x, root) b = Erf(a) c = Add(b, one) m = Mul(x, c) y = Mul(m, half)"
NORM = "v = Pow({c}, two) w = ReduceMean<axes = [-1]>(v) s = Add(w, e) r = Sqrt(s) d = Div({c}, r)"
CHAINS = {
    "Gelu": [GELU, "a = Div(x, root) b = Erf(a) c = Add(b, one) m = Mul(x, half) y = Mul(m, c)"],
    "QuickGelu": ["s = Sigmoid(x) y = Mul(x, s)", "a = Mul(x, two) s = Sigmoid(a) y = Mul(x, s)"],
    "LayerNormalization": [
        "t = ReduceMean<axes = [-1]>(x) c = Sub(x, t) "
        f"{NORM.format(c='c')} g = Mul(d, w1) y = Add(g, w1)"
    ],
    "SimplifiedLayerNormalization": [
        f"{NORM.format(c='x')} y = Mul(d, w1)",
        f"{NORM.format(c='x').replace('Div(x, r)', 'Div(one, r)')} m = Mul(x, d) y = Mul(m, w1)",
    ],
}


def fused():
    return FusedFormula(AnalyticObjective(), fused_chains())


def graph(nodes):
    weights = {"root": ROOT, "w1": ONES, **NUMBERS}
    return graph_of(nodes, **{name: array for name, array in weights.items() if name in nodes})


@pytest.mark.parametrize(
    ("kernel", "nodes"), [(kernel, nodes) for kernel, chains in CHAINS.items() for nodes in chains]
)
def test_what_costs_as_one_operator_runs_as_one_in_onnxruntime(kernel, nodes):
    chain = graph(nodes)
    optimised, _ = backend().rewritten(onnx_io.write(chain))
    assert [node.op_type for node in optimised.graph.node] == [kernel]
    dearest = max(AnalyticObjective().node_cost_ms(chain, number) for number in chain.nodes)
    assert graph_cost(fused(), chain) == dearest


@pytest.mark.parametrize(
    "nodes",
    [
        GELU.replace("half", "two"),
        GELU.replace("Div(x, root)", "Mul(x, half)"),
        GELU.replace("y = Mul(m, half)", "n = Mul(m, half) y = Add(n, c)"),
    ],
)
def test_what_looks_alike_costs_what_it_is_made_of(nodes):
    """Another factor; another way to write it; a part that is used elsewhere too."""
    plain = graph(nodes)
    assert graph_cost(fused(), plain) == graph_cost(AnalyticObjective(), plain)


def test_a_step_changes_the_cost_of_the_whole_chain():
    """Costs of states, which ask about a few nodes alone, stay those of their graphs."""
    chain = graph(GELU.replace("y =", "n =") + " y = Mul(n, two)")
    objective = fused()
    start = Engine(library.all_rules(), objective).start(chain)
    assert start.matches
    for match in start.matches:
        after = start.apply(match)
        whole = graph_cost(fused(), after.graph)
        assert after.cost_ms == pytest.approx(whole, abs=1e-6)


@pytest.mark.parametrize(
    "norm", ["y = LayerNormalization<axis = -1>(x, w1, w1)", CHAINS["LayerNormalization"][0]]
)
def test_a_kernel_that_is_slower_than_its_parts_costs_more_than_these(norm):
    """The sum and the normalisation become one kernel; a Sum stays, and is cheaper."""
    norm = norm.replace("(x", "(total")
    costs_ms, kernels = {}, {}
    for op in ("Add", "Sum"):
        nodes = graph(f"a = Relu(x) total = Add(x, a) {norm}")
        if op == "Sum":
            start = Engine(library.all_rules(), fused()).start(nodes)
            matches = (match for match in start.matches if match.rule.startswith("sum_before"))
            nodes = start.apply(next(matches)).graph
        optimised, _ = backend().rewritten(onnx_io.write(nodes))
        kernels[op] = [node.op_type for node in optimised.graph.node]
        costs_ms[op] = graph_cost(fused(), nodes)
    assert kernels["Add"] == ["Relu", "SkipLayerNormalization"]
    assert kernels["Sum"] == ["Relu", "Sum", "LayerNormalization"]
    assert costs_ms["Sum"] < costs_ms["Add"]


def test_an_operator_may_cost_more_than_the_formula_says():
    """Three times as much here; a Relu as much as ever."""
    nodes = graph("a = Relu(x) y = Tanh(a)")
    relu_ms, tanh_ms = (
        AnalyticObjective().node_cost_ms(nodes, number)
        for number in nodes.order()
        if nodes.nodes[number].op in ("Relu", "Tanh")
    )
    slow = FusedFormula(AnalyticObjective(), fused_chains(), {"Tanh": 3.0})
    assert graph_cost(slow, nodes) == pytest.approx(relu_ms + 3 * tanh_ms)


@pytest.mark.parametrize(("channels", "num_rows"), [("x", 0), ("w", 63)])
def test_each_further_run_of_a_broadcast_costs_as_much(channels, num_rows):
    """A factor for each of 8 channels in 64 rows, and one of the same shape."""
    text = f"g (float[64,8] x, float[8] w) => (y) {{ y = Mul(x, {channels}) }}"
    plain = onnx_io.read(parsed(text))
    expected = graph_cost(AnalyticObjective(), plain) + num_rows * RUN_MS
    assert graph_cost(fused(), plain) == pytest.approx(expected)


@pytest.mark.parametrize("nodes", ["y = Mul(x, two)", "y = Div(one, x)", "y = Pow(x, third)"])
def test_a_number_beside_a_last_axis_of_1_gets_all_axes(nodes):
    """As many axes save a run for each of 40 · 50 elements, but for one."""
    numbers = "<float two = {2}, float[1] one = {1}, float third = {0.3}>"
    model = parsed(f"g (float[40,50,1] x) => (float[40,50,1] y) {numbers} {{ {nodes} }}")
    start = Engine(library.all_rules(), fused()).start(onnx_io.read(model))
    best = search(start, "greedy").best
    assert start.cost_ms - best.cost_ms == pytest.approx(1999 * RUN_MS)
    operator = best.graph.nodes[best.graph.outputs[0].node]
    assert [best.graph.type_of(ref).shape for ref in operator.inputs].count((1, 1, 1)) == 1


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        ((2, 3, 4), (2, 3, 4), 1),
        ((2, 3, 4), (1, 1), 1),
        ((2, 3, 4), (3, 4), 2),  # two rows that lie behind each other
        ((2, 3, 4, 5), (3, 1, 1), 6),  # a number for each channel of a batch of 2
        ((2, 3, 4), (2, 3, 1), 6),
        ((5, 1), (1, 7), 5),  # both are repeated
        ((2, 3, 1), (1, 1, 1), 1),  # a last axis of 1 says nothing
        ((2, 3, 1), (), 6),  # but where there is no other, it ends the run
        ((2, 3, 1), (3, 1), 2),  # another axis is there, which says more
        ((0, 3), (3,), 1),
    ],
)
def test_runs(first, second, count):
    assert num_runs(first, second) == num_runs(second, first) == count


@given(st.lists(st.integers(0, 3), max_size=4), st.integers(0, 4), st.sets(st.integers(0, 3)))
def test_whatever_is_broadcast_is_computed_in_whole_runs(shape, num_left_out, ones):
    """The other operand lacks the first axes, and has 1 in some of the others."""
    second = [1 if axis in ones else size for axis, size in enumerate(shape)][num_left_out:]
    count = num_runs(shape, second)
    assert count >= 1 and (0 in shape or math.prod(shape) % count == 0)
