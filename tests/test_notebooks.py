"""Every notebook runs from its first cell to its last, in this interpreter."""

from __future__ import annotations

import ast
import json
import pathlib
import re
import subprocess
import sys

import pytest

from tests.checkout import copy_sources
from tests.house_rules import Source, scripts_import_no_command_line
from tests.requirements import needs_colab_stack
from tools.notebook_scripts import NOTEBOOKS, python_of

# For a machine that does much else; alone on two cores a notebook takes less than one minute.
TIMEOUT_S = 600
MAX_CELL_LINES = 40
PICTURE = "image/png"
# Less of the same, where only the cells matter and not how good the results are.
LESS = {
    r"\biterations=(?!2\b)\d+": "iterations=1",
    # A search ends by its expansions: in so little time it finds nothing on a busy machine.
    r"(?<!Budget\()\b(measure_)?seconds=[\d.]+": r"\1seconds=0.2",
    r'\("words", "shapes", "bank", "graph"\)': '("shapes",)',
    r'\("text", "stock"\)': '("stock",)',
    r'\(\*names, "heterogeneous"\)': '("heterogeneous",)',
    r'\("default", "always", "never"\)': '("default", "always")',
    r'Collect\("pipes", workers=\d+\)': "Collect()",
    r"(policies=.*)\*\*common": r"\1workers=1, **common",
    r"\bexpansions=\d+": "expansions=40",
    r"\brange\(60\)": "range(2)",
    r"\*\[2\] \* 60": "*[2] * 4",
    r'"evaluations": 60, "iterations": 6': '"evaluations": 12, "iterations": 2, "distil_steps": 20',
    r"\bnum_rounds=\d+": "num_rounds=1",
    r'"max_steps": \d+': '"max_steps": 4',
    r'"num_chunks": \d+': '"num_chunks": 1, "graph_rounds": 2',  # which the next one shortens
    r'"graph_rounds": \d+': '"graph_rounds": 1, "graph_width": 8, "episodes_per_chunk": 2',
    r'"fit_updates": \d+': '"fit_updates": 3, "dream_updates": 1, "num_dreams": 8',
    r'"num_models": \d+': '"num_models": 1, "epochs": 2, "hidden_sizes": (8,)',
    r'"baselines": .*,': '"baselines": ("default",), "joint_rounds": 0, "refusals": 1,',
}

NO_SAVED_MODELS = """
from tf_agents.policies import policy_saver

class NoSaver:
    def __init__(self, policy):
        pass

    def save(self, directory):
        os.mkdir(directory)

policy_saver.PolicySaver = NoSaver
"""

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read_notebook(path):
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def code_cells(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


@pytest.fixture
def make_kernel(tmp_path, monkeypatch):
    """Makes a kernel that no installed one shadows; its files go where the test's go."""
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "jupyter"))
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR", "TMPDIR"):
        place = tmp_path / name.lower()
        place.mkdir()
        monkeypatch.setenv(name, str(place))

    def make(python: pathlib.Path | str) -> str:
        command = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        specification = {"argv": command, "display_name": "this", "language": "python"}
        directory = tmp_path / "jupyter" / "kernels" / "this-python"
        directory.mkdir(parents=True)
        (directory / "kernel.json").write_text(json.dumps(specification))
        return "this-python"

    return make


def shortened(notebook):
    """The same cells, with the replacements of LESS and without SavedModels, which none reads."""
    for cell in code_cells(notebook):
        for pattern, less in LESS.items():
            cell.source = re.sub(pattern, less, cell.source)
    imports = next(cell for cell in code_cells(notebook) if "import experiments" in cell.source)
    imports.source += NO_SAVED_MODELS
    return notebook


def run_notebook(notebook, kernel, directory):
    """Runs all cells in a directory, and checks what they left."""
    import nbclient

    client = nbclient.NotebookClient(
        notebook,
        timeout=TIMEOUT_S,
        kernel_name=kernel,
        resources={"metadata": {"path": str(directory)}},
    )
    client.execute()
    outputs = [output for cell in code_cells(notebook) for output in cell.outputs]
    assert sum(PICTURE in output.get("data", {}) for output in outputs) >= 4
    warned = [output.text for output in outputs if output.get("name") == "stderr"]
    assert not warned, "a user would see: " + "".join(warned)


@pytest.mark.parametrize("pattern", LESS)
def test_what_is_shortened_is_there(pattern):
    sources = [cell.source for path in NOTEBOOKS for cell in code_cells(read_notebook(path))]
    assert any(re.search(pattern, source) for source in sources)


@pytest.mark.slow
@every_notebook
def test_it_runs_as_it_is_printed(path, make_kernel, tmp_path):
    run_notebook(read_notebook(path), make_kernel(sys.executable), tmp_path)


@pytest.mark.ci
@pytest.mark.colab
@needs_colab_stack(
    sys.version_info >= (3, 12),
    "on Python 3.11 a kernel has loaded packages that TF-Agents replaces",
)
def test_the_first_cell_installs_everything_in_an_empty_environment(
    make_kernel, tmp_path, monkeypatch
):
    """As on Colab: there is a kernel, and the index that pip uses; the checkout is what is opened.

    The first notebook's cell installs the project, so that the others find it.
    """
    python = tmp_path / "environment" / "bin" / "python"
    subprocess.run([sys.executable, "-m", "venv", python.parent.parent], check=True)
    subprocess.run([python, "-m", "pip", "install", "-q", "ipykernel"], check=True)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    checkout = tmp_path / "checkout"
    notebooks = checkout / "notebooks"
    notebooks.mkdir(parents=True)
    copy_sources(checkout)
    kernel = make_kernel(python)
    for path in NOTEBOOKS:
        run_notebook(shortened(read_notebook(path)), kernel, notebooks)


def test_all_begin_with_the_same_installation():
    assert [path.stem for path in NOTEBOOKS] == ["inlining", "learn_to_optimize", "tensor_graphs"]
    assert len({code_cells(read_notebook(path))[0].source for path in NOTEBOOKS}) == 1


@every_notebook
def test_its_cells_are_short_use_only_the_packages_and_have_no_outputs(path):
    """No classes and no functions: whatever is worth defining belongs into the packages."""
    definitions = (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for cell in code_cells(read_notebook(path)):
        text = python_of(cell.source)
        assert not cell.outputs and cell.execution_count is None, cell.source
        assert len(cell.source.splitlines()) <= MAX_CELL_LINES, cell.source
        assert not any(isinstance(node, definitions) for node in ast.walk(ast.parse(text))), text
        assert not list(scripts_import_no_command_line(Source(f"notebooks/{path.name}", text)))
