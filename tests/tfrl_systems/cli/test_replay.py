"""`tfrl replay` says equal or what differs, and makes the table of several trajectories."""

from __future__ import annotations

import dataclasses

import pytest

from environments.trajectories import Trajectory
from tests.environments.small_episodes import GOLDEN, write_corpus

LEARNED = GOLDEN / "learn_to_optimize.json"


@pytest.fixture
def forged(tmp_path):
    """A trajectory with a reward that nobody gets."""
    path = tmp_path / "forged.json"
    trajectory = Trajectory.load(LEARNED)
    dataclasses.replace(trajectory, rewards=(9.0, *trajectory.rewards[1:])).save(path)
    return path


def test_one_that_is_equal(tfrl):
    ran = tfrl("replay", LEARNED)
    assert ran.status == 0 and not ran.err
    assert ran.out == f"{LEARNED}: equal, 4 steps, reward 4.59289\n"


def test_one_that_differs(tfrl, forged):
    ran = tfrl("replay", forged)
    assert ran.status == 1 and not ran.err
    assert ran.out.startswith(f"{forged}: step 1: expected reward 9.0, found 0.21306692063")
    (row,) = tfrl("replay", forged, "--json").json["trajectories"]
    assert row["equal"] is False and ran.out == f"{forged}: {row['difference']}\n"


def test_several_are_a_table(tfrl, forged, tmp_path):
    corpus = write_corpus(tmp_path / "corpus")
    ran = tfrl("replay", GOLDEN, forged, "--corpus", corpus)
    assert ran.status == 1
    assert "replays: 4 of 4" in ran.err
    golden = [line for line in ran.out.splitlines() if line.startswith("golden")]
    assert len(golden) == 3 and all(line.split()[1] == "1" for line in golden)
    assert f"not ranked\n  {forged}: step 1" in ran.out
