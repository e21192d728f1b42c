"""Training for real: what it leaves, and that interruptions leave no trace in it."""

from __future__ import annotations

import json
import pathlib
import shutil
import signal
import subprocess
import sys

import pytest

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


def start(arguments) -> subprocess.Popen:
    command = [sys.executable, "-m", "tfrl_systems.cli.main", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


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


@pytest.mark.ci
@pytest.mark.usefixtures("default_signals")
def test_an_interrupted_run_ends_as_if_it_had_not_been(trained, corpus, holdout, tmp_path, tfrl):
    arguments = train_arguments(corpus, holdout, tmp_path / "own.db", tmp_path / "run")
    running = start(arguments)
    for line in running.stderr:
        if line.startswith("iteration 1:"):
            break
    running.send_signal(signal.SIGINT)
    _, rest = running.communicate(timeout=60)
    workdir = tmp_path / "run"
    assert not (workdir / "result.json").exists()
    assert running.returncode == 130
    (line,) = [line for line in rest.splitlines() if line.startswith("tfrl: ")]
    assert "go on with: tfrl train inlining" in line and line.endswith("--resume")
    ran = tfrl(*arguments, "--resume")
    assert ran.status == 0 and "iteration 1 (kept):" in ran.err
    resumed, whole = read_result(workdir), read_result(trained)
    for name in ("policy_sha256", "experience_sha256", "environment_steps"):
        assert resumed[name] == whole[name], name
    arrays = pathlib.Path("policy", "numpy_policy.npz")
    assert (workdir / arrays).read_bytes() == (trained / arrays).read_bytes()
    assert not [path for path in workdir.iterdir() if path.name.startswith(".")]


def test_a_finished_run_is_not_done_again(trained, corpus, holdout, cache, tfrl, tmp_path):
    finished = shutil.copytree(trained, tmp_path / "run")
    before = (finished / "result.json").stat().st_mtime_ns
    ran = tfrl(*train_arguments(corpus, holdout, cache, finished), "--resume", "--json")
    assert ran.status == 0 and "already finished" in ran.err
    assert ran.json == read_result(trained)
    assert (finished / "result.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ([], "expected a directory without a run, found one; go on with it by --resume"),
        (["--resume", "--seed", "3"], "expected to resume with seed = 0 as the run began, found 3"),
        (["--resume", "--set", "weight_decay=9"], "expected to resume with weight_decay = 0.01"),
    ],
)
def test_another_run_in_the_directory_is_left_alone(
    trained, corpus, holdout, cache, tfrl, more, message
):
    ran = tfrl(*train_arguments(corpus, holdout, cache, trained), *more)
    assert ran.status == 1 and message in ran.err


def test_other_files_in_the_directory_are_left_alone(corpus, holdout, cache, tfrl, tmp_path):
    (tmp_path / "thesis.txt").write_text("mine")
    ran = tfrl(*train_arguments(corpus, holdout, cache, tmp_path))
    assert ran.status == 1 and "found other files" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_setting_that_cannot_work_is_found_before_anything_is_compiled(
    corpus, holdout, tfrl, tmp_path
):
    arguments = train_arguments(corpus, holdout, tmp_path / "new.db", tmp_path / "run")
    ran = tfrl(*arguments, "--set", "num_knots=1")
    assert ran.status == 1 and "expected num_knots within its range" in ran.err
    assert "of 5" not in ran.err
    assert tfrl(*arguments, "--set", "iterations=1").status == 0


def test_the_same_modules_held_out_are_a_warning(corpus, cache, tfrl, tmp_path):
    ran = tfrl(*train_arguments(corpus, corpus, cache, tmp_path / "run"), *("--iterations", "1"))
    assert ran.status == 0 and "warning: 5 of the modules in --holdout" in ran.err
