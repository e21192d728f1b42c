"""The table of ONNX files: what stands in its cells, and a tiny run."""

from __future__ import annotations

import sys

import pytest

from environments.errors import UserError
from tests.environments.tensor_graphs.small_models import adapter, write
from tools.benchmarks import tensor_graph_files
from tools.benchmarks.tensor_graph_files import parse_arguments, simplified, table

pytestmark = pytest.mark.study

ROW = {
    "sizes": {"n": 2},
    "ratios": {"tfrl": [0.8, 0.79, 0.81], "same": [1.0, 0.99, 1.02], "onnxsim": [0.9, 0.8, 1.0]},
    "wrong": {"onnxsim": "output y differs"},
}


def test_what_stands_in_the_cells():
    record = {
        "outcome": "faster", "rows": [ROW], "seconds": 21.0, "search_seconds": 15.0,
        "peers": {"onnxsim": "", "onnxslim": "failed: a | b"},
        "settings": {
            "size_bytes": 1_240_000, "seconds": 30, "measure_seconds": 5, "spinning": 8,
        },
        "said": 0.81,
    }  # fmt: skip
    refused = {**record, "outcome": "refused: no model", "rows": []}
    *_, first, second = table({"a": record, "b": refused}).splitlines()
    assert first == (
        "| a | 1.2 | n=2 | 0.800 [0.790, 0.810] | 0.810 | [0.990, 1.020] | 0.900 [0.800, 1.000] "
        "wrong | "
        "failed: a / b | 15 s, 21 s of 70 s | faster |"
    )
    assert second == "| b | 1.2 |  |  |  |  |  |  | 15 s, 21 s of 70 s | refused: no model |"


def test_peers_that_are_missing_or_fail(tmp_path, monkeypatch):
    paths = tmp_path / "m.onnx", tmp_path / "out.onnx"
    monkeypatch.setitem(tensor_graph_files.PEERS, "onnxsim", "import nowhere.at_all")
    assert simplified("onnxsim", sys.executable, *paths).startswith("failed: ModuleNotFoundError")
    monkeypatch.setitem(tensor_graph_files.PEERS, "nowhere", "import nowhere")
    assert simplified("nowhere", sys.executable, *paths) == "not installed"
    assert simplified("onnxsim", str(tmp_path / "python"), *paths) == "not installed"


def test_a_tiny_run_is_kept(tmp_path, monkeypatch):
    """The peer writes the model as it is, which is right."""
    models = tmp_path / "models"
    models.mkdir()
    write(models / "adapter.onnx", adapter(size=8, rank=4, batch="n"))
    monkeypatch.setattr(
        tensor_graph_files, "PEERS", {"copier": "import shutil; shutil.copyfile(S, T)"}
    )
    given = ["--models", str(models), "--output", str(tmp_path / "out")]
    options = parse_arguments(given)
    options.seconds, options.measure_seconds = 0.2, 0.1  # less than a user may ask for
    options.spinning = 1
    tensor_graph_files.run(options)
    text = (tmp_path / "out" / "table.md").read_text()
    assert "| adapter | 0.0 | n=" in text and "wrong" not in text and "failed" not in text
    monkeypatch.setattr(tensor_graph_files, "compared", None)
    tensor_graph_files.run(options)
    assert (tmp_path / "out" / "table.md").read_text() == text
    (models / "adapter.onnx").unlink()
    with pytest.raises(UserError, match="expected a directory with ONNX files, found none"):
        tensor_graph_files.run(options)
