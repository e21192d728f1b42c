"""What cannot be read or written is one line, and nothing is written."""

from __future__ import annotations

import json
import os

import onnx
import pytest

from environments.tensor_graphs.execution.isolation import remote
from tests.environments.tensor_graphs.small_models import adapter, relu, write

QUICK = ("--objective", "analytic", "--expansions", "300")


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
