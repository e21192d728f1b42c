"""Nodes are made int8 where that is faster, as far as the error allows."""

from __future__ import annotations

import collections

import numpy as np
import onnx
import pytest

from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.selection import quantization
from environments.tensor_graphs.selection.quantization import Quantizer, Samples
from tests.environments.tensor_graphs.selection.fakes import bench_of, compared
from tests.environments.tensor_graphs.small_models import adapter, write


def test_errors_are_those_of_all_samples():
    """Of [3, 4] and [0, 0], 5 long, [0, 1] is missing; the larger element stays so in all rows."""
    expected = [{"y": np.array([[3.0, 4.0]])}, {"y": np.array([[0.0, 0.0]])}]
    outputs = [{"y": np.array([[3.0, 3.5]])}, {"y": np.array([[0.5, 0.0]])}]
    judgement = Samples([{}, {}], expected).judge(outputs)
    assert judgement.error == pytest.approx(np.sqrt(0.5) / 5) and judgement.agreement == 1
    turned = Samples([{}], expected[:1]).judge([{"y": np.array([[4.0, 3.0]])}])
    assert turned.agreement == 0
    assert Samples([{}], expected[:1]).judge([{"y": np.array([[np.nan, 4.0]])}]).error == np.inf


def of_int8(_, path, **__):
    """Each operator of int8 saves 5%."""
    counts = collections.Counter(node.op_type for node in onnx.load(path).graph.node)
    ratio = 0.95 ** (counts["MatMulInteger"] + counts["QuantizeLinear"])
    return compared(ratio, ratio - 0.01, ratio + 0.01)


@pytest.fixture
def quantizer_of(tmp_path, monkeypatch):
    """Makes a quantizer of six products, with an error that it may cause."""
    monkeypatch.setattr(quantization, "Bench", bench_of(of_int8))
    model, on = write(tmp_path / "m.onnx", adapter(size=64, rank=32)), backend()
    inputs = [random_inputs(onnx.load(model), seed=seed) for seed in range(2)]
    program = on.open(model)
    samples = Samples(inputs, [program.run(arrays) for arrays in inputs])
    return lambda max_error: Quantizer(model, samples, on, tmp_path, max_error)


@pytest.mark.parametrize(
    ("kind", "op"), [("dynamic", "MatMulInteger"), ("static", "QuantizeLinear")]
)
def test_as_many_nodes_as_the_error_allows(quantizer_of, kind, op):
    generous = quantizer_of(0.5).best(kind, 60.0, 0.1)
    assert len(generous.nodes) == 6 and 0 < generous.judgement.error < 0.1
    assert op in {node.op_type for node in onnx.load(generous.path).graph.node}
    limit = generous.judgement.error * 0.75
    strict = quantizer_of(limit)
    fewer = strict.best(kind, 60.0, 0.1)
    assert 0 < len(fewer.nodes) < 6 and fewer.judgement.error <= limit
    assert [len(attempt.nodes) for attempt in strict.plain] == [6]
    assert quantizer_of(1e-7).best(kind, 60.0, 0.1) is None


def test_weights_that_are_computed_in_a_file_of_an_old_opset(tmp_path):
    """Opset 11 rounds a tensor with one scale; from 13 on each channel has its own."""
    text = """g (float[1,4,8,8] x) => (float[1,16,8,8] y) <float s = {0.01}>
        { w = Cast <to = 1> (q) v = Mul(w, s) y = Conv(x, v) }"""
    model = onnx.parser.parse_model(f'<ir_version: 6, opset_import: ["" : 11]> {text}')
    weight = np.random.default_rng(0).integers(-127, 128, (16, 4, 1, 1), np.int8)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weight, "q"))
    path, on, x = write(tmp_path / "m.onnx", model), backend(), random_inputs(model)
    before = quantization.prepared(path)
    (name,) = [node.name for node in before.graph.node]
    after = quantization.quantised(before, "static", [name], [x])
    assert (16,) in {tuple(scales.dims) for scales in after.graph.initializer}
    expected, rounded = on.open(path).run(x)["y"], on.open(after).run(x)["y"]
    assert 0 < np.linalg.norm(rounded - expected) < 0.02 * np.linalg.norm(expected)
