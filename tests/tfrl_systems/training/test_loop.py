"""Online training: the same run however it is collected, interrupted and resumed."""

from __future__ import annotations

import json
import shutil
import types

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.agents import tf_agent
from tf_agents.trajectories import trajectory

from environments.errors import UserError
from tfrl_systems.drivers.collect import Collect, make_pool
from tfrl_systems.episodes import Experience
from tfrl_systems.systems.learn_to_optimize.optimizer_policy import OptimizerPolicy
from tfrl_systems.systems.learn_to_optimize.problem import Problem
from tfrl_systems.training import loop

SAME = ("experience_sha256", "policy_sha256", "environment_steps")


@pytest.fixture
def finished(lent_run):
    """A run in this process, only to be read: its directory and its result."""
    finished = lent_run("learn_to_optimize", "ppo")
    return finished.workdir, finished.result


@pytest.fixture
def run(small_run):
    """Trains a small run with some settings of its own; returns its result."""

    def train(path, agent="ppo", resume=False, seed=0, **settings):
        small = small_run("learn_to_optimize", agent)
        return small.train(path, settings=settings, seed=seed, resume=resume).result

    return train


def checkpoints(path):
    return sorted(directory.name for directory in (path / "checkpoints").iterdir())


def test_a_run_by_hand(finished):
    path, result = finished
    # 6 iterations of 3 chunks of 4 episodes of 2 steps.
    assert result["environment_steps"] == 6 * 3 * 4 * 2
    assert [point["iteration"] for point in result["evaluation"]["iterations"]] == [2, 4, 6]
    # More than nine tenths of 6 is 6 alone.
    assert result["evaluation"]["last_tenth"] == result["evaluation"]["last"]
    assert json.loads((path / "result.json").read_text()) == result
    policy = OptimizerPolicy.load(path / "policy")
    assert policy(np.zeros(1)).shape == (1,)
    # Checkpoints of iterations 2, 4 and 6 were written; the last two are kept.
    assert checkpoints(path) == ["000004", "000006"]


class Diary:
    """What happens in a loop, and a clock that only what happens moves."""

    def __init__(self):
        self.entries, self.now_s = [], 0.0

    def note(self, entry, took_s):
        self.entries.append(entry)
        self.now_s += took_s


class Driver:
    """Plays one step for each chunk, whose reward is θ + 10 times the chunk's number in the run."""

    def __init__(self, diary):
        self._diary = diary

    def load(self, data):
        # The buffer ends with the values of the only variable.
        self._theta = float(np.frombuffer(data[-4:], "<f4")[0])
        self._diary.note(f"load {self._theta:g}", 1)

    def run(self, job):
        self._diary.note(f"run {job.number}", 2)
        zero = np.zeros((1, 1), np.int32)
        reward = np.array([[self._theta + 10 * job.number]], np.float32)
        steps = trajectory.Trajectory(zero, zero, zero, (), zero + 2, reward, 0 * reward)
        return Experience(steps, np.array([""]), {})

    def close(self):
        pass


def test_the_training_loop_of_the_thesis_by_hand(monkeypatch):
    """Algorithms 5.1, 5.3 and 5.4 of Mayer's thesis, with the clock of 4.1.

    Each training step sends θ, lets every driver run, merges the trajectories in the drivers'
    order, and trains; here training makes θ the mean reward. From θ = 1, with two drivers:

      step  θ sent  rewards                     θ then
         1       1  1 + 10·0 = 1, 1 + 10·1 = 11      6
         2       6  6 + 10·2 = 26, 6 + 10·3 = 36    31

    Loading takes 1 s, each of two runs 2 s and training 4 s, so t_broadcasting is 1, t_collecting
    4 and t_training 4 in each step. The thesis's t_collecting is our `waiting`.
    """
    diary = Diary()
    theta = tf.Variable(1.0, name="theta")
    agent = types.SimpleNamespace(
        collect_policy=types.SimpleNamespace(variables=lambda: [theta]),
    )

    def train(iteration, experience):
        rewards = experience.trajectory.reward[:, 0]
        diary.note(f"train {rewards.tolist()}", 4)
        theta.assign(rewards.mean())
        return tf_agent.LossInfo(np.float32(0), types.SimpleNamespace(_asdict=dict))

    monkeypatch.setattr(loop, "mean_entropy", lambda experience: None)
    with make_pool(Collect(), lambda: Driver(diary)) as pool:
        training = loop.OnlineLoop(agent, train, pool, loop.Config(num_chunks=2))
        monkeypatch.setattr("time.perf_counter", lambda: diary.now_s)
        records = [training.step() for _ in range(2)]
    assert diary.entries == [
        *("load 1", "run 0", "run 1", "train [1.0, 11.0]"),
        *("load 6", "run 2", "run 3", "train [26.0, 36.0]"),
    ]
    assert theta.numpy() == 31
    for record in records:
        assert record["seconds"] == {
            **{"broadcasting": 1, "waiting": 4, "training": 4},
            "collecting": 4,  # the workers' own work
        }


@pytest.mark.parametrize(("components", "agent"), [(1, "reinforce"), (8, "ppo")])
def test_a_run_can_begin_with_the_policy_of_another(run, tmp_path, components, agent):
    """The network is the same; steps that are next to nothing leave it as it was."""
    run(tmp_path / "first", "ppo", components=components)
    begun = {"warm_start": str(tmp_path / "first" / "policy"), "iterations": 1}
    run(tmp_path / "run", agent, learning_rate=1e-9, final_learning_rate=1e-9, **begun)
    c = np.linspace(-1, 1, 5)[:, np.newaxis]
    policies = [OptimizerPolicy.load(tmp_path / name / "policy") for name in ("first", "run")]
    np.testing.assert_allclose(policies[1](c), policies[0](c), atol=1e-5)


def test_a_policy_of_another_network_is_refused(run, finished, tmp_path):
    begun = {"warm_start": str(finished[0] / "policy"), "iterations": 1}
    with pytest.raises(UserError, match="expected a policy with the network of this run, found"):
        run(tmp_path / "wider", "ppo", hidden_sizes=(5,), **begun)
    with pytest.raises(UserError, match=r"of the kind actor, .* found mixture; .*components=1"):
        run(tmp_path / "other", "es", **begun)
    with pytest.raises(UserError, match="world_model: expected warm_start within its range"):
        run(tmp_path / "dreamed", "world_model", **begun)


class Faulty:
    """A runner whose second chunk always fails."""

    def __init__(self, runner):
        self._runner = runner
        self.load, self.close = runner.load, runner.close

    def run(self, job):
        if job.index == 1:
            raise ValueError("no such place")
        return self._runner.run(job)


def test_chunks_that_fail(run, tmp_path, monkeypatch):
    make = Problem.make_runner
    monkeypatch.setattr(Problem, "make_runner", lambda *parts: Faulty(make(*parts)))
    with pytest.raises(
        UserError, match="1 of 3 chunks failed: chunk 1 of iteration 0, seed 1: .*no such"
    ):
        run(tmp_path / "stopped", seed=1)
    result = run(tmp_path / "run", iterations=2, max_failed_chunks=1)
    # Of 3 chunks 2 are learned from.
    assert result["environment_steps"] == 2 * 2 * 4 * 2


def test_a_loss_that_is_no_number_is_one_line(run, tmp_path):
    with pytest.raises(UserError, match="expected a finite"):
        run(tmp_path / "run", learning_rate=1e30)


@pytest.mark.parametrize(
    ("iterations", "evaluate_every", "record_every"),
    [
        (6, 2, 2),
        (6, 10, 10),  # the last iteration alone is evaluated
        (10_000, 10, 10),  # 1,000 evaluations
        (10_010, 10, 20),  # 1,001 of them: every second
        (2_900_000, 10, 2_900),  # a day of learn_to_optimize: 1,000 of 290,000
    ],
)
def test_long_runs_keep_some_of_their_evaluations(iterations, evaluate_every, record_every):
    config = loop.Config(iterations, evaluate_every=evaluate_every)
    assert config.record_every == record_every


def test_a_long_run_is_as_a_short_one_with_fewer_points(run, finished, tmp_path, monkeypatch):
    """Of 6 evaluations those of iterations 3 and 6 are points, where 2 points may be kept."""
    monkeypatch.setattr(loop, "MAX_POINTS", 2)
    path = tmp_path / "run"
    result = run(path, evaluate_every=1, checkpoint_every=1)
    assert [point["iteration"] for point in result["evaluation"]["iterations"]] == [3, 6]
    assert [point["iteration"] for point in result["training"]] == [3, 6]
    names = [point.name for point in path.glob("tensorboard/run/events*")]
    assert sorted(name.split(".")[-1] for name in names) == [
        "checkpoint-000003",
        "checkpoint-000006",
        "settings",
    ]
    assert [result[name] for name in SAME] == [finished[1][name] for name in SAME]


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(run, finished, tmp_path):
    path = tmp_path / "run"
    shutil.copytree(finished[0], path)
    (path / "result.json").unlink()
    damaged = path / "checkpoints" / "000006"
    next(damaged.glob("state.data*")).write_bytes(b"damaged")
    with pytest.raises(UserError, match=f"remove {damaged} to go on from the checkpoint before it"):
        run(path, resume=True)
    shutil.rmtree(damaged)
    # One digit of a number, which is JSON as before.
    record = path / "checkpoints" / "000004" / "iteration.json"
    right = record.read_text()
    record.write_text(right.replace('"environment_steps": ', '"environment_steps": 1', 1))
    with pytest.raises(UserError, match="iteration.json: expected the file that training wrote"):
        run(path, resume=True)
    record.write_text(right)
    resumed = run(path, resume=True)
    assert [resumed[name] for name in SAME] == [finished[1][name] for name in SAME]
    assert checkpoints(path) == ["000004", "000006"]
