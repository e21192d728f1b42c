"""The table of ONNX files: what stands in its cells, and a tiny run."""

from __future__ import annotations

import sys

import pytest

from tests.environments.tensor_graphs.small_models import adapter, write
from tools.studies import files, writing

pytestmark = pytest.mark.ci

ROW = {
    "sizes": {"n": 2},
    "ratios": {
        **{"tfrl": [0.8, 0.79, 0.81], "onnxsim": [0.9, 0.8, 1.0]}, files.COPY: [1.0, 0.99, 1.02],
    },
    "wrong": {"onnxsim": "output y differs"},
}  # fmt: skip


def test_what_stands_in_the_cells():
    record = {
        "file": "a", "outcome": "faster", "rows": [ROW], "seconds_all": 21.0, "search_s": 15.0,
        "why_not": {"onnxsim": "", "onnxslim": "failed: a | b"}, "said": 0.81,
    }  # fmt: skip
    refused = {**record, "file": "b", "outcome": "refused: no model", "rows": [], "why_not": {}}
    (table,) = files.FILES.tables
    *_, first, second = writing.to_markdown(table, [record, refused]).splitlines()
    assert first == (
        "| a, n=2 | 0.800 [0.790, 0.810] | does not run | 0.810 | 1.000 [0.990, 1.020] | "
        "0.900 [0.800, 1.000] (wrong) | failed: a / b | "
        + "does not run | " * 5
        + "15 s, 21 s | faster |"
    )
    assert second == "| b, fixed |  |  | 0.810 |" + "  |" * 8 + " 15 s, 21 s | refused: no model |"


def test_peers_that_are_missing_or_fail(tmp_path, monkeypatch):
    paths = tmp_path / "m.onnx", tmp_path / "out.onnx"
    monkeypatch.setitem(files.PEERS, "onnxsim", "import nowhere.at_all")
    failed = files.simplified("onnxsim", sys.executable, *paths)
    assert failed.startswith("failed: ModuleNotFoundError")
    monkeypatch.setitem(files.PEERS, "nowhere", "import nowhere")
    assert files.simplified("nowhere", sys.executable, *paths) == "not installed"
    assert files.simplified("onnxsim", str(tmp_path / "python"), *paths) == "not installed"


def test_a_tiny_run(tmp_path, study, monkeypatch):
    """The peer writes the model as it is, which is right."""
    models = tmp_path / "models"
    models.mkdir()
    assert "expected a directory with ONNX files" in study("files", "--models", models)[1]
    write(models / "adapter.onnx", adapter(size=8, rank=4, batch="n"))
    monkeypatch.setattr(files, "PEERS", {"onnxsim": "import shutil; shutil.copyfile(S, T)"})
    words = ("--models", models, "--seconds", 0.2, "--measure-seconds", 0.1)
    status, text, records = study("files", *words)
    assert status == 0 and "| adapter, n=" in text and "(wrong)" not in text
    rows = records["adapter"]["measured"]["rows"]
    assert rows and all("onnxsim" in row["ratios"] for row in rows)
