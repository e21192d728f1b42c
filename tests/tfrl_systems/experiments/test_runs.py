"""What holds for the run of any agent on any system, each pinned here once."""

from __future__ import annotations

import shutil

import pytest

from tests.tfrl_systems.small_runs import SETTINGS
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.drivers.pipes.worker_handle import WorkerHandle

# A system whose experience comes from other processes, and each kind of job that a worker does.
WITH_WORKERS = {
    ("learn_to_optimize", "es"),
    ("tensor_graphs", "ppo"),
    ("inlining", "ppo"),
}
SAME = ("experience_sha256", "policy_sha256", "environment_steps", "evaluation", "iterations")


def assert_same(run, reference) -> None:
    for name in SAME:
        assert run.result[name] == reference.result[name], name
    arrays = [path.name for path in reference.policy.glob("*.npz")]
    assert arrays
    for name in arrays:
        assert (run.policy / name).read_bytes() == (reference.policy / name).read_bytes()


DEAR = {
    *(("learn_to_optimize", agent) for agent in ("es", "reinforce", "world_model")),
    *((system, "ppo") for system in ("tensor_graphs", "inlining")),
}


@pytest.mark.parametrize(
    "system, agent",
    [pytest.param(*run, marks=pytest.mark.ci if run in DEAR else ()) for run in SETTINGS],
)
def test_a_killed_run_ends_as_if_it_had_not_been(lent_run, small_run, tmp_path, system, agent):
    """What a run leaves that is killed before its last checkpoint; it goes on, with workers."""
    whole = lent_run(system, agent)
    shutil.copytree(whole.workdir, tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    *_, last = sorted((tmp_path / "run" / "checkpoints").iterdir())
    shutil.rmtree(last)
    collect = Collect("pipes", 1) if (system, agent) in WITH_WORKERS else Collect()
    resumed = small_run(system, agent).train(tmp_path / "run", collect=collect, resume=True)
    assert_same(resumed, whole)
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]
    if agent == "world_model":
        # 6 iterations of 3 updates of 16 dreams.
        dreamed, again = whole.result["world_model"], resumed.result["world_model"]
        assert dreamed["dream_steps"] == again["dream_steps"] == 6 * 3 * 16
        assert dreamed["prediction"] == again["prediction"]
        # Every prediction has a figure; the episodes of this system have two steps.
        assert len(dreamed["prediction"]["error_by_step"]) == 1
        assert len(dreamed["prediction"]["reward_error_by_step"]) == 2


@pytest.mark.ci
def test_workers_collect_the_same_though_one_is_killed_at_work(
    lent_run, small_run, tmp_path, monkeypatch, caplog
):
    jobs = []

    def give_and_kill(worker, number, job_pickled, give=WorkerHandle.run):
        jobs.append(number)
        if len(jobs) == 5:  # in the second iteration; it dies with the chunk unanswered
            worker._process.kill()
        give(worker, number, job_pickled)

    monkeypatch.setattr(WorkerHandle, "run", give_and_kill)
    run = small_run("learn_to_optimize", "ppo")
    piped = run.train(tmp_path / "run", collect=Collect("pipes", 2))
    assert "of iteration 1, seed 0: its worker was ended by SIGKILL" in caplog.text
    assert len(jobs) > 6 * 3
    assert_same(piped, lent_run("learn_to_optimize", "ppo"))
    assert piped.result["seconds"]["collecting"] > 0 < piped.result["seconds"]["broadcasting"]
