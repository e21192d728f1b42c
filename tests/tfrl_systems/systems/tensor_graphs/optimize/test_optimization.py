"""`tfrl optimize` on files that onnxruntime runs and few people have, and on models in memory.

Each file has two Relus in a row where there is room, so that something can be made better.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnx
import onnxruntime
import pytest

from environments.errors import UsageError, UserError
from tests.environments.tensor_graphs import small_models
from tests.environments.tensor_graphs.execution.models import parsed
from tests.environments.tensor_graphs.small_models import adapter, relu, write, write_large
from tests.tfrl_systems.systems.tensor_graphs.optimize.running import assert_same, outputs
from tfrl_systems import experiments

QUICK = ("--objective", "analytic", "--expansions", "50", "--measure-seconds", "0.05")
SILENT = {
    **{"objective": "analytic", "expansions": 300, "measure": False},
    **{"reporter": experiments.Reporter()},
}

FILES = {
    "scalar of halves": "g (float16 x) => (float16 y) { a = Relu(x) y = Relu(a) }",
    "truth values": "g (bool[2,3] x) => (bool[2,3] y) { a = Not(x) y = Not(a) }",
    "nothing is computed": "g (float[2] x) => (float[2] x) { }",
    "no inputs": "g () => (float[2] y) <float[2] w = {-1, 2}> { a = Relu(w) y = Relu(a) }",
    "an input of size 0": "g (float[0,3] x) => (float[0,3] y) { a = Relu(x) y = Relu(a) }",
    "an input that nothing reads": """g (float[2] x, float[3] other) => (float[2] y)
        { a = Relu(x) y = Relu(a) }""",
    "every size is open": """g (float[a,b] x, float[b,c] w) => (float[a,c] y)
        { m = MatMul(x, w) r = Relu(m) y = Relu(r) }""",
    "sizes without names": "g (float[?,?] x) => (float[?,?] y) { a = Relu(x) y = Relu(a) }",
    "no rank": "g (float x) => (float[] y) { y = Relu(x) }",
    "texts": "g (string[2] x) => (string[4] y) { y = Concat <axis = 0> (x, x) }",
    "a sequence inside": """g (float[4,2] x) => (float[4,2] y) {
        s = SplitToSequence <axis = 0, keepdims = 1> (x)
        j = ConcatFromSequence <axis = 0> (s) a = Relu(j) y = Relu(a) }""",
    "a sequence as output": """g (float[4,2] x) => (seq(float[2,2]) s)
        <int64 two = {2}> { a = Relu(x) r = Relu(a) s = SplitToSequence <axis = 0> (r, two) }""",
    "a sequence as input": """g (seq(float[2,2]) s) => (float[4,2] y)
        { j = ConcatFromSequence <axis = 0> (s) a = Relu(j) y = Relu(a) }""",
    "an optional value": """g (float[2] x) => (float[2] y)
        { o = Optional(x) v = OptionalGetElement(o) a = Relu(v) y = Relu(a) }""",
    "not a number": """g (float[2] x) => (float[2] y)
        <float[2] w = {-1, 2}> { r = Sqrt(w) m = Mul(x, r) a = Relu(m) y = Relu(a) }""",
    "a loop": """g (float[2] x) => (float[2] y) <int64 n = {3}, bool yes = {1}> {
        y = Loop (n, yes, x) <body = b (int64 i, bool c, float[2] v) => (bool d, float[2] w)
            { d = Identity(c) a = Relu(v) w = Relu(a) }> }""",
    "a scan": """g (float[2] x, float[5,2] rows) => (float[2] y, float[5,2] all) {
        y, all = Scan <num_scan_inputs = 1, body = b (float[2] v, float[2] row)
            => (float[2] w, float[2] out) { a = Relu(row) r = Relu(a) w = Add(v, r)
                                            out = Identity(w) }> (x, rows) }""",
}


def model_of(text: str) -> onnx.ModelProto:
    model = parsed(text)
    if "float[] y" in text:
        for value in (*model.graph.input, *model.graph.output):
            value.type.tensor_type.ClearField("shape")
    return model


@pytest.mark.parametrize("name", FILES)
def test_it_ends_in_a_file_that_runs(name, optimized):
    ran, path, out = optimized(model_of(FILES[name]), *QUICK)
    assert ran.status == 0, ran.err
    assert "Traceback" not in ran.err
    before, after = onnxruntime.InferenceSession(path), onnxruntime.InferenceSession(out)
    for ends in ("get_inputs", "get_outputs"):
        first, second = (
            [(end.name, end.type, end.shape) for end in getattr(session, ends)()]
            for session in (before, after)
        )
        assert first == second


def test_names_of_values_that_are_no_words(tmp_path, tfrl):
    names = ("x/0:1", "ä ö", "y;rm -rf", "z'\"")
    relus = [onnx.helper.make_node("Relu", [x], [y]) for x, y in itertools.pairwise(names)]
    model, out = tmp_path / "m m.onnx", tmp_path / "fast fast.onnx"
    write(model, small_models.model_of(relus, [], {names[0]: [2]}, {names[-1]: [2]}))
    ran = tfrl("optimize", model, "-o", out, "--json", "--no-measure", *QUICK[:4])
    assert ran.result["gain"] is True
    (output,) = outputs(out, **{names[0]: np.float32([-1, 2])})
    assert output.tolist() == [0, 2]


def test_no_time_is_no_lack_of_rules(optimized):
    ran, *_ = optimized(adapter(), "--objective", "analytic", "--seconds", "1e-9", "--no-measure")
    assert "no time to search" in ran.result["reason"]


def peak_memory_bytes(process: subprocess.Popen) -> int:
    """Returns the most memory that a process has had to itself, pages of files not counted."""
    peak_kib = 0
    status = pathlib.Path(f"/proc/{process.pid}/status")
    while process.poll() is None:
        for line in status.read_text().splitlines():
            if line.startswith("RssAnon:"):
                peak_kib = max(peak_kib, int(line.split()[1]))
        time.sleep(0.05)
    return 1024 * peak_kib


@pytest.mark.slow
def test_a_model_of_more_than_2_gib(tmp_path):
    """Its weights are in memory twice at most: ours, and those of the one session that is open."""
    model, out = tmp_path / "m.onnx", tmp_path / "fast.onnx"
    size_bytes = write_large(model, 17, num_layers=10, size=8192)
    command = ["optimize", str(model), "-o", str(out), "--json", "--seconds", "30"]
    process = subprocess.Popen(
        [sys.executable, "-m", "tfrl_systems.cli.main", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    peak = peak_memory_bytes(process)
    said, errors = process.communicate()
    assert process.returncode == 0, errors
    assert json.loads(said)["gain"] in (True, False)
    assert peak < 2.2 * size_bytes
    onnxruntime.InferenceSession(out)


def labelled(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with all that a file can say beside its computation."""
    model.producer_name, model.producer_version = "exporter", "1.2"
    model.domain, model.model_version, model.doc_string = "org.example", 7, "adapts"
    onnx.helper.set_model_props(model, {"author": "somebody", "classes": '{"0": "cat"}'})
    model.graph.doc_string = "two layers"
    model.graph.input[0].doc_string = "rows"
    return model


def about(model: onnx.ModelProto) -> dict[str, object]:
    """What must not change."""
    shell = onnx.ModelProto()
    shell.CopyFrom(model)
    for field in ("node", "initializer", "value_info"):
        shell.graph.ClearField(field)
    return {name.name: value for name, value in shell.ListFields()}


@pytest.mark.parametrize(
    "opset, ir_version, batch",
    [(13, 7, 16), (17, 8, "p2o.DynamicDimension.0"), (21, 10, "p2o.DynamicDimension.0")],
)
def test_a_model_in_memory_becomes_a_faster_one(batch, opset, ir_version, tmp_path):
    model = labelled(adapter(batch=batch))
    model.opset_import[0].version, model.ir_version = opset, ir_version
    before = model.SerializeToString()
    outcome = experiments.optimize(model, **SILENT)
    fast = outcome["optimized"]
    assert outcome["gain"] and outcome["model"] == "small" and outcome["output"] is None
    assert len(fast.graph.node) < len(model.graph.node)
    assert about(fast) == about(model) and model.SerializeToString() == before
    onnx.checker.check_model(fast, full_check=True)
    page = outcome._repr_html_()
    assert "small.onnx" in page and tempfile.gettempdir() not in page
    x = np.random.default_rng(0).normal(size=(16, 192)).astype(np.float32)
    files = write(tmp_path / "m.onnx", model), write(tmp_path / "fast.onnx", fast)
    assert_same(*files, atol=1e-4, x=x)


def test_without_a_gain_the_model_in_memory_comes_back():
    model = labelled(relu())
    outcome = experiments.optimize(model, **SILENT)
    assert not outcome["gain"] and outcome["reason"]
    assert outcome["optimized"] == model and outcome["optimized"] is not model


def test_files_and_models_in_memory_become_the_same(tmp_path):
    """Whoever asks, and however often."""
    path = write(tmp_path / "m.onnx", labelled(adapter()))
    of_file = experiments.optimize(path, tmp_path / "fast.onnx", **SILENT)
    in_memory = experiments.optimize(onnx.load(path), tmp_path / "too.onnx", **SILENT)
    assert of_file["gain"] and "optimized" not in of_file
    assert in_memory["output"] == str(tmp_path / "too.onnx")
    assert in_memory["substitutions"] == of_file["substitutions"]
    assert (tmp_path / "fast.onnx").read_bytes() == (tmp_path / "too.onnx").read_bytes()
    assert onnx.load(tmp_path / "too.onnx") == in_memory["optimized"]
    assert about(in_memory["optimized"]) == about(onnx.load(path))


def test_models_in_memory_that_cannot_be_used():
    model = adapter()
    weight = model.graph.initializer.pop(0)
    weight.data_location = onnx.TensorProto.EXTERNAL
    constant = onnx.helper.make_node("Constant", [], ["w0"], value=weight)
    model.graph.node.insert(0, constant)
    with pytest.raises(UserError, match="expected all weights in it, found 'w0'"):
        experiments.optimize(model, **SILENT)
    late = adapter()
    late.opset_import[0].version = 99
    with pytest.raises(UserError, match="^the model: opset 99"):
        experiments.optimize(late, **SILENT)
    with pytest.raises(UsageError, match="found 'speed'"):
        experiments.optimize(adapter(), speed=3, **SILENT)


def test_sizes_and_inputs_in_python(tmp_path):
    x = np.random.default_rng(0).normal(size=(5, 192)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    model = adapter(batch="n")
    sizes = [
        experiments.optimize(model, **SILENT, **{name: value})["sizes"]
        for name, value in (
            ("dimensions", {"n": 3}),
            ("dimensions", {"n": [3, 4]}),
            ("inputs", tmp_path / "x.npz"),
        )
    ]
    assert sizes == [[{"n": 3}], [{"n": 3}, {"n": 4}], [{"n": 5}]]
    both = experiments.optimize(model, **SILENT, inputs=tmp_path / "x.npz", dimensions={"n": 8})
    assert both["sizes"] == [{"n": 8}, {"n": 5}]
    with pytest.raises(UsageError, match="expected whole numbers from 1 on, found n=0"):
        experiments.optimize(model, **SILENT, dimensions={"n": 0})
