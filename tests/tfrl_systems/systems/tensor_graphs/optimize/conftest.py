"""Runs of `tfrl optimize`, which measure on a machine that is never busy."""

from __future__ import annotations

import pytest

from tests.environments.tensor_graphs.execution.models import parsed
from tests.environments.tensor_graphs.small_models import write


@pytest.fixture(autouse=True)
def _(work_clock):
    """What is really measured differs from machine to machine; `execution` tests it."""


@pytest.fixture
def optimized(tmp_path, tfrl):
    """Optimises a model, or a text in ONNX's notation; returns what ran, and the two files."""

    def run(model, *options, opset=17):
        if isinstance(model, str):
            model = parsed(model, opset)
        path, out = write(tmp_path / "m.onnx", model), tmp_path / "fast.onnx"
        return tfrl("optimize", path, "-o", out, "--json", *options), path, out

    return run
