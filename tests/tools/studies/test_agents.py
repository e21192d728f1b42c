"""The table of all agents on all systems."""

from __future__ import annotations

import pytest

from tools.studies import agents, writing

pytestmark = pytest.mark.ci


def test_a_tiny_table(study):
    words = ("--system", "learn_to_optimize", "--agent", "es", "--iterations", 2)
    status, text, records = study("agents", *words)
    # Two iterations of 16 directions, both ends, 64 episodes of two steps.
    assert status == 0 and "(8,192 steps, " in text and "| scipy | 0.087 |" in text
    assert study("agents", *words)[2] == records


def test_the_table_by_hand():
    records = [
        {"system": "tensor_graphs", "agent": "greedy", "text": "-1.00%"},
        {"system": "learn_to_optimize", "agent": "ppo", "text": "does not fit"},
        {
            "system": "tensor_graphs",
            "agent": "ppo",
            "text": "-2%",
            "steps": 1234,
            "learning_s": 5.4,
        },
    ]
    *_, greedy, ppo = writing.to_markdown(agents.AGENTS.tables[0], records).splitlines()
    assert greedy == "| greedy | -1.00% |  |"
    assert ppo == "| ppo | -2% (1,234 steps, 5 s) | does not fit |"
