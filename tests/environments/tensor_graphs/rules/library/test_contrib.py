"""Rules for operators that onnxruntime alone has make what it runs, on request."""

from __future__ import annotations

import collections

import numpy as np
import onnx
import pytest

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.execution.support import is_supported
from environments.tensor_graphs.graph.nodes import OPAQUE, TensorType
from environments.tensor_graphs.operators.contrib import DOMAIN
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules import files, library
from environments.tensor_graphs.search import Budget, search
from tests.environments.tensor_graphs.onnx_io.running import operators, parsed, random_inputs, run

ATTENTION = """g (float[N,6,8] x, float[N,1,1,6] m, float[8,24] w, float[24] b)
    => (float[N,6,8] y)
    <int64[3] thirds = {8,8,8}, int64[4] apart = {0,6,2,4}, int64[3] joined = {0,6,8},
     float c = {2}> {
        p = MatMul(x, w)  s = Add(p, b)  q, k, v = Split <axis = 2> (s, thirds)
        qr = Reshape(q, apart)  kr = Reshape(k, apart)  vr = Reshape(v, apart)
        qt = Transpose <perm = [0,2,1,3]> (qr)  kt = Transpose <perm = [0,2,3,1]> (kr)
        vt = Transpose <perm = [0,2,1,3]> (vr)
        a = MatMul(qt, kt)  d = Div(a, c)  f = Add(d, m)  h = Softmax <axis = 3> (f)
        o = MatMul(h, vt)  t = Transpose <perm = [0,2,1,3]> (o)  y = Reshape(t, joined) }"""
SUM = """g (float[2,6,8] x, float[2,6,8] r, float[8] g, float[8] b)
    => (float[2,6,8] y, float[2,6,8] s)
    { s = Add(x, r)  n = LayerNormalization <axis = -1, epsilon = 1e-3> (s, g, b)  y = Relu(n) }"""
GELU = """g (float[2,6,8] x, float[8] b) => (float[2,6,8] y)
    <float third = {3}, float a = {0.044715}, float c = {0.7978846}, float one = {1},
     float half = {0.5}> {
        s = Add(x, b)  p = Pow(s, third)  q = Mul(p, a)  r = Add(s, q)  t = Mul(r, c)
        u = Tanh(t)  v = Add(u, one)  h = Mul(s, half)  y = Mul(h, v) }"""


def rewritten(model):
    """The graph that a short search finds with the rules, by a formula."""
    rules = files.load(contrib=True)
    state = Engine(rules, AnalyticObjective(), is_supported).start(onnx_io.read(model))
    return search(state, "regions", Budget(60.0, 300)).best.graph


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (ATTENTION, {"Attention": 1, "Expand": 1}),
        (SUM, {"SkipLayerNormalizationAndSum": 1, "Relu": 1}),
        (GELU, {"FastGelu": 1}),
    ],
    ids=["attention", "sum", "gelu"],
)
def test_what_is_made_runs_and_is_read_back(text, expected):
    """The batch of the first one is open; the file says that it needs onnxruntime's domain."""
    model = parsed(text)
    graph = rewritten(model)
    counts = collections.Counter(operators(graph))
    assert {op: counts[op] for op in (*expected, "Softmax", "Tanh")} == {
        **expected,
        "Softmax": 0,
        "Tanh": 0,
    }
    written = onnx_io.write(graph)
    assert [opset.version for opset in written.opset_import if opset.domain == DOMAIN] == [1]
    inputs = random_inputs(model)
    for before, after in zip(run(model, inputs), run(written, inputs), strict=True):
        np.testing.assert_allclose(after, before, atol=1e-5)
    again = onnx_io.read(written)
    assert OPAQUE not in {node.op for node in again.nodes.values()}
    assert onnx_io.write(again) == written


def test_they_are_used_on_request_alone():
    usual, all_of_them = files.load(), files.load(contrib=True)
    assert all_of_them[: len(usual)] == usual
    names = {rule.name for rule in library.rules_of(library.CONTRIB)}
    assert {rule.name for rule in all_of_them[len(usual) :]} == names


def test_types_that_onnxruntime_lacks_are_left_alone():
    for dtype, runs in (("float32", True), ("float16", False), ("int32", False)):
        types = [TensorType(dtype, (2, 3)), TensorType(dtype, (3,))]
        assert is_supported("BiasGelu", types, 17) is runs
    for dtype, op in (("float", "QuickGelu"), ("float16", "Sigmoid")):
        silu = f"g ({dtype}[2,3] x) => ({dtype}[2,3] y) {{ s = Sigmoid(x) y = Mul(x, s) }}"
        assert op in {node.op for node in rewritten(parsed(silu)).nodes.values()}


def test_what_has_no_canonical_form_stays_as_it_is():
    """The canonical form has no mask of keys. A scale of 0 means the usual one."""
    text = """g (float[1,4,8] x, int32[1] n) => (float[1,4,8] y, float[1,4,8] z) {
        y = com.microsoft.MultiHeadAttention <num_heads = 2> (x, x, x, , n)
        z = com.microsoft.MultiHeadAttention <num_heads = 2> (x, x, x) }"""
    model = onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["" : 17, "{DOMAIN}" : 1]> {text}'
    )
    nodes = [node for node in onnx_io.read(model).nodes.values() if node.op != "Input"]
    assert [node.op for node in nodes] == [OPAQUE, "MultiHeadAttention"]
    assert nodes[1].attribute("scale") == 0.5
