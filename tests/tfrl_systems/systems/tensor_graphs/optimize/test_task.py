"""What cannot be read or written is one line; models are fast at the sizes that are named.

They are slower at none of them.
"""

from __future__ import annotations

import json
import os

import numpy as np
import onnx
import pytest

from environments.tensor_graphs.execution.isolation import remote
from tests.environments.tensor_graphs.execution.models import crashing
from tests.environments.tensor_graphs.small_models import adapter, relu, write, written
from tests.tfrl_systems.systems.tensor_graphs.optimize.running import assert_same, ops_of, outputs
from tfrl_systems import experiments
from tfrl_systems.systems.tensor_graphs.optimize import request

QUICK = ("--objective", "analytic", "--expansions", "300")
UNMEASURED = (*QUICK, "--no-measure")
OPEN = "p2o.DynamicDimension.0"


def bottlenecks(rows: int | str = OPEN) -> onnx.ModelProto:
    """x·A·B, with Relus, four times; A is [64, 2] and B is [2, 64].

    A product with A·B starts once, not twice, which is faster for a single row. But it takes 16
    times as many operations, so it is slower for many rows.
    """
    random = np.random.default_rng(0)
    weights = {
        f"{name}{layer}": random.normal(size=shape).astype(np.float32) / 8
        for layer in range(4)
        for name, shape in (("a", (64, 2)), ("b", (2, 64)))
    }
    nodes = [
        f"n{layer} = MatMul(x{layer}, a{layer}) w{layer} = MatMul(n{layer}, b{layer}) "
        f"x{layer + 1} = Relu(w{layer})"
        for layer in range(4)
    ]
    return written(" ".join(nodes), weights, {"x0": [rows, 64]}, {"x4": [rows, 64]})


def mirrored() -> onnx.ModelProto:
    """Padding by reflection does not run where the width is below 4; there is a double Relu."""
    nodes = """p = Pad <mode = "reflect"> (image, pads) m = ReduceMean <axes = [1]> (p)
        r = Relu(m) y = Relu(r)"""
    return written(nodes, {"pads": [0, 3, 0, 3]}, {"image": ["batch", "?"]}, {"y": ["batch", 1]})


def test_what_helps_at_one_row_hurts_at_many(optimized):
    """The search uses the size that is given."""
    ran, _, out = optimized(bottlenecks(), *UNMEASURED, "--dimension", f"{OPEN}=1")
    assert ran.json["gain"] and len([op for op in ops_of(out) if op != "Relu"]) == 4
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


def test_what_cannot_be_run_is_copied_with_a_reason(optimized):
    """No random texts are drawn, and an image must not have two widths."""
    texts = relu()
    texts.graph.input.append(onnx.helper.make_tensor_value_info("words", 8, ["n"]))
    shapes = {"x": ["n", "n", "h"]}, {"y": [7, 11, 13]}
    odd = written("y = Reshape(x, shape)", {"shape": [7, 11, 13]}, *shapes)
    for model, reason in ((texts, "no random numbers"), (odd, "found none by trying")):
        ran, path, out = optimized(model, *QUICK)
        assert ran.status == 0 and ran.json["gain"] is False
        assert reason in ran.json["reason"] and "--inputs FILE.npz" in ran.json["reason"]
        assert out.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("text", ["n=", "n=0", "n=1,x", "=3", "n=1,,2", "n"])
def test_wrong_sizes(text, optimized):
    ran, *_ = optimized(relu(), *QUICK, "--dimension", text)
    assert ran.status == 2 and "expected NAME=SIZE[,SIZE...]" in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--method", "greedy", "--policy", "."), "expected --method regions or policy with it"),
        (("--method", "policy"), "expected --policy DIR with it, found none"),
        (("--objective", "nope"), "found 'nope'"),
        (("--contrib", "--objective", "openvino"), "expected onnxruntime on the CPU"),
        (("--threads", "3"), "expected at most 2, the processors"),
        (("--quantize", "--max-error", "0.1"), "expected --inputs FILE.npz"),
        (("--quantize", "--inputs", "0.npz"), "expected --max-error E"),
        (("--quantize", "--inputs", "0.npz", "--max-error", "1"), "0 < E < 1, found 1.0"),
        (("--max-error", "0.1"), "expected --quantize with it"),
    ],
)
def test_wrong_usage_is_one_line(words, message, optimized, monkeypatch):
    monkeypatch.setattr(request, "num_processors", lambda: 2)
    ran, _, out = optimized(relu(), *words)
    assert ran.status == 2 and message in ran.err and len(ran.err.splitlines()) == 1
    assert not out.exists()


def flattened() -> onnx.ModelProto:
    """A double Relu after Reshape(x, [Shape(x)[0], -1]), as exporters write a flattening."""
    nodes = """shape = Shape(image) rows = Gather(shape, zero) row = Unsqueeze(rows, first)
        target = Concat <axis = 0> (row, rest) x = Reshape(image, target) r = Relu(x) y = Relu(r)"""
    numbers = {"zero": np.int64(0), "first": [0], "rest": [-1]}
    return written(nodes, numbers, {"image": ["batch", 2, 4]}, {"y": ["batch", 8]})


def test_frozen_sizes_are_fixed_ones(optimized):
    ran, path, out = optimized(flattened(), *UNMEASURED, "--freeze", "--dimension", "batch=3")
    fast = onnx.load(out)
    assert ran.json["gain"] and ran.json["sizes"] == [{"batch": 3}]
    assert [size.dim_value for size in fast.graph.input[0].type.tensor_type.shape.dim] == [3, 2, 4]
    assert {"Shape", "Gather", "Unsqueeze", "Concat"}.isdisjoint(ops_of(out))
    images = np.random.default_rng(0).normal(size=(5, 2, 4)).astype(np.float32)
    assert_same(path, out, image=images[:3])
    with pytest.raises(Exception, match="Expected: 3"):
        outputs(out, image=images)


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


LIE = {"name": "lie", "source": ["(Relu ?x)"], "target": ["?x"], "conditions": []}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        # Which files are no models, the tests of `onnx_io` try.
        ("gone.onnx", "gone.onnx"),
        ("text.json", "text.json"),
        ("bare.onnx", "the file 'w', which is missing"),
        ("m.onnx --inputs z.npz", "'x' is missing"),
        ("m.onnx --dimension m=8", "leave open; found n"),
        ("m.onnx --dimension n=8 --rules text.json", "text.json"),
        ("m.onnx --dimension n=8 --rules lie.json", "rule lie is refused"),
        ("m.onnx -o none/fast.onnx", "expected a directory"),
        ("m.onnx -o m.onnx", "expected another file"),
        ("m.onnx --report m.onnx", "expected another file"),
        ("m.onnx -o pipe", "expected a file to write, found something else"),
    ],
)
def test_what_cannot_be_read_or_written_is_one_line(words, message, tmp_path, tfrl, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "m.onnx", adapter(batch="n"))
    onnx.save(adapter(), "bare.onnx", save_as_external_data=True, location="w", size_threshold=0)
    (tmp_path / "w").unlink()
    np.savez("z.npz", z=np.ones((5, 192), np.float32))
    (tmp_path / "text.json").write_text("[1, 2]")
    lie = {**LIE, "restrictions": [], "verified_by": "identity testing"}
    (tmp_path / "lie.json").write_text(json.dumps({"rules": [lie]}))
    os.mkfifo("pipe")
    before, content = sorted(tmp_path.iterdir()), (tmp_path / "m.onnx").read_bytes()
    model, *options = words.split()
    ran = tfrl("optimize", model, "-o", "fast.onnx", *options, *QUICK)
    assert (ran.status, ran.out) == (1, "") and message in ran.err
    assert len(ran.err.splitlines()) == 1 and ran.err.startswith("tfrl: ")
    assert sorted(tmp_path.iterdir()) == before
    assert (tmp_path / "m.onnx").read_bytes() == content


def test_a_crash_of_onnxruntime_is_one_line(tfrl, tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "isolated", lambda *names: remote.Isolated(remote.backend(*names)))
    model = write(tmp_path / "m.onnx", crashing())
    ran = tfrl("optimize", model, "-o", tmp_path / "out.onnx")
    assert ran.status == 1 and not (tmp_path / "out.onnx").exists()
    (line,) = ran.err.splitlines()
    assert "onnxruntime was ended by SIG" in line and "m.onnx" in line
