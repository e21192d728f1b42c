"""Training for real: what it leaves, and that interruptions leave no trace in it."""

from __future__ import annotations

import json

from tests.tfrl_systems.conftest import train_arguments
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy

FIELDS = {
    "environment",
    "agent",
    "seed",
    "iterations",
    "environment_steps",
    "seconds",
    "experience_sha256",
    "policy_sha256",
    "evaluation",
    "settings",
    "versions",
}


def read_result(workdir) -> dict:
    return json.loads((workdir / "result.json").read_text())


def test_a_run_leaves_what_the_help_says(trained):
    result = read_result(trained)
    assert result.keys() >= FIELDS
    assert (result["environment"], result["agent"], result["seed"]) == ("inlining", "bc_max", 0)
    assert result["environment_steps"] > 0 and result["seconds"]["collecting"] > 0
    assert [iteration["number"] for iteration in result["evaluation"]["iterations"]] == [1, 2, 3]
    assert result["evaluation"]["holdout"]["contexts"] == 2
    assert result["policy_sha256"] == CallSitePolicy.load(trained / "policy").fingerprint
    assert sorted(path.name for path in trained.iterdir()) == [
        "checkpoints",
        "policy",
        "result.json",
        "run.json",
        "tensorboard",
    ]
    described = json.loads((trained / "policy" / "policy.json").read_text())
    chosen = result["evaluation"]["chosen_iteration"]
    assert described["environment"] == "inlining" and described["iteration"] == chosen
    scores = [iteration["score"] for iteration in result["evaluation"]["iterations"]]
    # Of the corpus one project was set aside to choose by; the default is always a candidate.
    assert max(scores) == scores[chosen - 1] >= 0
    validation = result["evaluation"]["validation"]
    assert len(validation["saving_percent_by_group"]) == 1
    assert described["run"]["corpus_sha256"] == described["corpus_sha256"]


def test_tensorboard_shows_each_policy_once_under_the_run_s_name(trained):
    from tensorflow.python.summary import summary_iterator

    points: dict[tuple[str, str], list[int]] = {}
    for path in (trained / "tensorboard").rglob("events.*"):
        run = path.parent.relative_to(trained / "tensorboard").as_posix()
        for event in summary_iterator.summary_iterator(str(path)):
            for value in event.summary.value:
                points.setdefault((run, value.tag), []).append(event.step)
    name = trained.name
    assert points[name, "settings"] == [0]
    assert sorted(points[name, "fit/loss"]) == [1, 2, 3]
    projects = {"learned from": "alpha", "held out": "delta"}
    # An iteration explores around the policy of the one before, and measures its own.
    for part, steps in (("learned from", [0, 1, 2]), ("held out", [1, 2, 3])):
        for tag in (
            "saving_percent",
            f"saving_percent_by_group/{projects[part]}",
            "contexts_worse",
            "share_of_decisions_changed",
            "histogram/saving_percent",
            "histogram/share_of_decisions_changed",
        ):
            assert sorted(points[f"{name}/{part}", tag]) == steps, (part, tag)


def test_the_same_modules_held_out_are_a_warning(corpus, cache, tfrl, tmp_path):
    ran = tfrl(*train_arguments(corpus, corpus, cache, tmp_path / "run"), *("--iterations", "1"))
    assert ran.status == 0 and "warning: 5 of the modules in --holdout" in ran.err
