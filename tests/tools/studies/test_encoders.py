"""GN blocks, two policies and masks, as small as they can be."""

from __future__ import annotations

import pytest

from tests.environments.tensor_graphs.small_models import adapter, write
from tools.studies import encoders, writing

pytestmark = pytest.mark.study
SMALL = ("--seeds", 1, "--iterations", 1, "--episodes", 2, "--max-steps", 3, "--played", 2,
         "--set", "graph_width=8", "--set", "graph_rounds=1")  # fmt: skip


def test_seeds_come_last():
    options = encoders.Hierarchies(seeds=2)
    names = [trial.name for trial in encoders.HIERARCHIES.trials(options)]
    assert len(set(names)) == len(names) == 2 * 5 * 3
    assert names[0] == "squeezenet-1.1-ppo-pointer-seed-0"
    assert names[15] == "squeezenet-1.1-ppo-pointer-seed-1"


def test_a_block_is_timed(study, tmp_path, no_saved_models):
    model = write(tmp_path / "adapter.onnx", adapter())
    status, text, records = study("encoders", "--model", model, "--variant", "full", *SMALL)
    ((_, record),) = records.items()
    assert status == 0 and f"| {model}, chance | " in text and f"| {model}, full | " in text
    measured = record["measured"]
    assert measured["decision_ms"] > 0 and measured["update_ms"] > 0 and measured["steps"] == 6
    assert len(measured["drawn"]) == len(measured["by_chance"]) == 2


def test_what_is_refused(study, tmp_path, no_saved_models):
    model = write(tmp_path / "adapter.onnx", adapter())
    status, text, records = study("masks", "--model", model, "--variant", "no masks", *SMALL)
    ((_, record),) = records.items()
    # Nearly all pairs of numbers are those of no match.
    by_policy, by_chance = (record["measured"][key] for key in ("refused", "refused_by_chance"))
    assert status == 0 and 50 < by_policy <= 100 and 50 < by_chance <= 100
    assert "refused without masks" in text


def test_the_table_by_hand():
    """Chance has one row for a model, whatever was compared with it."""
    shared = {"model": "m", "by_chance": [0.0, -2.0], "drawn": [-1.0, -3.0]}
    records = [
        {**shared, "seed": seed, "label": label, "likeliest": likeliest, "steps": 9,
         "learning_s": 1.0, "refused": None, "refused_by_chance": 98.0}
        for seed, label, likeliest in ((0, "a", -4.0), (0, "b", -5.0), (1, "a", -6.0))
    ]  # fmt: skip
    *_, chance, a, b = writing.to_markdown(encoders.MASKS.tables[0], records).splitlines()
    assert chance == "| m, chance |  | -1.00% | -2.00% |  |  | 98% |"
    assert a == "| m, a | -5.00% (-6.00%..-4.00%) | -2.00% | -3.00% | 9 | 1 |  |"
    assert b == "| m, b | -5.00% | -2.00% | -3.00% | 9 | 1 |  |"
