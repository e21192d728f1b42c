"""`tfrl optimize` is never wrong: where digits, integers, sizes or onnxruntime itself give way.

Each model has room for a rewrite that is right for usual numbers only, or for none.
"""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import onnx
import onnxruntime
import pytest

from environments.tensor_graphs.execution import differences, equivalence
from environments.tensor_graphs.execution.isolation import remote

QUICK = ("--objective", "analytic", "--expansions", "60", "--measure-seconds", "0.05")


@pytest.fixture
def optimize(tfrl, tmp_path):
    """Optimises a model; returns what the command said, and the rewritten file."""

    def run(text, *arguments, opset=17):
        model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}]> {text}')
        onnx.save(model, tmp_path / "m.onnx")
        out = tmp_path / "out.onnx"
        return tfrl("optimize", tmp_path / "m.onnx", "-o", out, "--json", *arguments), out

    return run


def outputs(path, level="ORT_ENABLE_ALL", **inputs):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    return onnxruntime.InferenceSession(path, options).run(None, inputs)


SCALED = """g (float[n,2] x) => (float[n,2] y)
    <float[2] far = {1.7e9, 5e6}, float[2] s = {0.001, 0.1}, float[2,2] w = {1, 2, 3, -1}>
    { c = Sub(x, far) d = Mul(c, s) y = MatMul(d, w) }"""
NEAR = np.float32([[1.7e9 + 256, 5e6 + 3], [1.7e9 - 1024, 5e6]])


@pytest.mark.parametrize(
    "text",
    [
        SCALED,
        """g (float[n,2] x) => (float[n,2] y)
        <float[2] far = {-1.7e9, -5e6}, float[2] s = {1e3, 10}, float[2,2] w = {1, 2, 3, -1}>
        { c = Add(far, x) d = Div(c, s) y = MatMul(d, w) }""",
        """g (float[n,2] x) => (float[n,2] y)
        <float[2] far = {1.7e9, 5e6}, float[2] s = {0.001, 0.1}, float[2] b = {1, 2}>
        { c = Sub(x, far) d = Mul(c, s) y = Add(d, b) }""",
    ],
)
def test_digits_of_large_numbers_are_not_lost(optimize, tmp_path, text):
    """(x - far) * s and what follows; multiplied out, all digits of 1.7e9 * 0.001 are noise."""
    ran, out = optimize(text, *QUICK, "--dimension", "n=64")
    assert ran.status == 0, ran.err
    ((rewritten,), (expected,)) = (outputs(path, x=NEAR) for path in (out, tmp_path / "m.onnx"))
    np.testing.assert_allclose(rewritten, expected, rtol=1e-5)


@pytest.mark.parametrize(
    "nodes",
    [
        # |x·x| is x·x for small numbers only.
        "q = Mul(x, x) h = Abs(q) y = Mod(h, m)",
        # The product of both divisors, 1.8e19, is no int64.
        "d = Div(x, a) y = Div(d, b)",
    ],
)
def test_integers_that_wrap_around(optimize, tmp_path, nodes):
    text = f"""g (int64[n] x) => (int64[n] y)
        <int64 m = {{1000}}, int64 a = {{3037000500}}, int64 b = {{6074001001}}> {{ {nodes} }}"""
    ran, out = optimize(text, "--objective", "analytic", "--no-measure")
    assert ran.status == 0, ran.err
    x = np.int64([3, 4_000_000_007, -(2**63), 2**62 + 1])
    ((rewritten,), (expected,)) = (outputs(path, x=x) for path in (out, tmp_path / "m.onnx"))
    np.testing.assert_array_equal(rewritten, expected)


def test_two_sizes_of_one_name(optimize, tmp_path):
    """A file calls every first axis n; one of them may be 1 where the other is not."""
    text = """g (float[n,2] x, float[n,2] z) => (float[n,2] y) <float[2,2] w = {1, 2, 3, 4}>
        { s = Shape(x) e = Expand(z, s) a = Add(x, e) m = MatMul(z, w) y = Add(a, m) }"""
    ran, out = optimize(text, *QUICK)
    assert ran.status == 0, ran.err
    x = np.float32([[1, 2], [3, 4], [5, 6]])
    for z in (x, x[:1]):
        (rewritten,), (expected,) = (outputs(path, x=x, z=z) for path in (out, tmp_path / "m.onnx"))
        np.testing.assert_array_equal(rewritten, expected)


def test_a_model_that_runs_without_optimisations_only(optimize):
    """Relu and Clip of doubles; onnxruntime makes one of them that it cannot run."""
    text = """g (double[n,6] x) => (double[n,6] y)
        <double lo = {-1}, double hi = {0.1}, double one = {1}>
        { t = Relu(x) u = Clip(t, lo, hi) y = Mul(u, one) }"""
    ran, out = optimize(text, *QUICK, opset=14)
    assert ran.status == 0, ran.err
    x = np.linspace(-1, 1, 6)[np.newaxis]
    (rewritten,) = outputs(out, "ORT_DISABLE_ALL", x=x)
    np.testing.assert_array_equal(rewritten, np.clip(x, 0, 0.1))


def test_an_output_without_any_number_proves_nothing(optimize):
    text = """g (float[2] x) => (float[2] y) <float minus = {-1}>
        { a = Sqrt(minus) b = Relu(x) c = Relu(b) y = Mul(c, a) }"""
    ran, _ = optimize(text, *QUICK)
    assert ran.status == 0 and ran.json["gain"] is False
    assert "output 'y' has no finite number" in ran.json["reason"]


def test_a_crash_of_onnxruntime_is_one_line(optimize, tfrl, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "isolated", lambda name: remote.Isolated(remote.backend(name)))
    text = """g (float[2,7] x) => (float[2,2] e, float[2,4] y) <int64[3] s = {2, 1, 4}>
        { e, m, f = Split <axis = -1> (x, s) y = Relu(f) }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    model.graph.node[0].output[1] = ""
    onnx.save(model, tmp_path / "m.onnx")
    ran = tfrl("optimize", tmp_path / "m.onnx", "-o", tmp_path / "out.onnx")
    assert ran.status == 1 and not (tmp_path / "out.onnx").exists()
    (line,) = ran.err.splitlines()
    assert "onnxruntime was ended by SIG" in line and "m.onnx" in line


def test_an_objective_that_is_not_there_is_wrong_usage(optimize):
    ran, out = optimize(SCALED, "--objective", "nope")
    assert ran.status == 2 and "found 'nope'" in ran.err and len(ran.err.splitlines()) == 1
    assert not out.exists()


def test_no_time_is_no_lack_of_rules(optimize):
    ran, _ = optimize(SCALED, "--objective", "analytic", "--seconds", "1e-9", "--no-measure")
    assert ran.status == 0 and "no time to search" in ran.json["reason"]


def test_a_number_that_chooses_a_branch_is_one_that_the_file_knows(optimize):
    """The other branch runs at no size of the input."""
    text = """g (float[n,m] x, int64 rate) => (float[n,1] y)
        <int64 k = {16000}, float[3,1] w = {1, 2, 3}, float[2,1] v = {1, 2}> { c = Equal(rate, k)
        y = If (c) < then_branch = t () => (float[n,1] a)
            { p = MatMul(x, w) q = Relu(p) a = Relu(q) },
        else_branch = e () => (float[n,1] b) { b = MatMul(x, v) } > }"""
    ran, out = optimize(text, *QUICK)
    assert ran.status == 0, ran.err
    assert json.loads(ran.out)["sizes"][0]["m"] == 3
    x = np.ones((1, 3), np.float32)
    assert outputs(out, x=x, rate=np.array(16000))[0].tolist() == [[6]]


@pytest.mark.parametrize(
    ("nodes", "rows"),
    [
        # Only sizes of 1 come and go; onnxruntime computes no size where there are no elements.
        ("u = Unsqueeze(x, one)", (0, 1, 3, 2)),
        ("u = Flatten(x)", (0, 6)),
        ("u = Flatten<axis = 2>(x)", (0, 2)),
    ],
)
def test_what_only_moves_elements_does_so_with_none_of_them(optimize, nodes, rows):
    text = f"""g (float[n,m,2] x) => (y) <int64[1] one = {{1}}>
        {{ {nodes} a = Neg(u) b = Neg(a) y = Relu(b) }}"""
    ran, out = optimize(text, *QUICK, "--dimension", "n=4", "--dimension", "m=3")
    assert ran.status == 0 and ran.json["gain"], ran.err
    (rewritten,) = outputs(out, x=np.zeros((0, 3, 2), np.float32))
    assert rewritten.shape == rows


def test_one_rule_that_rounds_too_much_costs_no_others(optimize, monkeypatch):
    """Whatever lacks the product is refused, as if folding it had cost digits."""
    check = equivalence.check

    def refuse(first, path, *arguments, **keywords):
        comparison = check(first, path, *arguments, **keywords)
        if "Mul" in {node.op_type for node in onnx.load(path).graph.node}:
            return comparison
        wrong = differences.unlike(comparison.worst.output, "it is less exact")
        return dataclasses.replace(comparison, differences=(wrong,))

    monkeypatch.setattr(equivalence, "check", refuse)
    text = """g (float[n,2] x) => (y) <float[2,2] w = {1, 2, 3, 4}, float s = {3}>
        { p = MatMul(x, w) q = Mul(p, s) a = Neg(q) b = Neg(a) y = Relu(b) }"""
    ran, out = optimize(text, *QUICK, "--dimension", "n=4")
    assert ran.status == 0 and ran.json["gain"], ran.err
    operators = [node.op_type for node in onnx.load(out).graph.node]
    assert "Mul" in operators and "Neg" not in operators
