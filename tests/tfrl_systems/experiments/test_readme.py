"""The lines of Python in the README do what they say."""

from __future__ import annotations

import functools
import pathlib
import re

import onnx
import pytest

from tests.environments.tensor_graphs.small_models import adapter, write
from tfrl_systems import experiments

ROOT = pathlib.Path(__file__).parents[3]
# The same calls with less to do: a small network, short searches, no measuring.
SMALL = {
    "num_chunks": 1,
    "episodes_per_chunk": 2,
    "max_steps": 4,
    "graph_width": 8,
    "graph_rounds": 1,
}
QUICK = {
    "train": {"iterations": 1, "settings": SMALL, "objective": "analytic"},
    "evaluate": {"expansions": 20, "rollouts": 1, "objective": "analytic"},
    "optimize": {"expansions": 20, "rollouts": 1, "objective": "analytic", "measure": False},
}


def snippets() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)


@pytest.mark.ci
@pytest.mark.parametrize(
    "quickly", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["quickly", "as printed"]
)
def test_the_ten_lines_run(quickly, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    write(pathlib.Path("model.onnx"), adapter())
    for name, less in QUICK.items() if quickly else ():
        monkeypatch.setattr(
            experiments, name, functools.partial(getattr(experiments, name), **less)
        )
    names: dict[str, object] = {}
    exec(compile(snippets()[0], "README.md", "exec"), names)
    assert "last_tenth" in capsys.readouterr().out
    run = names["run"]
    assert isinstance(run, experiments.Run) and (run.policy / "policy.json").is_file()
    onnx.checker.check_model(onnx.load("fast.onnx"))


@pytest.mark.slow
def test_an_agent_of_others_learns_as_printed():
    pytest.importorskip("sb3_contrib", reason="pip install -e '.[bench]'")
    _, code = snippets()
    names: dict[str, object] = {}
    less = code.replace("10_000", "8").replace(
        "environment)", "environment, n_steps=8, batch_size=8)"
    )
    exec(compile(less, "README.md", "exec"), names)
    assert names["model"].num_timesteps == 8
