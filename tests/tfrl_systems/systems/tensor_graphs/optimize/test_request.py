"""What may be asked for, and what holds where nothing is said."""

from __future__ import annotations

import pathlib

import pytest

from tests.environments.tensor_graphs.execution.models import parsed
from tests.environments.tensor_graphs.small_models import adapter, relu, write
from tests.tfrl_systems.systems.tensor_graphs.optimize.running import ops_of
from tfrl_systems.systems.tensor_graphs.optimize import request
from tfrl_systems.systems.tensor_graphs.optimize.request import Optimization


def test_the_faster_model_goes_beside_the_model_unless_that_leads_to_the_model(tmp_path, tfrl):
    model, out = write(tmp_path / "m.onnx", relu()), tmp_path / "m.optimized.onnx"
    quick = ("--objective", "analytic", "--expansions", "20")
    ran = tfrl("optimize", model, *quick)
    assert ran.status == 0 and ran.out.startswith(f"{model} -> {out}\n")
    assert sorted(tmp_path.iterdir()) == [model, out]
    content = model.read_bytes()
    out.unlink()
    out.symlink_to(model)
    refused = tfrl("optimize", model, *quick)
    assert refused.status == 1 and "expected another file than the model" in refused.err
    assert model.read_bytes() == content


@pytest.mark.parametrize(("seconds", "most_s"), [(1, 8), (5, 12), (20, 48), (60, 110), (600, 650)])
def test_all_of_it_takes_about_as_long_as_the_search(seconds, most_s):
    """The rest is for starting the program and for writing."""
    assert seconds < Optimization(model=pathlib.Path("m"), seconds=seconds).all_seconds < most_s


def test_threads(tmp_path, tfrl, monkeypatch):
    """The result is held against the model on one thread too, and all of it says how it was run."""
    monkeypatch.setattr(request, "num_processors", lambda: 2)
    model = write(tmp_path / "m.onnx", adapter())
    quick = ("--objective", "analytic", "--expansions", "60", "--measure-seconds", "0.05")
    ran = tfrl("optimize", model, "--json", "--threads", "2", *quick)
    assert ran.status == 0 and ran.json["gain"], ran.err
    assert ran.json["threads"] == 2 and ran.json["processor"]
    assert [row["threads"] for row in ran.json["measured"]] == [2, 1]


def test_operators_of_onnxruntime_alone(tmp_path, tfrl):
    """They are used on request, where they are faster; here one takes the place of two."""
    silu = """g (float[4,64] x) => (float[4,64] z)
        { s = Sigmoid(x) y = Mul(x, s) t = Sigmoid(y) z = Mul(y, t) }"""
    model = write(tmp_path / "m.onnx", parsed(silu))
    quick = ("--objective", "analytic", "--measure-seconds", "0.05", "--json")
    kinds = []
    for flags in ((), ("--contrib",)):
        ran = tfrl("optimize", model, *flags, *quick)
        assert ran.status == 0 and ran.json["contrib"] == bool(flags), ran.err
        kinds.append({*ops_of(ran.json["output"])})
    assert kinds == [{"Sigmoid", "Mul"}, {"QuickGelu"}]
