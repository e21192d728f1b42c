"""Correlations of metrics: worked by hand, and of a tiny model's random episodes."""

from __future__ import annotations

import pytest

from tests.environments.tensor_graphs.small_models import adapter, write
from tools.studies import metrics

pytestmark = pytest.mark.study


def test_correlations_by_hand():
    """An episode of four states.

    Values less their means: runtime (-1.5, -0.5, 0.5, 1.5), bytes (-1, 0, 0, 1), so that their
    correlation is 3 / sqrt(5 · 2). Changes of FLOPs are (2, -2, 2), and of bytes (1, 0, 1): they go
    together. Changes of the runtime are all 1, and there is one kernel: neither correlates.
    """
    episode = [[1, 1, 5, 1], [2, 3, 6, 1], [3, 1, 6, 1], [4, 3, 7, 1]]
    record = {"model": "m", "objective": "analytic", "episodes": [episode]}
    rows = {
        (row["kind"], row["metric"], row["beside"]): row["correlation"]
        for row in metrics.correlations([record])
    }
    assert rows["values", "runtime", "memory accesses"] == pytest.approx(3 / 10**0.5)
    assert rows["changes", "FLOPs", "memory accesses"] == pytest.approx(1)
    assert rows["changes", "runtime", "FLOPs"] is None
    assert rows["values", "kernels", "runtime"] is None


def test_a_tiny_run(study, tmp_path):
    model = write(tmp_path / "adapter.onnx", adapter())
    words = ("--model", model, "--objective", "analytic", "--episodes", 2, "--steps", 5)
    status, text, records = study("metrics", *words, "--seeds", 1)
    (record,) = records.values()
    first, second = record["measured"]["episodes"]
    assert status == 0 and f"| {model}, analytic, values, runtime | 1.00 | " in text
    assert first[0] == second[0] and 2 <= len(first) <= 6
