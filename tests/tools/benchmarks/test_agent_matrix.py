"""The table of all agents on all systems."""

from __future__ import annotations

import pytest

from environments.errors import UsageError
from tools.benchmarks import agent_matrix

pytestmark = pytest.mark.study


def test_a_tiny_matrix_is_kept_and_shown(tmp_path, capsys, monkeypatch):
    only = {"learn_to_optimize": agent_matrix.cases(None)["learn_to_optimize"]}
    monkeypatch.setattr(agent_matrix, "cases", lambda corpus: only)
    arguments = ["--output", str(tmp_path), "--agents", "es", "--iterations", "2"]
    options = agent_matrix.parse_arguments(arguments)
    agent_matrix.run(options)
    text = (tmp_path / "table.md").read_text()
    assert text in capsys.readouterr().out
    # Two iterations of 16 directions, both ends, 64 episodes of two steps.
    assert "(8,192 steps, " in text and "| scipy | 0.087 |" in text
    before = (tmp_path / "learn_to_optimize-es-0.json").read_bytes()
    agent_matrix.run(options)
    assert (tmp_path / "learn_to_optimize-es-0.json").read_bytes() == before


def test_the_table_by_hand():
    asked = agent_matrix.cases(None)
    found = [
        {"system": "tensor_graphs", "agent": "greedy", "value": "-1.00%"},
        {"system": "tensor_graphs", "agent": "ppo", "value": "-2%", "steps": 1234, "seconds": 5.4},
        {"system": "learn_to_optimize", "agent": "ppo", "value": "does not fit"},
    ]
    *_, greedy, ppo = agent_matrix.table(asked, found).splitlines()
    assert greedy == "| greedy | -1.00% |  |"
    assert ppo == "| ppo | -2% (1,234 steps, 5 s) | does not fit |"


def test_mistakes(tmp_path, capsys):
    with pytest.raises(SystemExit):
        agent_matrix.parse_arguments(["--output", "x", "--agents", "q"])
    assert "expected some of ppo,reinforce" in capsys.readouterr().err
    options = agent_matrix.parse_arguments(["--output", "x", "--corpus", str(tmp_path / "no")])
    with pytest.raises(UsageError, match="--corpus: expected a directory"):
        agent_matrix.run(options)
