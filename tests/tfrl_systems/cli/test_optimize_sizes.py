"""Models that leave sizes open: one set of numbers for all, and slower at none of them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from environments.tensor_graphs.execution import measuring
from environments.tensor_graphs.selection import leaving_out, selection
from tests.environments.tensor_graphs.selection.fakes import compared
from tests.environments.tensor_graphs.small_models import adapter, model_of, relu, write

QUICK = ("--objective", "analytic", "--expansions", "300", "--json")


def bottlenecks(rows: int | str = "p2o.DynamicDimension.0") -> onnx.ModelProto:
    """x·A·B, with Relus, four times; A is [64, 2] and B is [2, 64].

    A product with A·B starts once, not twice, which is faster for a single row. But it takes 16
    times as many operations, so it is slower for many rows.
    """
    random = np.random.default_rng(0)
    nodes, weights, last = [], [], "x"
    for layer in range(4):
        for name, shape in (("a", (64, 2)), ("b", (2, 64))):
            array = random.normal(size=shape).astype(np.float32) / 8
            weights.append(numpy_helper.from_array(array, f"{name}{layer}"))
        nodes += [
            helper.make_node("MatMul", [last, f"a{layer}"], [f"narrow{layer}"]),
            helper.make_node("MatMul", [f"narrow{layer}", f"b{layer}"], [f"wide{layer}"]),
            helper.make_node("Relu", [f"wide{layer}"], [f"y{layer}"]),
        ]
        last = f"y{layer}"
    return model_of(nodes, weights, {"x": [rows, 64]}, {last: [rows, 64]})


def mirrored() -> onnx.ModelProto:
    """Padding by reflection does not run where the width is below 4; a bottleneck follows."""
    model = adapter(size=8, rank=4, batch="batch")
    pads = numpy_helper.from_array(np.array([0, 3, 0, 3], np.int64), "pads")
    nodes = [
        helper.make_node("Pad", ["image", "pads"], ["padded"], mode="reflect"),
        helper.make_node("ReduceMean", ["padded"], ["mean"], axes=[1]),
        helper.make_node("Add", ["mean", "bias"], ["x"]),
        *model.graph.node,
    ]
    bias = numpy_helper.from_array(np.zeros(8, np.float32), "bias")
    weights = [*model.graph.initializer, pads, bias]
    return model_of(nodes, weights, {"image": ["batch", "?"]}, {"y1": ["batch", 8]})


@pytest.fixture
def optimized(tmp_path, tfrl):
    """Optimises a model; returns what ran, and the two files."""

    def run(model, *options):
        path, out = write(tmp_path / "m.onnx", model), tmp_path / "fast.onnx"
        return tfrl("optimize", path, "-o", out, *QUICK, *options), path, out

    return run


def num_products(path):
    return [node.op_type for node in onnx.load(path).graph.node if node.op_type != "Relu"]


def test_what_helps_at_one_row_hurts_at_many(optimized):
    """The search uses the size that is given."""
    ran, _, out = optimized(
        bottlenecks(), "--dimension", "p2o.DynamicDimension.0=1", "--no-measure"
    )
    assert ran.json["gain"] and len(num_products(out)) == 4
    assert ran.json["sizes"] == [{"p2o.DynamicDimension.0": 1}]
    ran, path, out = optimized(
        bottlenecks(), "--dimension", "p2o.DynamicDimension.0=4096", "--no-measure"
    )
    assert not ran.json["gain"] and out.read_bytes() == path.read_bytes()


class BottleneckBench:
    """Stands in for `Bench`, with what it measured for `bottlenecks` on a machine without load."""

    def __init__(self, first, inputs, backend, program=None):
        self.num_rows = len(inputs["x"])

    def at(self, inputs):
        return BottleneckBench(None, inputs, None)

    def compare(self, path, *, other_backend=None, **_):
        if other_backend is not None:
            return compared(1.0, 0.99, 1.01)
        return compared(0.86, 0.83, 0.87) if self.num_rows == 1 else compared(1.9, 1.87, 1.93)


def test_a_model_that_is_slower_at_one_of_the_sizes_is_not_written(optimized, monkeypatch):
    for module in (selection, leaving_out):
        monkeypatch.setattr(module, "Bench", BottleneckBench)
    ran, *_ = optimized(bottlenecks(), "--dimension", "p2o.DynamicDimension.0=1")
    assert ran.json["gain"] is True
    ran, path, out = optimized(bottlenecks(), "--dimension", "p2o.DynamicDimension.0=1,4096")
    assert ran.status == 0, ran.err
    assert ran.json["sizes"] == [{"p2o.DynamicDimension.0": size} for size in (1, 4096)]
    assert ran.json["gain"] is False and ran.json["measured"] == []
    assert "at p2o.DynamicDimension.0=4096" in ran.json["reason"]
    assert out.read_bytes() == path.read_bytes()


def test_all_is_measured_at_the_sizes_that_are_reported(optimized, monkeypatch):
    """Costs once were those of the given sizes, and measurements those of size 1."""
    shapes = []

    class Bench(measuring.Bench):
        def compare(self, *models, **how):
            shapes.append(self._inputs["x"].shape)
            return super().compare(*models, **how)

    monkeypatch.setattr(selection, "Bench", Bench)
    ran, _, out = optimized(
        adapter(batch="p2o.DynamicDimension.0"),
        *("--dimension", "x[0]=64,32", "--measure-seconds", "0.5"),
    )
    assert ran.json["gain"], ran.json["reason"]
    assert {(64, 192), (32, 192)} == set(shapes)
    assert [row["sizes"] for row in ran.json["measured"]] == ran.json["sizes"]
    assert ran.json["sizes"] == [{"p2o.DynamicDimension.0": size} for size in (64, 32)]
    for row in ran.json["measured"]:
        assert row["interval"][0] <= row["ratio"] <= row["interval"][1]
        assert row["ratio"] <= max(row["same_interval"][1], 2 - row["same_interval"][0])
    assert ran.json["measured"][0]["ratio"] == ran.json["measured_ratio"]
    assert onnx.load(out).graph.input[0].type.tensor_type.shape.dim[0].dim_param == (
        "p2o.DynamicDimension.0"
    )


def test_sizes_are_found_by_trying_and_said(optimized):
    ran, *_ = optimized(mirrored(), "--no-measure")
    assert ran.json["gain"]
    assert ran.json["sizes"] == [
        {"batch": 1, "?": 128},
        {"batch": 1, "?": 64},
        {"batch": 2, "?": 256},
    ]
    assert ran.json["sizes_chosen"] == ["batch", "?"]
    assert "--dimension batch=1 --dimension '?=128'" in ran.err
    ran, *_ = optimized(mirrored(), "--no-measure", "--dimension", "?=2")
    assert ran.status == 1 and "?=2" in ran.err and len(ran.err.splitlines()) == 1


def test_a_negative_size_is_an_open_one(optimized):
    model = adapter(batch=-1)
    ran, *_ = optimized(model, "--no-measure")
    assert ran.json["gain"] and ran.json["sizes"] == [{"x[0]": 1}, {"x[0]": 2}]
    ran, *_ = optimized(model, "--no-measure", "--dimension", "x[0]=3")
    assert ran.json["gain"] and ran.json["sizes"] == [{"x[0]": 3}]


def test_sizes_of_the_users_inputs(optimized, tmp_path):
    for rows in (5, 7):
        x = np.random.default_rng(rows).normal(size=(rows, 192)).astype(np.float32)
        np.savez(tmp_path / f"{rows}.npz", x=x)
    files = [word for rows in (5, 7) for word in ("--inputs", tmp_path / f"{rows}.npz")]
    ran, *_ = optimized(adapter(batch="n"), "--no-measure", *files)
    assert ran.json["gain"] and ran.json["sizes"] == [{"n": 5}, {"n": 7}]
    assert ran.err == ""


def test_what_cannot_be_run_is_copied_with_a_reason(optimized):
    """No random texts are drawn, and an image must not have two widths."""
    texts = relu()
    texts.graph.input.append(helper.make_tensor_value_info("words", TensorProto.STRING, ["n"]))
    shapes = numpy_helper.from_array(np.array([7, 11, 13], np.int64), "shape")
    reshape = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    odd = model_of(reshape, [shapes], {"x": ["n", "n", "h"]}, {"y": [7, 11, 13]})
    for model, reason in ((texts, "no random numbers"), (odd, "found none by trying")):
        ran, path, out = optimized(model)
        assert ran.status == 0 and ran.json["gain"] is False
        assert reason in ran.json["reason"] and "--inputs FILE.npz" in ran.json["reason"]
        assert out.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("text", ["n=", "n=0", "n=1,x", "=3", "n=1,,2", "n"])
def test_wrong_usage(text, optimized):
    ran, *_ = optimized(relu(), "--dimension", text)
    assert ran.status == 2 and "expected NAME=SIZE[,SIZE...]" in ran.err
