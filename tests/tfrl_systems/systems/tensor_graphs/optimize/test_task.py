"""What cannot be read or written is one line; models are fast at the sizes that are named.

They are slower at none of them.
"""

from __future__ import annotations

import json
import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from environments.tensor_graphs.execution.isolation import remote
from tests.environments.tensor_graphs.small_models import adapter, model_of, relu, write
from tests.tfrl_systems.systems.tensor_graphs.optimize.running import outputs
from tfrl_systems import experiments

QUICK = ("--objective", "analytic", "--expansions", "300")
UNMEASURED = (*QUICK, "--no-measure")
OPEN = "p2o.DynamicDimension.0"


def bottlenecks(rows: int | str = OPEN) -> onnx.ModelProto:
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


def num_products(path):
    return [node.op_type for node in onnx.load(path).graph.node if node.op_type != "Relu"]


def test_what_helps_at_one_row_hurts_at_many(optimized):
    """The search uses the size that is given."""
    ran, _, out = optimized(bottlenecks(), *UNMEASURED, "--dimension", f"{OPEN}=1")
    assert ran.json["gain"] and len(num_products(out)) == 4
    assert ran.json["sizes"] == [{OPEN: 1}]
    ran, path, out = optimized(bottlenecks(), *UNMEASURED, "--dimension", f"{OPEN}=4096")
    assert not ran.json["gain"] and out.read_bytes() == path.read_bytes()


def test_all_is_measured_at_the_sizes_that_are_reported(optimized):
    ran, _, out = optimized(
        adapter(batch=OPEN),
        *QUICK,
        *("--dimension", "x[0]=64,32", "--measure-seconds", "0.5"),
    )
    assert ran.json["gain"], ran.json["reason"]
    assert ran.json["sizes"] == [{OPEN: size} for size in (64, 32)]
    assert [row["sizes"] for row in ran.json["measured"]] == ran.json["sizes"]
    for row in ran.json["measured"]:
        assert row["interval"][0] <= row["ratio"] <= row["interval"][1]
        assert row["ratio"] <= max(row["same_interval"][1], 2 - row["same_interval"][0])
    assert ran.json["measured"][0]["ratio"] == ran.json["measured_ratio"]
    assert onnx.load(out).graph.input[0].type.tensor_type.shape.dim[0].dim_param == OPEN


def test_sizes_are_found_by_trying_and_said(optimized):
    ran, *_ = optimized(mirrored(), *UNMEASURED)
    assert ran.json["gain"]
    assert ran.json["sizes"] == [
        {"batch": 1, "?": 128},
        {"batch": 1, "?": 64},
        {"batch": 2, "?": 256},
    ]
    assert ran.json["sizes_chosen"] == ["batch", "?"]
    assert "--dimension batch=1 --dimension '?=128'" in ran.err
    ran, *_ = optimized(mirrored(), *UNMEASURED, "--dimension", "?=2")
    assert ran.status == 1 and "?=2" in ran.err and len(ran.err.splitlines()) == 1


def test_sizes_and_inputs_fit_the_model(optimized, tmp_path):
    model, file = adapter(batch="n"), tmp_path / "x.npz"
    x = np.random.default_rng(1).normal(size=(5, 192)).astype(np.float32)
    np.savez(file, x=x)
    ran, *_ = optimized(model, *UNMEASURED, "--inputs", file, "--dimension", "n=8")
    assert ran.status == 0
    np.savez(file, z=x)
    for options, words in (
        (("--inputs", file), "'x' is missing"),
        (("--dimension", "m=8"), "leave open; found n"),
    ):
        ran, *_ = optimized(model, *UNMEASURED, *options)
        assert ran.status == 1 and words in ran.err and len(ran.err.splitlines()) == 1


def test_what_cannot_be_run_is_copied_with_a_reason(optimized):
    """No random texts are drawn, and an image must not have two widths."""
    texts = relu()
    texts.graph.input.append(helper.make_tensor_value_info("words", TensorProto.STRING, ["n"]))
    shapes = numpy_helper.from_array(np.array([7, 11, 13], np.int64), "shape")
    reshape = [helper.make_node("Reshape", ["x", "shape"], ["y"])]
    odd = model_of(reshape, [shapes], {"x": ["n", "n", "h"]}, {"y": [7, 11, 13]})
    for model, reason in ((texts, "no random numbers"), (odd, "found none by trying")):
        ran, path, out = optimized(model, *QUICK)
        assert ran.status == 0 and ran.json["gain"] is False
        assert reason in ran.json["reason"] and "--inputs FILE.npz" in ran.json["reason"]
        assert out.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("text", ["n=", "n=0", "n=1,x", "=3", "n=1,,2", "n", "8"])
def test_wrong_usage(text, optimized):
    ran, *_ = optimized(relu(), *QUICK, "--dimension", text)
    assert ran.status == 2 and "expected NAME=SIZE[,SIZE...]" in ran.err


def flattened() -> onnx.ModelProto:
    """An adapter after Reshape(x, [Shape(x)[0], -1]), as exporters write a flattening."""
    model = adapter(size=8, rank=2, batch="batch")
    numbers = [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in CONSTANTS.items()]
    nodes = [
        helper.make_node("Shape", ["image"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node("Unsqueeze", ["rows", "first"], ["row"]),
        helper.make_node("Concat", ["row", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["image", "target"], ["x"]),
        *model.graph.node,
    ]
    weights = [*model.graph.initializer, *numbers]
    return model_of(nodes, weights, {"image": ["batch", 2, 4]}, {"y1": ["batch", 8]})


CONSTANTS = {"zero": 0, "first": [0], "rest": [-1]}


def run(path, rows):
    x = np.random.default_rng(0).normal(size=(rows, 2, 4)).astype(np.float32)
    return outputs(path, image=x)[0]


def test_frozen_sizes_are_fixed_ones(optimized):
    ran, path, out = optimized(flattened(), *UNMEASURED, "--freeze", "--dimension", "batch=3")
    fast = onnx.load(out)
    assert ran.json["gain"] and ran.json["sizes"] == [{"batch": 3}]
    assert [size.dim_value for size in fast.graph.input[0].type.tensor_type.shape.dim] == [3, 2, 4]
    assert {"Shape", "Gather", "Unsqueeze", "Concat"}.isdisjoint(
        node.op_type for node in fast.graph.node
    )
    np.testing.assert_allclose(run(out, 3), run(path, 3), atol=1e-5)
    with pytest.raises(Exception, match="Expected: 3"):
        run(out, 5)


def test_a_frozen_copy_has_fixed_sizes_too(optimized):
    model = relu()
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.shape.dim[0].dim_param = "n"
    options = ("--measure-seconds", "0.1", "--strict", "--freeze", "--dimension", "n=2")
    ran, _, out = optimized(model, *QUICK, *options)
    fields = {"measure_seconds": 0.1, "strict": True, "freeze": True, "dimensions": {"n": 2}}
    fields |= {"objective": "analytic", "expansions": 100, "reporter": experiments.Reporter()}
    in_memory = experiments.optimize(model, **fields)["optimized"]
    for copy in (onnx.load(out), in_memory):
        assert copy.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
        assert [node.op_type for node in copy.graph.node] == ["Relu"]
    assert ran.json["substitutions"] == []


def test_freezing_takes_one_size_for_each(optimized, tmp_path):
    ran, *_ = optimized(flattened(), *UNMEASURED, "--freeze", "--dimension", "batch=1,2")
    assert ran.status == 2 and "--freeze: expected one size" in ran.err
    assert "found batch=1,2" in ran.err
    files = [tmp_path / f"{rows}.npz" for rows in (1, 2)]
    for rows, file in enumerate(files, 1):
        np.savez(file, image=np.ones((rows, 2, 4), np.float32))
    words = [word for file in files for word in ("--inputs", file)]
    ran, *_ = optimized(flattened(), *UNMEASURED, "--freeze", *words)
    assert ran.status == 2
    assert "inputs of the same sizes, found batch=1 and batch=2" in ran.err


@pytest.mark.parametrize(
    "options, expected",
    [
        (("--method", "greedy", "--policy", "."), "expected --method regions or policy with it"),
        (("--method", "policy"), "expected --policy DIR with it, found none"),
    ],
)
def test_which_methods_take_a_policy(tmp_path, tfrl, options, expected):
    model = write(tmp_path / "m.onnx", adapter())
    ran = tfrl("optimize", model, "-o", tmp_path / "fast.onnx", *options)
    assert ran.status == 2 and expected in ran.err and len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("kind", ["no model", "missing", "missing weights"])
def test_bad_models_are_one_line_and_nothing_is_written(kind, tmp_path, tfrl):
    """Which files are no models, the tests of `onnx_io` try."""
    path = tmp_path / "m.onnx"
    if kind == "no model":
        path.write_text("this is no model")
    elif kind == "missing weights":
        onnx.save(adapter(), path, save_as_external_data=True, location="w", size_threshold=0)
        (tmp_path / "w").unlink()
    before = sorted(tmp_path.iterdir())
    ran = tfrl("optimize", path, "-o", tmp_path / "fast.onnx", *QUICK)
    assert ran.status == 1 and ran.out == ""
    assert len(ran.err.splitlines()) == 1 and ran.err.startswith("tfrl: ")
    assert sorted(tmp_path.iterdir()) == before


LIE = {"name": "lie", "source": ["(Relu ?x)"], "target": ["?x"], "conditions": []}


@pytest.mark.parametrize(
    "content",
    [
        [1, 2],
        {"rules": [{**LIE, "restrictions": [], "verified_by": "identity testing"}]},
    ],
    ids=["no rules", "a lie"],
)
def test_rule_files_that_lie(content, tmp_path, tfrl):
    rules = tmp_path / "rules.json"
    rules.write_text(json.dumps(content))
    model = write(tmp_path / "m.onnx", relu())
    ran = tfrl("optimize", model, "-o", tmp_path / "fast.onnx", "--rules", rules, *QUICK)
    assert ran.status == 1 and len(ran.err.splitlines()) == 1
    assert not (tmp_path / "fast.onnx").exists()


def test_places_that_cannot_be_written(tmp_path, tfrl):
    model = write(tmp_path / "m.onnx", relu())
    ran = tfrl("optimize", model, "-o", tmp_path / "none" / "fast.onnx", *QUICK)
    assert ran.status == 1 and "expected a directory" in ran.err
    before = model.read_bytes()
    for words in (("-o", model), ("-o", tmp_path / "fast.onnx", "--report", model)):
        ran = tfrl("optimize", model, *words, *QUICK)
        assert ran.status == 1 and "expected another file" in ran.err
    os.mkfifo(tmp_path / "pipe")
    ran = tfrl("optimize", model, "-o", tmp_path / "pipe", *QUICK)
    assert ran.status == 1 and "expected a file to write, found something else" in ran.err
    assert model.read_bytes() == before and len(list(tmp_path.iterdir())) == 2


def test_a_crash_of_onnxruntime_is_one_line(tfrl, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "isolated", lambda *names: remote.Isolated(remote.backend(*names)))
    text = """g (float[2,7] x) => (float[2,2] e, float[2,4] y) <int64[3] s = {2, 1, 4}>
        { e, m, f = Split <axis = -1> (x, s) y = Relu(f) }"""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 18]> {text}')
    model.graph.node[0].output[1] = ""
    onnx.save(model, tmp_path / "m.onnx")
    ran = tfrl("optimize", tmp_path / "m.onnx", "-o", tmp_path / "out.onnx")
    assert ran.status == 1 and not (tmp_path / "out.onnx").exists()
    (line,) = ran.err.splitlines()
    assert "onnxruntime was ended by SIG" in line and "m.onnx" in line


def test_an_objective_that_is_not_there_is_wrong_usage(optimized):
    ran, _, out = optimized(relu(), "--objective", "nope")
    assert ran.status == 2 and "found 'nope'" in ran.err and len(ran.err.splitlines()) == 1
    assert not out.exists()
