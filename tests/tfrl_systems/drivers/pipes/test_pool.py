"""What worker processes can suffer: the pool outlives it, and its results are the same."""

from __future__ import annotations

import functools
import logging
import os
import signal
import time

import numpy as np
import pytest

from tests.processes import wait_for_end, workers
from tests.tfrl_systems.drivers.collecting import NUM_JOBS, collect, expected, sha256, tasks_of
from tests.tfrl_systems.drivers.runners import Noise, Task
from tfrl_systems.drivers.collect import Collect, Supervision
from tfrl_systems.drivers.jobs import PoolError
from tfrl_systems.drivers.pipes.pool import PipePool


def make_pipes(make_runner, num_workers=2, **supervision):
    return PipePool(make_runner, Collect("pipes", num_workers), Supervision(**supervision))


def test_results_are_the_same_whatever_ends_workers(tmp_path, caplog):
    """In the first iteration two of three are lost again and again; the third does the rest."""
    caplog.set_level(logging.WARNING)
    whys = {
        "kill": "its worker was ended by SIGKILL",
        "segfault": "its worker was ended by SIGSEGV",
        "exit": "its worker ended with status 3",
        # Each of these three is deaf to something milder than SIGKILL.
        "hang": "its worker took longer than 0.3 s",
        "stop": "its worker took longer than 0.3 s",
        "hang in C": "its worker took longer than 0.3 s",
    }
    faults = [(0, 0, "kill", 2), (0, 1, "hang", 2), (0, 7, "segfault", 1)]
    faults += [(1, 0, "stop", 1), (1, 3, "hang in C", 1), (2, NUM_JOBS - 1, "exit", 1)]
    pool = make_pipes(functools.partial(Noise, tmp_path), 3, timeout_s=0.3)
    assert collect(pool, faults) == expected()
    said = {record.getMessage() for record in caplog.records}
    for iteration, index, fault, times in faults:
        for attempt in range(1, 1 + times):
            task = tasks_of(iteration)[index]
            assert f"{task}: {whys[fault]} (attempt {attempt} of 3)" in said


def test_data_that_end_every_worker_end_the_attempts():
    with make_pipes(Noise, 1, max_attempts=2) as pool:
        pool.broadcast(b"kill")
        with pytest.raises(PoolError, match="^workers: its worker was ended by SIGKILL$"):
            pool.map([Task(0)])
        pool.broadcast(b"1")
        assert len(pool.map([Task(0)])) == 1


def test_a_worker_that_hangs_in_loading_is_replaced():
    with make_pipes(Noise, 1, timeout_s=0.3) as pool:
        pool.broadcast(b"hang")
        pool.broadcast(b"0")
        assert sha256(pool.map(tasks_of(0))) == expected()[0]


@pytest.mark.parametrize(
    "fault, why",
    [
        ("kill", "its worker was ended by SIGKILL"),
        ("hang", "its worker took longer than 0.5 s"),
    ],
)
def test_a_failing_start_is_one_error_and_leaves_nothing(fault, why):
    def make_runner():
        from tests.tfrl_systems.drivers.runners import FAULTS

        FAULTS[fault]()

    pool = make_pipes(make_runner, start_timeout_s=0.5 if fault == "hang" else 60)
    with pytest.raises(PoolError, match=f"^workers: {why}$"):
        pool.map([Task(0)])
    assert not workers()
    with pytest.raises(PoolError, match="expected an open one, found it closed"):
        pool.broadcast(b"1")


def run_out_of_memory() -> None:
    raise MemoryError


@pytest.mark.parametrize(
    "fail, message",
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "its worker was ended by SIGKILL"),
        (run_out_of_memory, "MemoryError"),
    ],
    ids=["killed", "without memory"],
)
def test_workers_that_are_lost_while_the_pool_starts_are_replaced(tmp_path, caplog, fail, message):
    caplog.set_level(logging.WARNING)

    def make_runner():
        if len(list(tmp_path.iterdir())) < 2:
            (tmp_path / str(os.getpid())).touch()
            fail()
        return Noise()

    with make_pipes(make_runner, 2) as pool:
        pool.broadcast(b"0")
        assert sha256(pool.map(tasks_of(0))) == expected()[0]
    assert sum(said.startswith(message) for said in caplog.messages) >= 2


def test_workers_killed_while_others_work_do_not_end_the_run():
    """More often in a row than a pool whose workers cannot start would try."""

    class Slow(Noise):
        def run(self, task):
            time.sleep(0.05)
            return super().run(task)

    num_killed = 0

    def kill_the_newest(number, result):
        nonlocal num_killed
        newest = max(workers(), key=lambda process: process.create_time())
        if not any(worker.is_ready and worker.pid == newest.pid for worker in pool.workers):
            newest.kill()
            num_killed += 1

    runner = Noise()
    tasks = [Task(seed) for seed in range(24)]
    with make_pipes(Slow, 2) as pool:
        pool.broadcast(b"0")
        workers()[0].kill()
        results = pool.map(tasks, kill_the_newest)
    assert num_killed > 3
    assert sha256(results) == sha256([runner.run(task) for task in tasks])


def test_a_worker_without_memory_is_replaced_and_nobody_else_suffers(tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    pool = make_pipes(functools.partial(Noise, tmp_path), 1)
    assert collect(pool, [(0, 0, "out of memory", 1)]) == expected()
    assert "MemoryError" in caplog.text and "(attempt 1 of 3)" in caplog.text
    assert "(attempt 2 of 3)" not in caplog.text


def test_workers_killed_between_uses_are_replaced():
    pool = make_pipes(Noise)
    with pool:
        pool.broadcast(b"0")
        for worker in workers():
            worker.kill()
        assert sha256(pool.map(tasks_of(0))) == expected()[0]
        for worker in workers():
            worker.kill()
        pool.broadcast(b"1")
        assert sha256(pool.map(tasks_of(1))) == expected()[1]


def test_large_jobs_and_large_results_pass_each_other():
    """Both sides write at once, more than a socket holds: no one waits for the other for ever."""

    class Echo(Noise):
        def run(self, job):
            return job

    jobs = [np.full(3_000_000, index, np.uint8) for index in range(8)]
    with make_pipes(Echo, timeout_s=20) as pool:
        pool.broadcast(b"1" + b" " * 5_000_000)
        results = pool.map(jobs)
    for job, result in zip(jobs, results, strict=True):
        np.testing.assert_array_equal(job, result)


def test_what_cannot_travel_is_an_error_that_says_so():
    class Lambdas(Noise):
        def run(self, task):
            return (number for number in range(3))

    with make_pipes(Lambdas, max_attempts=1) as pool:
        (failed,) = pool.map([Task(0)])
        assert "cannot pickle 'generator' object" in failed.message
        with pytest.raises(TypeError, match="cannot pickle 'generator' object"):
            pool.map([(number for number in range(3))])


def test_a_pool_that_is_forgotten_leaves_nothing():
    pool = make_pipes(Noise)
    pool.map([Task(0)])
    processes = workers()
    assert len(processes) == 2
    del pool
    wait_for_end(processes)


def test_closing_does_not_wait_for_what_hangs(monkeypatch):
    monkeypatch.setattr("tfrl_systems.drivers.pipes.pool._CLOSE_TIMEOUT_S", 0.3)

    class Sticky(Noise):
        def close(self):
            time.sleep(1e6)

    pool = make_pipes(Sticky)
    pool.map([Task(0)])
    pool.close()
