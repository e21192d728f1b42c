"""Online training: the same run however it is collected, interrupted and resumed."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest

from environments.errors import UserError
from tfrl_systems import experiments
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.drivers.pipes.worker_handle import WorkerHandle
from tfrl_systems.experiments.systems.learn_to_optimize.learning import MakeRunner
from tfrl_systems.policies.optimizer_policy import OptimizerPolicy
from tfrl_systems.training import online
from tfrl_systems.training.checkpoints import Workdir
from tfrl_systems.training.curves import summarise

SETTINGS = {
    "iterations": 6,
    "num_chunks": 3,
    "episodes_per_chunk": 4,
    "evaluate_every": 2,
    "checkpoint_every": 2,
    "hidden_sizes": (8,),
}
DREAMING = {
    "memory_size": 8,
    "head_size": 8,
    "num_dreams": 16,
    "dream_updates": 3,
    "fit_updates": 4,
    "fit_episodes": 6,
    "random_share": 0.5,
    "real_share": 0.0,
}
SAME = ("experience_sha256", "policy_sha256", "environment_steps")


def run(path, agent="ppo", collect=None, seed=0, resume=False, **settings):
    found = experiments.train(
        "learn_to_optimize",
        agent=agent,
        workdir=path,
        seed=seed,
        settings={**SETTINGS, **settings},
        collect=collect,
        resume=resume,
        function="shifted_sphere",
        sampler="heterogeneous",
    )
    return found.result


def checkpoints(path):
    return sorted(one.name for one in (path / "checkpoints").iterdir())


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
    # Checkpoints of iterations 2, 4 and 6 were written; the last two are kept.
    assert checkpoints(path) == ["000004", "000006"]


def test_workers_collect_the_same_though_one_is_killed_at_work(
    finished, tmp_path, monkeypatch, caplog
):
    given = []

    def give_and_kill(worker, number, job_pickled, give=WorkerHandle.run):
        given.append(number)
        if len(given) == 5:  # in the second iteration; it dies with the chunk unanswered
            worker._process.kill()
        give(worker, number, job_pickled)

    monkeypatch.setattr(WorkerHandle, "run", give_and_kill)
    piped = run(tmp_path / "run", collect=Collect("pipes", 2))
    assert "of iteration 1, seed 0: its worker was ended by SIGKILL" in caplog.text
    assert len(given) > 6 * 3
    assert [piped[name] for name in SAME] == [finished[1][name] for name in SAME]
    assert piped["seconds"]["collecting"] > 0 and piped["seconds"]["broadcasting"] > 0


@pytest.mark.parametrize("agent", ["ppo", "reinforce", "es", "world_model"])
def test_an_interrupted_run_ends_as_if_it_had_not_been(tmp_path, monkeypatch, agent):
    settings = DREAMING if agent == "world_model" else {}
    whole = run(tmp_path / "whole", agent, **settings)
    step = online.OnlineLoop.step

    def interrupted(loop):
        if loop.iteration == 5:
            raise KeyboardInterrupt
        return step(loop)

    monkeypatch.setattr(online.OnlineLoop, "step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "run", agent, **settings)
    monkeypatch.undo()
    resumed = run(tmp_path / "run", agent, resume=True, **settings)
    assert [resumed[name] for name in SAME] == [whole[name] for name in SAME]
    assert resumed["evaluation"] == whole["evaluation"]
    if agent == "world_model":
        told, again = whole["world_model"], resumed["world_model"]
        assert told["dream_steps"] == again["dream_steps"] == 6 * 3 * 16
        assert told["prediction"] == again["prediction"]


def test_directions_are_the_same_with_workers_though_one_is_killed(tmp_path, monkeypatch):
    here = run(tmp_path / "here", "es")
    # 3 directions with two ends of 4 episodes of 2 steps.
    assert here["environment_steps"] == 6 * 3 * 2 * 4 * 2
    given = []

    def give_and_kill(worker, number, job_pickled, give=WorkerHandle.run):
        given.append(number)
        if len(given) == 5:
            worker._process.kill()
        give(worker, number, job_pickled)

    monkeypatch.setattr(WorkerHandle, "run", give_and_kill)
    piped = run(tmp_path / "piped", "es", collect=Collect("pipes", 2))
    assert len(given) > 6 * 3
    assert [piped[name] for name in SAME] == [here[name] for name in SAME]


def test_a_run_can_begin_with_the_policy_of_another(finished, tmp_path):
    """The network is the same; steps that are next to nothing leave it as it was."""
    begun = {"warm_start": str(finished[0] / "policy"), "learning_rate": 1e-9}
    run(tmp_path / "run", "reinforce", final_learning_rate=1e-9, **begun)
    c = np.linspace(-1, 1, 5)[:, np.newaxis]
    policies = [OptimizerPolicy.load(one / "policy") for one in (finished[0], tmp_path / "run")]
    np.testing.assert_allclose(policies[1](c), policies[0](c), atol=1e-5)
    with pytest.raises(UserError, match="expected a policy with the network of this run, found"):
        run(tmp_path / "other", "es", **begun)
    with pytest.raises(UserError, match="world_model: expected warm_start within its range"):
        run(tmp_path / "dreamed", "world_model", **{**DREAMING, **begun})


def test_a_world_model_learns_the_same_with_workers(tmp_path):
    here = run(tmp_path / "here", "world_model", **DREAMING)
    piped = run(tmp_path / "piped", "world_model", collect=Collect("pipes", 2), **DREAMING)
    assert [piped[name] for name in SAME] == [here[name] for name in SAME]
    assert piped["world_model"]["prediction"] == here["world_model"]["prediction"]
    assert OptimizerPolicy.load(tmp_path / "here" / "policy")(np.zeros(1)).shape == (1,)
    # Every prediction has a figure; the episodes of this system have two steps.
    found = here["world_model"]["prediction"]
    assert len(found["error_by_step"]) == 1 and len(found["reward_error_by_step"]) == 2


def test_another_seed_is_another_run(finished, tmp_path):
    other = run(tmp_path / "run", seed=1)
    assert other["experience_sha256"] != finished[1]["experience_sha256"]


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
    result = run(tmp_path / "run", max_failed_chunks=1)
    # Of 3 chunks 2 are learned from.
    assert result["environment_steps"] == 6 * 2 * 4 * 2


def test_a_loss_that_is_no_number_is_one_line(finished, tmp_path):
    with pytest.raises(UserError, match="expected a finite"):
        run(tmp_path / "run", learning_rate=1e30)


def test_a_damaged_state_is_refused(finished, tmp_path):
    state = sorted((finished[0] / "checkpoints" / "000004").glob("state*"))
    run(tmp_path / "run", resume=False)
    for path in state:
        (tmp_path / "run" / "checkpoints" / "000006" / path.name).write_bytes(b"damaged")
    (tmp_path / "run" / "result.json").unlink()
    with pytest.raises(UserError, match="state.*: expected the file that training wrote"):
        run(tmp_path / "run", resume=True)


def test_the_mean_of_the_last_tenth():
    curves = [{"iteration": number, "mse": float(number)} for number in range(5, 101, 5)]
    # Above 90: 95 and 100.
    assert summarise(curves) == {"last": {"mse": 100.0}, "last_tenth": {"mse": 97.5}}


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
    config = online.Config(iterations, evaluate_every=evaluate_every)
    assert config.record_every == record_every


def test_a_long_run_is_as_a_short_one_with_fewer_points(finished, tmp_path, monkeypatch):
    """Of 6 evaluations those of iterations 3 and 6 are points, where 2 points may be kept."""
    monkeypatch.setattr(online, "MAX_POINTS", 2)
    path = tmp_path / "run"
    result = run(path, evaluate_every=1, checkpoint_every=1)
    assert [one["iteration"] for one in result["evaluation"]["iterations"]] == [3, 6]
    assert [one["iteration"] for one in result["training"]] == [3, 6]
    names = [one.name for one in path.glob("tensorboard/run/events*")]
    assert sorted(name.split(".")[-1] for name in names) == [
        "checkpoint-000003",
        "checkpoint-000006",
        "settings",
    ]
    assert [result[name] for name in SAME] == [finished[1][name] for name in SAME]


class Killed(Exception):
    """The process ends here."""


@pytest.mark.parametrize("moment", ["before pruning", "while pruning"])
def test_a_run_that_is_killed_while_it_prunes_goes_on(finished, tmp_path, monkeypatch, moment):
    """It is killed after it has written the checkpoint of iteration 6."""
    path = tmp_path / "run"

    def prune(workdir, num_kept, prune=Workdir.prune):
        if workdir.last() < 6:
            return prune(workdir, num_kept)
        if moment == "while pruning":
            # The oldest has been moved away, and is half removed.
            workdir.checkpoint(2).rename(path / ".unfinished")
            (path / ".unfinished" / "iteration.json").unlink()
        raise Killed

    monkeypatch.setattr(Workdir, "prune", prune)
    with pytest.raises(Killed):
        run(path)
    monkeypatch.undo()
    resumed = run(path, resume=True)
    assert [resumed[name] for name in SAME] == [finished[1][name] for name in SAME]
    assert resumed["evaluation"] == finished[1]["evaluation"]
    assert not (path / ".unfinished").exists()


def test_a_run_goes_on_from_the_checkpoint_before_a_damaged_one(finished, tmp_path):
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
