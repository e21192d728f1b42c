"""Searches and policies on graphs, as small as they can be."""

from __future__ import annotations

import pytest

from tests.environments.tensor_graphs.execution.models import chain
from tests.environments.tensor_graphs.small_models import adapter, write
from tools.studies import graphs, learning

pytestmark = pytest.mark.ci
SMALL = [
    word
    for setting in ("num_chunks=1", "episodes_per_chunk=1", "max_steps=3", "graph_width=8",
                    "graph_rounds=1")
    for word in ("--set", setting)
]  # fmt: skip


def test_which_policy_learns_on_what():
    ways = ("own", "several", "families")
    options = graphs.GRAPHS.options(agents=("ppo",), seeds=2, learn_on=ways)
    planned = list(graphs.GRAPHS.trials(options))
    assert len({trial.name for trial in planned}) == len(planned) == 2 * (len(graphs.MODELS) + 2)
    assert planned[0].about["models"] == planned[0].about["learned_on"] == ("bert-tiny",)
    several = [trial for trial in planned if trial.about["learned_on"] == graphs.SEVERAL]
    assert len(several) == 2 and several[0].about["models"] == graphs.MODELS


def test_searches(study, tmp_path):
    model = write(tmp_path / "adapter.onnx", adapter())
    words = ("--model", model, "--objective", "analytic", "--seconds", 0.1, "--seconds", 0.2)
    words += ("--policy", "regions", "--policy", "random", "--seeds", 2)
    status, text, records = study("graphs", *words)
    # What is drawn has two seeds, a search one; each has two limits.
    assert status == 0 and len(records) == 2 + 1
    assert all(len(record["measured"]["plays"]) == 2 for record in records.values())
    assert f"| {model}, regions | " in text and f"| {model}, random | " in text
    assert "0.1: cost" in text and "0.2: cost" in text


@pytest.mark.slow
def test_a_policy_in_each_way(study, tmp_path, no_saved_models):
    model = write(tmp_path / "adapter.onnx", adapter())
    words = ("--model", model, "--objective", "analytic", "--seeds", 1, "--iterations", 1, *SMALL)
    ways = ("--way", "episode", "--way", "policy", "--way", "led", "--rollouts", 2)
    status, text, records = study("graphs", "--agent", "ppo", *words, *ways, "--seconds", 0.5)
    (record,) = records.values()
    measured = record["measured"]
    assert status == 0 and all(play["percent"] <= 0 for play in measured["plays"])
    assert [play["way"] for play in measured["plays"]] == ["episode", "policy", "led"]
    assert f"| {model}, ppo, own, led | " in text
    likeliest = 100 * (measured["last"]["cost"] - 1)
    assert f"| {likeliest:.2f}% | {measured['steps']} | " in text


def test_another_policy_is_another_record(tmp_path):
    assert learning.digest_of("regions") == ""
    (tmp_path / "policy").mkdir()
    digests = set()
    for text in ("{}", "[]"):
        (tmp_path / "policy" / "policy.json").write_text(text)
        digests.add(learning.digest_of(f"regions:{tmp_path / 'policy'}"))
    assert len(digests) == 2


def test_each_way_is_judged_by_measured_costs(study, tmp_path):
    """What is saved before anything is measured: Relu of Relu is Relu, which needs no search."""
    model = write(tmp_path / "twice.onnx", chain("Relu", "Relu", "Tanh"))
    status, text, records = study("unmeasured", "--model", model)
    (record,) = records.values()
    measured = record["measured"]
    assert status == 0 and f"| {model} | " in text
    assert measured["removal"] < -10 and measured["formula"] == measured["removal"]
    assert measured["steps"] >= 0 and measured["cost_ms"] > 0
