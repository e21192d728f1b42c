"""What is saved before anything is measured, on a model that only a rule can make cheaper."""

from __future__ import annotations

import pytest

from tests.environments.tensor_graphs.execution.models import chain
from tests.environments.tensor_graphs.small_models import write

pytestmark = pytest.mark.ci


def test_each_way_is_judged_by_measured_costs(study, tmp_path):
    """Relu of Relu is Relu, which needs no search."""
    model = write(tmp_path / "twice.onnx", chain("Relu", "Relu", "Tanh"))
    status, text, records = study("unmeasured", "--model", model)
    (record,) = records.values()
    measured = record["measured"]
    assert status == 0 and f"| {model} | " in text
    assert measured["removal"] < -10 and measured["formula"] == measured["removal"]
    assert measured["steps"] >= 0 and measured["cost_ms"] > 0
