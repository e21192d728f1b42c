"""Every notebook runs from its first cell to its last, in this interpreter."""

from __future__ import annotations

import ast
import json
import pathlib
import sys

import nbclient
import nbformat
import pytest
from IPython.core import inputtransformer2

NOTEBOOKS = sorted((pathlib.Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))
# For a machine that does much else; alone on two cores a notebook takes less than one minute.
TIMEOUT_S = 600
MAX_CELL_LINES = 40
PICTURE = "image/png"

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read_notebook(path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.fixture
def kernel_of_this_interpreter(tmp_path, monkeypatch):
    """A kernel that no installed one shadows; its files go where the test's go."""
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    specification = {"argv": command, "display_name": "this", "language": "python"}
    directory = tmp_path / "jupyter" / "kernels" / "this-interpreter"
    directory.mkdir(parents=True)
    (directory / "kernel.json").write_text(json.dumps(specification))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "TMPDIR"):
        place = tmp_path / name.lower()
        place.mkdir()
        monkeypatch.setenv(name, str(place))
    return "this-interpreter"


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == ["inlining", "learn_to_optimize", "tensor_graphs"]


@every_notebook
def test_it_runs(path, kernel_of_this_interpreter, tmp_path):
    notebook = read_notebook(path)
    client = nbclient.NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name=kernel_of_this_interpreter,
        resources={"metadata": {"path": str(tmp_path)}},
    )
    client.execute()
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    assert sum(PICTURE in output.get("data", {}) for output in outputs) >= 4
    warned = [output.text for output in outputs if output.get("name") == "stderr"]
    assert not warned, "a user would see: " + "".join(warned)


@every_notebook
def test_it_is_committed_without_outputs(path):
    for cell in code_cells(read_notebook(path)):
        assert not cell.outputs and cell.execution_count is None, cell.source


@every_notebook
def test_it_only_uses_the_packages(path):
    """No classes and no functions: whatever is worth defining belongs into the packages."""
    magics = inputtransformer2.TransformerManager()
    for cell in code_cells(read_notebook(path)):
        tree = ast.parse(magics.transform_cell(cell.source))
        defined = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        assert not any(isinstance(node, defined) for node in ast.walk(tree)), cell.source


@every_notebook
def test_its_cells_are_short(path):
    for cell in code_cells(read_notebook(path)):
        assert len(cell.source.splitlines()) <= MAX_CELL_LINES, cell.source
