"""int8 is written where it is faster than the float model, else the reason is said."""

from __future__ import annotations

import html

import numpy as np
import onnx
import pytest

from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.selection import quantization
from tests.environments.tensor_graphs.selection.fakes import bench_of, compared
from tests.environments.tensor_graphs.small_models import adapter, write
from tests.tfrl_systems.systems.tensor_graphs.optimize.running import ops_of, outputs
from tfrl_systems.systems.tensor_graphs.optimize import quantizing

QUICK = ("--objective", "analytic", "--expansions", "60", "--measure-seconds", "0.05", "--json")


# int8 takes 70% of the time.
FastBench = bench_of(lambda *_, **__: compared(0.7, 0.69, 0.71))


@pytest.fixture
def model(tmp_path):
    return write(tmp_path / "m.onnx", adapter(size=64, rank=32))


@pytest.fixture
def samples(model, tmp_path):
    """Two files, and the options that name them."""
    paths = [tmp_path / f"{seed}.npz" for seed in range(2)]
    for seed, path in enumerate(paths):
        np.savez(path, **random_inputs(onnx.load(model), seed=seed))
    return [word for path in paths for word in ("--inputs", path)]


def test_what_is_faster_is_written(model, samples, tmp_path, tfrl, monkeypatch):
    for module in (quantization, quantizing):
        monkeypatch.setattr(module, "Bench", FastBench)
    page = tmp_path / "report.html"
    words = ("--quantize", "--max-error", "0.1", *samples, "--report", page)
    ran = tfrl("optimize", model, *words, *QUICK)
    assert ran.status == 0 and ran.json["gain"], ran.err
    said = "-30.0% of the model's time, between -31.0% and -29.0%"
    assert said in html.unescape(page.read_text())
    assert ran.json["measured_ratio"] == 0.7 and ran.json["reason"] == ""
    quantized = ran.json["quantized"]
    assert quantized["kind"] in ("dynamic", "static") and quantized["reason"] == ""
    assert 0 < quantized["relative_error"] == ran.json["max_relative_error"] <= 0.1
    assert 0.5 < quantized["agreement"] <= 1
    assert [attempt["kind"] for attempt in quantized["plain"]] == ["dynamic", "static"]
    sample = dict(np.load(tmp_path / "0.npz"))
    (before,), (after,) = (outputs(path, **sample) for path in (model, ran.json["output"]))
    assert 0 < np.linalg.norm(after - before) < 0.15 * np.linalg.norm(before)
    assert {"MatMulInteger", "QuantizeLinear"} & {*ops_of(ran.json["output"])}


def test_where_nothing_pays_the_float_model_is_written(model, samples, tfrl):
    """By the clock of these tests, more operators take longer."""
    ran = tfrl("optimize", model, "--quantize", "--max-error", "0.1", *samples, *QUICK)
    assert ran.status == 0 and ran.json["gain"], ran.err
    assert "of the float model's time" in ran.json["quantized"]["reason"]
    assert "kind" not in ran.json["quantized"]
    assert {*ops_of(ran.json["output"])} <= {"Gemm", "MatMul", "Relu"}
    strict = tfrl("optimize", model, "--quantize", "--max-error", "1e-7", *samples, *QUICK)
    assert "could be quantised within an error of 1e-07" in strict.json["quantized"]["reason"]
