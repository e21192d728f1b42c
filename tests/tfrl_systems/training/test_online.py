"""Online training: the same run however it is collected, interrupted and resumed."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from environments.errors import UserError
from tfrl_systems.agents import ppo, reinforce
from tfrl_systems.cli.learn_to_optimize.problem import MakeRunner, Problem
from tfrl_systems.cli.learn_to_optimize.train import Training, train
from tfrl_systems.policies.optimizer_policy import OptimizerPolicy
from tfrl_systems.training import online
from tfrl_systems.training.checkpoints import open_workdir

CONFIG = online.Config(
    iterations=6, num_chunks=3, episodes_per_chunk=4, evaluate_every=2, checkpoint_every=2
)
TRAINING = Training(
    Problem("shifted_sphere", 2, 1, sampler="heterogeneous"),
    CONFIG,
    "ppo",
    ppo.Config(hidden_sizes=(8,), num_epochs=2),
)
SAME = ("experience_sha256", "policy_sha256", "environment_steps")


def run(path, training=TRAINING, num_workers=0, resume=False):
    with open_workdir(path, training.settings(), resume=resume) as workdir:
        return train(training, workdir, num_workers)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A run in this process: its directory and its result."""
    path = tmp_path_factory.mktemp("finished") / "run"
    return path, run(path)


def test_a_run_by_hand(finished):
    path, result = finished
    # 6 iterations of 3 chunks of 4 episodes of 2 steps.
    assert result["environment_steps"] == 6 * 3 * 4 * 2
    assert [one["iteration"] for one in result["evaluation"]["iterations"]] == [2, 4, 6]
    # More than nine tenths of 6 is 6 alone.
    assert result["evaluation"]["last_tenth"] == result["evaluation"]["last"]
    assert json.loads((path / "result.json").read_text()) == result
    policy = OptimizerPolicy.load(path / "policy")
    assert policy(np.zeros(1)).shape == (1,)
    assert [one.name for one in sorted((path / "checkpoints").iterdir())] == [
        "000002",
        "000004",
        "000006",
    ]


def test_workers_collect_the_same(finished, tmp_path):
    piped = run(tmp_path / "run", num_workers=2)
    assert [piped[name] for name in SAME] == [finished[1][name] for name in SAME]
    assert piped["seconds"]["collecting"] > 0 and piped["seconds"]["broadcasting"] > 0


@pytest.mark.parametrize("agent", ["ppo", "reinforce"])
def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path, monkeypatch, agent):
    agent_config = {"ppo": TRAINING.agent_config, "reinforce": reinforce.Config(hidden_sizes=(8,))}
    training = Training(TRAINING.problem, CONFIG, agent, agent_config[agent])
    whole = run(tmp_path / "whole", training)
    step = online.OnlineLoop.step

    def interrupted(loop):
        if loop.iteration == 5:
            raise KeyboardInterrupt
        return step(loop)

    monkeypatch.setattr(online.OnlineLoop, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", training)
    monkeypatch.undo()
    resumed = run(tmp_path / "run", training, resume=True)
    assert [resumed[name] for name in SAME] == [whole[name] for name in SAME]
    assert resumed["evaluation"] == whole["evaluation"]


def test_another_seed_is_another_run(finished, tmp_path):
    training = Training(
        TRAINING.problem,
        online.Config(**{**vars(CONFIG), "seed": 1}),
        "ppo",
        ppo.Config(hidden_sizes=(8,), num_epochs=2, seed=1),
    )
    assert run(tmp_path / "run", training)["experience_sha256"] != finished[1]["experience_sha256"]


class Faulty:
    """A runner whose second chunk always fails."""

    def __init__(self, runner):
        self._runner = runner
        self.load, self.close = runner.load, runner.close

    def run(self, job):
        if job.index == 1:
            raise ValueError("no such place")
        return self._runner.run(job)


def test_chunks_that_fail(finished, tmp_path, monkeypatch):
    make = MakeRunner.__call__
    monkeypatch.setattr(MakeRunner, "__call__", lambda self: Faulty(make(self)))
    with pytest.raises(UserError, match="1 of 3 chunks failed: chunk 1 of iteration 0.*no such"):
        run(tmp_path / "stopped")
    config = dataclasses.replace(CONFIG, max_failed_chunks=1)
    result = run(tmp_path / "run", dataclasses.replace(TRAINING, config=config))
    # Of 3 chunks 2 are learned from.
    assert result["environment_steps"] == 6 * 2 * 4 * 2


def test_a_loss_that_is_no_number_is_one_line(finished, tmp_path):
    training = Training(
        TRAINING.problem, CONFIG, "ppo", ppo.Config(hidden_sizes=(8,), learning_rate=1e30)
    )
    with pytest.raises(UserError, match="expected a finite"):
        run(tmp_path / "run", training)


def test_the_state_of_another_agent_is_refused(finished, tmp_path):
    state = sorted((finished[0] / "checkpoints" / "000002").glob("state*"))
    run(tmp_path / "run", resume=False)
    for path in state:
        (tmp_path / "run" / "checkpoints" / "000006" / path.name).write_bytes(b"damaged")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(UserError, match="expected the state of this agent"):
        run(tmp_path / "run", resume=True)


def test_the_mean_of_the_last_tenth():
    curves = [{"iteration": number, "mse": float(number)} for number in range(5, 101, 5)]
    # Above 90: 95 and 100.
    assert online.summarise(curves) == {"last": {"mse": 100.0}, "last_tenth": {"mse": 97.5}}
