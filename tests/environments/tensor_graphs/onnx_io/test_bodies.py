"""Bodies of If, Loop and Scan are part of the graph, and are written back where they were."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.errors import UserError
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Ref
from environments.tensor_graphs.onnx_io import read, write
from environments.tensor_graphs.onnx_io.bodies import body_of, control_of, has_bodies
from environments.tensor_graphs.operators import building
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.search import Budget, search
from tests.environments.tensor_graphs.onnx_io.running import (
    equal,
    only,
    parsed,
    random_inputs,
    run,
    with_weights,
)
from tests.environments.tensor_graphs.random_graphs import random_graph

X = np.array([1, -2], np.float32)

BRANCHES = """
g (bool yes, float[2] x) => (float[2] y) {
    a = Relu(x)
    c = Identity(a)
    y = If (yes) <
        then_branch = t () => (float[2] u) { u = Add(a, c) },
        else_branch = e () => (float[2] v) { b = Neg(c) v = Mul(b, x) }
    >
}
"""

GROWING = """
g (int64 n, float[1] x) => (float[m] y) {
    go = Constant <value = bool {1}> ()
    y = Loop(n, go, x) <body = b (int64 i, bool c, float[1] s) => (bool d, float[k] t)
        { d = Identity(c) r = Relu(s) t = Concat <axis = 0> (r, x) }>
}
"""

NESTED = """
g (int64 n, float[2] x, float[2] z) => (float[2] y) {
    go = Constant <value = bool {1}> ()
    w = Tanh(x)
    y = Loop(n, go, x) <body = b (int64 i, bool c, float[2] s) => (bool d, float[2] t) {
        d = Identity(c)
        two = Constant <value = int64 {2}> ()
        rest = Mod(i, two)
        odd = Cast <to = 9> (rest)
        h = Neg(w)
        t = If(odd) <
            then_branch = u () => (float[2] p) { p = Add(s, h) },
            else_branch = v () => (float[2] q) { r = Mul(s, z) q = Sub(r, w) }
        >
    }>
}
"""


def controls(graph: Graph) -> list[int]:
    return [number for number in graph.order() if has_bodies(graph.nodes[number])]


def operators(nodes: Iterable[onnx.NodeProto]) -> collections.Counter[str]:
    """How often each operator occurs, inside bodies too."""
    counts: collections.Counter[str] = collections.Counter()
    for node in nodes:
        counts[node.op_type] += 1
        for attribute in node.attribute:
            counts += operators(attribute.g.node)
    return counts


def checked(graph: Graph) -> onnx.ModelProto:
    """Write a graph; the model is valid, and is the same when it is read and written again."""
    written = write(graph)
    onnx.checker.check_model(written, full_check=True)
    again = read(written)
    assert read(write(again)) == again
    return written


def checked_round_trip(model: onnx.ModelProto | str, inputs: dict[str, Any]):
    """Read a model and write it; return the graph, what was written, and the first output."""
    model = parsed(model) if isinstance(model, str) else model
    graph = read(model)
    written = checked(graph)
    assert equal(run(model, inputs), outputs := run(written, inputs))
    return graph, written, outputs[0].tolist()


def assert_equal_branches(
    model: onnx.ModelProto, written: onnx.ModelProto, inputs: dict[str, Any]
) -> None:
    """Both models compute the same, whichever branch their If takes."""
    for yes in (False, True):
        branch_inputs = {**inputs, "yes": np.array(yes)}
        assert equal(run(model, branch_inputs), run(written, branch_inputs))


@pytest.mark.parametrize("yes", [False, True])
def test_both_branches(yes):
    graph, _, y = checked_round_trip(BRANCHES, {"yes": np.array(yes), "x": X})
    # By hand: Relu(x) = [1, 0], doubled; -Relu(x) * x = [-1, 0].
    assert y == ([2, 0] if yes else [-1, 0])
    (number,) = controls(graph)
    then, otherwise = control_of(graph.nodes[number]).bodies
    # a and c are one value, because c is an Identity; the branches see it by both names.
    relu = Ref(next(n for n in graph.nodes if graph.nodes[n].op == "Relu"))
    assert [graph.nodes[n].attribute("name") for n in graph.inputs] == ["yes", "x"]
    assert then.captured == (relu, relu)
    assert otherwise.captured == (relu, Ref(graph.inputs[1]))
    ends = (*then.outputs, *otherwise.outputs)
    assert [graph.nodes[ref.node].op for ref in ends] == ["Add", "Mul"]
    # A match cannot reach from a branch to what is around it, since an Input is between them.
    owners = {body_of(node) for node in graph.nodes.values() if node.op == INPUT}
    assert len(owners) == 3 and "" in owners


def test_what_a_body_captures_can_be_replaced():
    model = parsed(BRANCHES)
    graph = read(model)
    (x,) = (Ref(n) for n in graph.inputs if graph.nodes[n].attribute("name") == "x")
    relu = next(n for n in graph.nodes if graph.nodes[n].op == "Relu")
    edit = graph.edit()
    (clip,) = building.add(edit, "Clip", x, min=0.0)
    edit.replace({Ref(relu): clip})
    written = checked(edit.finish()[0])
    assert operators(written.graph.node)["Relu"] == 0
    assert_equal_branches(model, written, {"x": X})


def test_a_state_that_grows():
    """The file gives the state's size in the first iteration; no rule may rely on it."""
    inputs = {"n": np.array(3), "x": np.array([-1.5], np.float32)}
    graph, _, y = checked_round_trip(GROWING, inputs)
    assert y == [0, 0, 0, -1.5]
    (size,) = only(graph, "Relu").types[0].shape
    assert isinstance(size, str)


@pytest.mark.parametrize("count", [0, 1, 4])
def test_bodies_in_bodies(count):
    inputs = {"n": np.array(count), "x": X, "z": np.array([0.5, 3], np.float32)}
    graph, written, _ = checked_round_trip(NESTED, inputs)
    assert len(controls(graph)) == 2
    opaque = [node.attribute("operator") for node in graph.nodes.values() if node.op == "Opaque"]
    assert sorted(opaque) == ["If", "Loop", "Mod"]
    states = [
        node.types[0]
        for node in graph.nodes.values()
        if node.op == INPUT and not node.is_model_input and node.attribute("place") == 2
    ]
    assert ("float32", (2,)) in states  # It keeps its size.
    (loop,) = (node for node in written.graph.node if node.op_type == "Loop")
    assert [inner.op_type for inner in loop.attribute[0].g.node].count("If") == 1


def test_a_branch_that_is_always_taken_takes_the_place_of_the_if():
    """Exporters ask whether a size is 1, which may be known."""
    text = """g (float[N,1] x) => (float[N] y) <int64 one = {1}> {
        sizes = Shape(x) size = Gather(sizes, one) yes = Equal(size, one)
        y = If(yes) <
            then_branch = t () => (float[M] u)
                { axes = Constant <value = int64[1] {1}> () u = Squeeze(x, axes) },
            else_branch = e () => (float[N,1] v) { v = Identity(x) }
        >
    }"""
    _, written, _ = checked_round_trip(text, {"x": np.float32([[1], [2], [3]])})
    assert [node.op_type for node in written.graph.node] == ["Reshape"]


SCANNED = """
g (float[2] start, float[5,3,2] xs) => (float[2] end, float[5,2,3] ys) {
    end, ys = Scan <num_scan_inputs = 1, scan_output_axes = [0], body = b
        (float[2] s, float[3,2] x) => (float[2] t, float[2,3] y)
        { m = ReduceMax <axes = [0], keepdims = 0> (x) t = Add(s, m) y = Transpose(x) }>
        (start, xs)
}
"""
# What a body takes in, captures, or holds as a constant is returned through an Identity.
PASSED_ON = """
g (int64 n, float[2] x) => (float[2] a, float[2] b, float[2] c) {
    go = Constant <value = bool {1}> ()
    a, b, c = Loop(n, go, x, x, x) <body = l
        (int64 i, bool e, float[2] p, float[2] q, float[2] r)
        => (bool f, float[2] s, float[2] t, float[2] u) {
        f = Identity(e) s = Identity(p) t = Identity(x)
        u = Constant <value = float[2] {3.0, 4.0}> ()
    }>
}
"""


def test_what_bodies_return():
    images = np.arange(30, dtype=np.float32).reshape(5, 3, 2)
    scanned, _, _ = checked_round_trip(SCANNED, {"start": X, "xs": images})
    passed_on, _, _ = checked_round_trip(PASSED_ON, {"n": np.array(2), "x": X})
    assert only(scanned, "Transpose")
    assert "Constant" in {node.op for node in passed_on.nodes.values()}


@pytest.mark.parametrize(("size", "around", "inside"), [(2, 0, 2), (64, 1, 0)])
def test_large_weights_of_both_branches_are_written_once(size, around, inside):
    model = with_weights(
        f"""g (bool yes, float[2,{size}] x, float[{size},{size}] w) => (float[2,{size}] y) {{
            y = If (yes) <
                then_branch = t () => (float[2,{size}] u) {{ u = MatMul(x, w) }},
                else_branch = e () => (float[2,{size}] v) {{ a = Neg(x) v = MatMul(a, w) }}
            >
        }}""",
        w=np.random.default_rng(0).normal(size=(size, size)).astype(np.float32),
    )
    inputs = {"yes": np.array(True), "x": np.ones((2, size), np.float32)}
    _, written, _ = checked_round_trip(model, inputs)
    assert len(written.graph.initializer) == around
    branches = [attribute.g for attribute in written.graph.node[-1].attribute]
    assert sum(len(branch.initializer) for branch in branches) == inside


def test_a_body_that_captures_what_is_no_tensor_stays_as_it_is():
    model = parsed(
        """g (bool yes, float[2] x) => (float[k] y) {
            s = SequenceConstruct(x, x)
            y = If (yes) <
                then_branch = t () => (float[k] u) { u = ConcatFromSequence <axis = 0> (s) },
                else_branch = e () => (float[k] v) { v = Neg(x) }
            >
        }"""
    )
    graph = read(model)
    assert controls(graph) == []
    assert_equal_branches(model, write(graph), {"x": X})


def test_values_of_two_branches_cannot_be_joined():
    graph = read(parsed(BRANCHES))
    (number,) = controls(graph)
    then, otherwise = (body.outputs[0] for body in control_of(graph.nodes[number]).bodies)
    edit = graph.edit()
    (joined,) = building.add(edit, "Max", then, otherwise)
    edit.set_outputs([joined], ["y"])
    with pytest.raises(UserError, match="joined values of different graphs"):
        write(edit.finish()[0])


def test_rules_rewrite_bodies():
    model = parsed(
        """g (bool yes, float[2,3] x) => (float[2,3] y) {
            y = If (yes) <
                then_branch = t () => (float[2,3] u)
                    { a = Transpose(x) b = Transpose(a) c = Relu(b) u = Relu(c) },
                else_branch = e () => (float[2,3] v) { d = Relu(x) v = Relu(d) }
            >
        }"""
    )
    start = Engine(rule_files.load(), AnalyticObjective()).start(read(model))
    written = checked(search(start, "greedy", Budget(expansions=60)).best.graph)
    # Relu(Transpose(Transpose(x))) is Relu(x), and Relu(Relu(x)) is one Relu, in both branches.
    assert operators(written.graph.node) == {"If": 1, "Relu": 2}
    assert_equal_branches(model, written, {"x": np.array([[1, -2, 3], [-4, 5, 0]], np.float32)})


def branch(alone: onnx.GraphProto, name: str) -> onnx.GraphProto:
    """A graph that captures the inputs of another one, and returns what that returns."""
    graph = onnx.GraphProto()
    graph.CopyFrom(alone)
    del graph.input[:]
    for output in graph.output:
        inner, output.name = output.name, f"{output.name}_{name}"
        graph.node.append(onnx.helper.make_node("Identity", [inner], [output.name]))
    return graph


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6))
def test_a_random_graph_in_both_branches_computes_what_it_does_alone(seed):
    alone = write(random_graph(seed))
    inputs = random_inputs(alone, seed=seed)
    model = onnx.ModelProto()
    model.CopyFrom(alone)
    for field in ("node", "initializer", "value_info"):
        model.graph.ClearField(field)
    model.graph.input.append(onnx.helper.make_tensor_value_info("yes", 9, []))
    names = [output.name for output in alone.graph.output]
    graphs = {name: branch(alone.graph, name) for name in ("then_branch", "else_branch")}
    model.graph.node.append(onnx.helper.make_node("If", ["yes"], names, **graphs))
    graph = read(model)
    assert len(controls(graph)) == 1
    written = checked(graph)
    for yes in (False, True):
        assert equal(run(alone, inputs), run(written, {**inputs, "yes": np.array(yes)}))
