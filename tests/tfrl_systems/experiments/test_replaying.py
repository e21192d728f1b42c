"""Trajectories of several authors are played again, and ranked where they can be compared."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib

import numpy as np
import pytest

from environments.errors import UserError
from environments.recording import Recorder
from environments.trajectories import Trajectory
from tests.environments.small_episodes import GOLDEN, write_corpus
from tfrl_systems import experiments
from tfrl_systems.experiments.replaying import replay_table

SPHERE = {"function": "sphere", "dimensions": 2, "free": 1, "episode_length": 1}


def write(path: pathlib.Path, x: float, author: str, c: float = 0.0, **settings) -> pathlib.Path:
    """An episode that goes from (0.5, c) to (x, c)."""
    with contextlib.closing(Recorder("learn_to_optimize", **{**SPHERE, **settings})) as recorder:
        recorder.reset_at([0.5, c])
        recorder.step(np.array([x], np.float32))
        recorder.save_trajectory(path, author)
    return path


def forge(path: pathlib.Path, **fields) -> None:
    dataclasses.replace(Trajectory.load(path), **fields).save(path)


@pytest.fixture
def board(tmp_path):
    """Three authors at one context, of whom two are equally good, and one at another context."""
    write(tmp_path / "far.json", 0.25, "ada")
    write(tmp_path / "near.json", 0.0, "eve")
    write(tmp_path / "mirrored.json", -0.25, "bob")
    write(tmp_path / "elsewhere.json", 0.25, "eve", c=0.5)
    return tmp_path


def test_those_of_a_context_are_ranked_by_reward(board):
    rows = experiments.replay(board)["trajectories"]
    by_name = {pathlib.Path(row["path"]).stem: row for row in rows}
    assert all(row["equal"] and not row["difference"] for row in rows)
    ranks = {name: row["rank"] for name, row in by_name.items()}
    assert ranks == {"near": 1, "far": 2, "mirrored": 2, "elsewhere": 1}
    near = by_name["near"]
    # (5.12 / 2)^2 at (0.5, 0), and 0 at the origin.
    assert near["reward"] == pytest.approx(6.5536) and near["steps"] == 1
    assert near["result"] == {"cost": 0.0, "start_cost": pytest.approx(6.5536)}
    assert (near["environment"], near["context"]) == ("learn_to_optimize", "0.5 0.0")
    assert (near["author"], near["settings"], near["finished"]) == ("eve", SPHERE, True)


def test_the_table_has_a_part_for_each_context(board):
    lines = replay_table(experiments.replay([board])).splitlines()
    assert [line.split()[:3] for line in lines if ".json" in line] == [
        ["eve", "1", "6.5536"],
        ["ada", "2", "4.9152"],
        ["bob", "2", "4.9152"],
        ["eve", "1", "4.9152"],
    ]
    settings = "function=sphere, dimensions=2, free=1, episode_length=1"
    assert [line for line in lines if ", " in line] == [
        f"learn_to_optimize, 0.5 {c}, {settings}" for c in ("0.0", "0.5")
    ]
    assert lines[1].split() == [
        "author", "rank", "reward", "cost", "start_cost", "steps", "replay", "file",
    ]  # fmt: skip


def test_other_settings_are_another_table_unless_they_only_draw(tmp_path):
    write(tmp_path / "a.json", 0.0, "a")
    write(tmp_path / "b.json", 0.25, "b", seed=7, sampler="latin_hypercube")
    write(tmp_path / "c.json", 0.25, "c", reward="log1p")
    rows = experiments.replay(tmp_path)["trajectories"]
    assert [row["rank"] for row in rows] == [1, 2, 1]


def test_only_equal_episodes_with_an_end_are_ranked(board):
    forge(board / "near.json", rewards=(7.0,))
    forge(board / "far.json", is_finished=False, info={})
    (board / "notes.json").write_text("{}")
    with contextlib.closing(Recorder("learn_to_optimize", **SPHERE)) as recorder:
        recorder.reset_at([0.5, 0.0])
        recorder.save_trajectory(board / "begun.json")
    result = experiments.replay(board)
    rows = {pathlib.Path(row["path"]).stem: row for row in result["trajectories"]}
    assert [name for name, row in rows.items() if row["rank"]] == ["elsewhere", "mirrored"]
    assert rows["mirrored"]["rank"] == 1
    assert rows["near"]["difference"] == "step 1: expected reward 7.0, found 6.553599834442139"
    assert rows["far"]["difference"] == "step 1: expected end later, found here"
    assert "expected a file of the format" in rows["notes"]["difference"]
    assert rows["notes"]["reward"] is None and not rows["notes"]["equal"]
    assert rows["begun"]["equal"] and rows["begun"]["finished"] is False
    table = replay_table(result)
    assert table.split("not ranked\n")[1].splitlines() == [
        f"  {board}/begun.json: equal, 0 steps, reward 0, the episode did not end",
        f"  {board}/far.json: step 1: expected end later, found here",
        f"  {board}/near.json: {rows['near']['difference']}",
        f"  {rows['notes']['difference']}",
    ]


def test_each_system_tells_its_own_result(tmp_path):
    corpus = write_corpus(tmp_path / "corpus")
    rows = experiments.replay(GOLDEN, corpus=str(corpus))["trajectories"]
    assert [row["difference"] for row in rows] == ["", "", ""]
    assert [list(row["result"]) for row in rows] == [
        ["size_bytes", "default_size_bytes"],
        ["cost", "start_cost"],
        ["best_cost_ms", "start_cost_ms"],
    ]
    assert rows[0]["result"] == {"size_bytes": 413, "default_size_bytes": 199}


def test_a_setting_that_no_trajectory_has_is_refused(board):
    with pytest.raises(UserError, match="found corpsu; leave that out"):
        experiments.replay(board, corpsu="runs/mine")


def test_what_is_not_there_is_said(tmp_path):
    with pytest.raises(UserError, match="nothing.json: expected a trajectory, found no such file"):
        experiments.replay(tmp_path / "nothing.json")
    with pytest.raises(UserError, match="expected trajectories, found no .json file"):
        experiments.replay(tmp_path)
