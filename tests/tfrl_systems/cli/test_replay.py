"""`tfrl replay` says equal or what differs, and makes the table of several trajectories."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

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
    ran = tfrl("replay", forged, "--json")
    assert ran.status == 1
    (row,) = ran.json["trajectories"]
    assert (
        row["equal"] is False and f"{forged}: {row['difference']}\n" == tfrl("replay", forged).out
    )


def test_several_are_a_table(tfrl, forged, tmp_path):
    corpus = write_corpus(tmp_path / "corpus")
    ran = tfrl("replay", GOLDEN, forged, "--corpus", corpus)
    assert ran.status == 1
    assert "replays: 4 of 4" in ran.err
    golden = [line for line in ran.out.splitlines() if line.startswith("golden")]
    assert len(golden) == 3 and all(line.split()[1] == "1" for line in golden)
    assert f"not ranked\n  {forged}: step 1" in ran.out


@pytest.mark.ci
def test_all_are_equal_in_a_process_of_their_own(tmp_path):
    """Its exit status says so, and stdout has one object."""
    corpus = write_corpus(tmp_path / "corpus")
    words = ["replay", str(GOLDEN), "--corpus", str(corpus), "--json"]
    done = subprocess.run(
        [sys.executable, "-m", "tfrl_systems.cli.main", *words], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count('"equal": true') == 3 and done.stdout.count("\n") == 1


def test_a_file_that_is_not_there_is_one_line(tfrl, tmp_path):
    ran = tfrl("replay", LEARNED, tmp_path / "nothing.json")
    assert ran.status == 1 and not ran.out
    assert ran.err == (
        f"tfrl: {tmp_path}/nothing.json: expected a trajectory, found no such file; correct it\n"
    )
    ran = tfrl("replay", tmp_path)
    assert ran.status == 1 and "expected trajectories, found no .json file" in ran.err


def test_a_foreign_file_is_one_line(tfrl, tmp_path):
    path = tmp_path / "other.json"
    path.write_text("[1, 2")
    ran = tfrl("replay", path)
    assert ran.status == 1 and ran.out.startswith(f"{path}: expected JSON, found: ")
    assert len(ran.out.splitlines()) == 1


def test_a_corpus_for_those_that_have_none_is_refused(tfrl, tmp_path):
    ran = tfrl("replay", LEARNED, "--corpus", tmp_path)
    assert ran.status == 1 and "found corpus; leave that out" in ran.err


@pytest.mark.parametrize("words", [(), ("--corpus",), (LEARNED, "--nothing")])
def test_wrong_usage(tfrl, words):
    ran = tfrl("replay", *words)
    assert ran.status == 2 and not ran.out
