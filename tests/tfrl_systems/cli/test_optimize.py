"""Faster models that compute the same, and what is said where there is none."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import onnx
import pytest

from environments.tensor_graphs import models
from tests.environments.tensor_graphs.small_models import adapter, convolutions, relu, write
from tests.tfrl_systems.systems.tensor_graphs.optimize.running import outputs

# The same on every machine, and nothing is measured for it.
QUICK = ("--objective", "analytic", "--expansions", "300")


@pytest.fixture(scope="module")
def bert_tiny(tmp_path_factory):
    return write(tmp_path_factory.mktemp("models") / "bert-tiny.onnx", models.make("bert-tiny"))


def test_a_model_becomes_faster(tmp_path, tfrl):
    """Two products out of three go; that is measured on any machine, however busy."""
    model, out = write(tmp_path / "m.onnx", adapter()), tmp_path / "fast.onnx"
    page = tmp_path / "report.html"
    ran = tfrl(
        *("optimize", model, "-o", out, "--json", "--report", page, "--measure-seconds", "1"),
        *QUICK,
    )
    assert ran.result.keys() >= {"model", "method", "seconds"} and ran.result["gain"] is True
    low, high = ran.result["measured_ratio_interval"]
    assert low <= ran.result["measured_ratio"] <= high < 0.9
    assert ran.result["max_relative_error"] < 1e-4
    assert ran.result["nodes_after"] < ran.result["nodes_before"]
    assert ran.result["estimated_ms_after"] < ran.result["estimated_ms_before"]
    for step in ran.result["substitutions"]:
        assert step.keys() >= {"xfer", "location"}
    saved_ms = ran.result["estimated_ms_before"] - ran.result["estimated_ms_after"]
    rules = ran.result["rules"]
    assert sum(rule["estimated_gain_ms"] for rule in rules) == pytest.approx(saved_ms)
    measured = sum(rule["measured_gain"] for rule in rules)
    assert measured == pytest.approx(1 - ran.result["measured_ratio"], abs=0.25)
    onnx.checker.check_model(onnx.load(out), full_check=True)
    x = np.random.default_rng(1).normal(size=(64, 192)).astype(np.float32)
    (expected,), (rewritten,) = outputs(model, x=x), outputs(out, x=x)
    np.testing.assert_allclose(rewritten, expected, atol=1e-4 * np.abs(expected).max())
    text = page.read_text()
    assert text.count("<svg") == 2 and not re.search(r"(src|href)=|@import|url\(", text)
    assert {path.name for path in tmp_path.iterdir()} == {"fast.onnx", "m.onnx", "report.html"}


def test_what_does_not_become_faster_is_copied(tmp_path, tfrl):
    model, out = write(tmp_path / "m.onnx", relu()), tmp_path / "fast.onnx"
    ran = tfrl("optimize", model, "-o", out, "--json", *QUICK)
    assert ran.result["gain"] is False and ran.result["reason"]
    assert ran.result["substitutions"] == [] and ran.result["measured_ratio"] is None
    assert out.read_bytes() == model.read_bytes()
    text = tfrl("optimize", model, "-o", out, *QUICK).out
    assert "no gain available" in text


def test_unless_it_is_measured_the_estimate_decides(tmp_path, tfrl):
    model, out = write(tmp_path / "m.onnx", convolutions()), tmp_path / "fast.onnx"
    unmeasured = tfrl("optimize", model, "-o", out, *QUICK, "--no-measure")
    assert "operators      6 -> 4" in unmeasured.out
    assert [node.op_type for node in onnx.load(out).graph.node] == ["Conv", "Relu"] * 2


def start_search(model, out, checkpoint, **variables):
    """A search that would take long; returns once it has found something."""
    arguments = ("optimize", model, "-o", out, "--checkpoint", checkpoint, "--json", "--no-measure")
    process = subprocess.Popen(
        [sys.executable, "-m", "tfrl_systems.cli.main", *map(str, arguments)]
        + ["--objective", "analytic", "--seconds", "300", "--method", "taso"],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline_s = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < deadline_s:
        if checkpoint.exists() and json.loads(checkpoint.read_text())["path"]:
            return process
        time.sleep(0.1)
    raise AssertionError(f"no search: {process.communicate()}")


@pytest.mark.ci
def test_what_is_killed_leaves_no_models_in_tmpdir(bert_tiny, tmp_path):
    """Each candidate is as large as the model, and who takes too much memory is killed."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    process = start_search(
        bert_tiny, tmp_path / "fast.onnx", tmp_path / "search.json", TMPDIR=str(temporary)
    )
    assert list(temporary.glob("tfrl-*"))
    process.kill()
    process.communicate()
    deadline_s = time.monotonic() + 60
    while list(temporary.glob("tfrl-*")) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert not list(temporary.glob("tfrl-*"))


@pytest.mark.ci
@pytest.mark.usefixtures("default_signals")
def test_ctrl_c_keeps_the_best_so_far_and_what_a_kill_would_leave_goes_on(
    bert_tiny, tmp_path, tfrl
):
    """SIGKILL would leave the checkpoint that is copied before the Ctrl-C, and no model."""
    out, checkpoint = tmp_path / "fast.onnx", tmp_path / "search.json"
    process = start_search(bert_tiny, out, checkpoint)
    left = shutil.copy(checkpoint, tmp_path / "left.json")
    assert not out.exists()
    process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    outcome = json.loads(printed)
    assert outcome["stopped"] == "interrupted" and outcome["gain"]
    assert "going on with the best so far" in said
    onnx.checker.check_model(onnx.load(out))
    assert checkpoint.exists()
    out.unlink()

    saved = json.loads(left.read_text())
    more = str(saved["expansions"] + 30)
    ran = tfrl(
        *("optimize", bert_tiny, "-o", out, "--checkpoint", left, "--json", "--no-measure"),
        *("--objective", "analytic", "--expansions", more),
    )
    assert ran.status == 0 and ran.json["expansions"] >= saved["expansions"]
    first = [(step["xfer"], step["location"]) for step in ran.json["substitutions"]][
        : len(saved["path"])
    ]
    assert first == [(step["xfer"], step["location"]) for step in saved["path"]]
    assert not left.exists() and out.exists()
