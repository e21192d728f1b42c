"""Searches and policies on graphs, and world models, as small as they can be."""

from __future__ import annotations

import pytest

from tests.environments.tensor_graphs.small_models import adapter, write
from tools.studies import dreams, graphs, learning, writing

pytestmark = pytest.mark.study
SMALL = [
    word
    for setting in ("num_chunks=1", "episodes_per_chunk=1", "max_steps=3", "graph_width=8",
                    "graph_rounds=1")
    for word in ("--set", setting)
]  # fmt: skip


def trials(study, **options):
    return list(study.trials(study.options(**options)))


def test_which_policy_learns_on_what():
    planned = trials(graphs.GRAPHS, seeds=2, learn_on=("own", "several", "families"))
    assert len({trial.name for trial in planned}) == len(planned) == 2 * (len(graphs.MODELS) + 2)
    assert planned[0].about["models"] == planned[0].about["learned_on"] == ("bert-tiny",)
    several = [trial for trial in planned if trial.about["learned_on"] == graphs.SEVERAL]
    assert len(several) == 2 and several[0].about["models"] == graphs.MODELS


def test_searches(study, tmp_path):
    model = write(tmp_path / "adapter.onnx", adapter())
    words = ("--model", model, "--objective", "analytic", "--seconds", 0.1, "--seconds", 0.2)
    words += ("--policy", "regions", "--policy", "random", "--seeds", 2)
    status, text, records = study("searches", *words)
    # What is drawn has two seeds, a search one; each has two limits.
    assert status == 0 and len(records) == 2 * (2 + 1)
    assert f"| {model}, regions | " in text and f"| {model}, random | " in text
    assert "0.1: cost" in text and "0.2: cost" in text


def test_a_policy_in_each_way(study, tmp_path, no_saved_models):
    model = write(tmp_path / "adapter.onnx", adapter())
    words = ("--model", model, "--objective", "analytic", "--seeds", 1, "--iterations", 1, *SMALL)
    ways = ("--way", "episode", "--way", "policy", "--way", "led", "--rollouts", 2)
    limits = ("--seconds", 0.5, "--measure-seconds", 0.1)
    status, text, records = study("graphs", *words, *ways, *limits)
    (record,) = records.values()
    *plays, measured = record["measured"]["plays"]
    assert status == 0 and all(play["percent"] <= 0 for play in plays)
    assert [play["way"] for play in plays] == ["episode", "policy", "led"]
    assert f"| {model}, ppo, own, led | " in text
    ratios = {name: program["ratio"][0] for name, program in measured["programs"].items()}
    assert ratios["model"] == 1 and measured["ratio"] == ratios["policy"]
    of_off = ratios["policy-disable"] / ratios["model-disable"]
    assert measured["ratio_off"] == pytest.approx(of_off)


def test_another_policy_is_another_record(tmp_path):
    assert learning.digest_of("regions") == ""
    (tmp_path / "policy").mkdir()
    digests = set()
    for text in ("{}", "[]"):
        (tmp_path / "policy" / "policy.json").write_text(text)
        digests.add(learning.digest_of(f"regions:{tmp_path / 'policy'}"))
    assert len(digests) == 2


def test_what_learned_in_dreams(study, no_saved_models):
    words = ("--variant", "R5", "--seeds", 1, "--iterations", 1, "--rollouts", 1)
    status, text, records = study("dreams", *words, "--set", "max_steps=5")
    (record,) = records.values()
    assert status == 0 and "| bert-tiny, R5 | 20 | " in text
    assert record["about"]["settings"]["evaluate_every"] == 1
    cost = record["measured"]["last"]["cost"]
    assert record["measured"]["training"]["cost"] == [[1, pytest.approx(cost)]]
    assert "| bert-tiny, R5, loss (fig. 4.10) | " in text


def test_curves_and_applications_by_hand():
    """Two seeds: points are shown as their mean and range, rules as their mean."""
    shared = {"label": "thesis", "learned_on": ["m"]}
    records = [
        {
            **{**shared, "training": {"mixture": [[1, 9.0], [2, 4.0 + seed]]}},
            "plays": [{"model": "m", "way": "policy", "rules": {"fuse": 3, "fold": seed}}],
        }
        for seed in (0, 1)
    ]
    _, curves, rules = dreams.DREAMS.tables
    assert writing.to_markdown(curves, records).endswith(
        "| m, thesis, world model's log-likelihood loss (fig. 4.8) | 9 | 4.5 (4..5) |"
    )
    assert writing.to_markdown(rules, records).splitlines()[-4:] == [
        "| rule | m, thesis |",
        "| --- | ---: |",
        "| fuse | 3 |",
        "| fold | 0.5 |",
    ]


def test_dreams_and_temperatures_by_hand():
    settings = trials(dreams.DREAMS, measure_every=20, variants=("thesis",), seeds=1)[0].about
    assert settings["settings"]["measure_every"] == 20
    assert settings["settings"]["preset"] == "thesis"
    hot = trials(dreams.TEMPERATURES, seeds=1)[-1].about
    assert hot["settings"]["temperature"] == 3.0 and hot["iterations"] == 4
    record = {
        "label": "3", "learned_on": ["m"], "steps": 2880, "learning_s": 9.0, "last": {"cost": 0.9},
        "world_model": {"dreamed_return": 10.25},
        "plays": [
            {"way": "policy", "percent": -12.0},
            {"way": "measured", "ratio": 0.857, "ratio_off": 0.9, "memory": 1.26},
        ],
    }  # fmt: skip
    text = writing.to_markdown(dreams.TEMPERATURES.tables[0], [record])
    assert text.endswith("| 3 | 10.25 | 2,880 | -10.00% | -12.00% | 0.857 | 0.900 | +1.3% | 9 |")
