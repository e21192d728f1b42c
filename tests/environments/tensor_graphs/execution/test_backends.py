"""Models run, and what cannot be run is said in one line."""

from __future__ import annotations

import re

import pytest

from environments.errors import UserError
from environments.tensor_graphs import models
from environments.tensor_graphs.execution import backends, differences, inputs
from tests.environments.tensor_graphs.execution.models import chain


def test_backends() -> None:
    names = ["onnxruntime", "onnxruntime-disable", "onnxruntime-basic", "onnxruntime-extended"]
    outputs = []
    for name in names:
        backend = backends.backend(name)
        assert backend.name == name
        assert re.match(r"\d+\.\d+", backend.version)
        model = models.make("bert-tiny")
        outputs.append(backend.open(model).run(inputs.random_inputs(model)))
        assert list(outputs[-1]) == ["last_hidden_state", "pooler_output"]
    for actual in outputs[1:]:
        compared = differences.compare_outputs(outputs[0], actual)
        assert all(difference.is_equal for difference in compared)
    with pytest.raises(UserError, match="no backend 'tensorrt'; there are onnxruntime-disable"):
        backends.backend("tensorrt")


def test_threads() -> None:
    """A name says them, and what a backend rewrites runs on as many."""
    single, double = backends.backend(), backends.backend("onnxruntime", 2)
    assert (single.name, double.name) == ("onnxruntime", "onnxruntime@2")
    assert backends.backend("onnxruntime@1") == single
    assert backends.backend(double.name) == double != single
    rewritten = double.rewritten(chain("Relu"))
    assert rewritten is not None and rewritten[1].name == "onnxruntime-disable@2"
    sessions = [on.open(chain("Relu")).session for on in (single, double)]  # type: ignore[attr-defined]
    counts = [session.get_session_options().intra_op_num_threads for session in sessions]
    assert counts == [1, 2]
