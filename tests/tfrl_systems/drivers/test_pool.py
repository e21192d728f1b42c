"""Every pool gives the same results in the same order, whatever happens to its workers."""

from __future__ import annotations

import functools
import hashlib
import logging
import os
import signal
import time

import numpy as np
import pytest

from environments.errors import UserError
from tests.tfrl_systems.drivers.conftest import wait_for_end, workers
from tests.tfrl_systems.drivers.runners import Noise, Process, Product, Sleep, Task
from tfrl_systems.drivers.in_process import InProcessPool
from tfrl_systems.drivers.jobs import Chunk, JobFailure, PoolError
from tfrl_systems.drivers.pool import DriverPool

NUM_ITERATIONS, NUM_JOBS = 3, 12


def make_in_process(make_runner, **settings):
    return InProcessPool(make_runner, **settings)


def make_pipes(make_runner, num_workers=2, num_spares=0, **settings):
    return DriverPool(make_runner, num_workers, num_spares=num_spares, **settings)


@pytest.fixture(params=[make_in_process, make_pipes], ids=["in process", "pipes"])
def make_pool(request):
    return request.param


def sha256(results):
    digest = hashlib.sha256()
    for result in results:
        assert isinstance(result, np.ndarray), result
        digest.update(result.tobytes())
    return digest.hexdigest()


def collect(pool, faults=()):
    """Some iterations; `faults` are (iteration, index of a job, what goes wrong, how often)."""
    hashes = []
    with pool:
        for iteration in range(NUM_ITERATIONS):
            pool.broadcast(str(iteration).encode())
            tasks = [Task(100 * iteration + index) for index in range(NUM_JOBS)]
            for when, index, fault, times in faults:
                if when == iteration:
                    tasks[index] = Task(tasks[index].seed, fault, times)
            hashes.append(sha256(pool.map(tasks)))
    return hashes


@pytest.fixture(scope="module")
def expected():
    return collect(InProcessPool(Noise))


@pytest.mark.parametrize("num_workers", [1, 2, 4])
def test_results_do_not_depend_on_the_number_of_workers(expected, num_workers):
    assert len(set(expected)) == NUM_ITERATIONS
    assert collect(make_pipes(Noise, num_workers)) == expected


@pytest.mark.parametrize(
    "fault", ["raise", "kill", "segfault", "exit", "hang", "stop", "hang in C"]
)
def test_results_are_the_same_after(expected, tmp_path, fault):
    faults = [(0, 3, fault, 1), (1, 0, fault, 2), (2, NUM_JOBS - 1, fault, 1)]
    pool = make_pipes(functools.partial(Noise, tmp_path), num_spares=2, timeout_s=0.3)
    assert collect(pool, faults) == expected
    assert len(list(tmp_path.iterdir())) == 4


def test_results_are_the_same_in_process_after_an_exception(expected, tmp_path):
    pool = InProcessPool(functools.partial(Noise, tmp_path))
    assert collect(pool, [(0, 3, "raise", 1), (1, 0, "raise", 2)]) == expected
    assert len(list(tmp_path.iterdir())) == 3


def test_one_job_cannot_keep_the_others(expected, tmp_path):
    """Two of three workers are lost again and again; the third does what is to be done."""
    faults = [(0, 0, "kill", 2), (0, 1, "hang", 2), (1, 5, "kill", 2), (1, 6, "segfault", 2)]
    pool = make_pipes(functools.partial(Noise, tmp_path), num_workers=3, timeout_s=0.3)
    assert collect(pool, faults) == expected


def test_large_products_have_the_same_last_bits():
    with make_pipes(Product, 1) as pipes, InProcessPool(Product) as in_process:
        (there,), (here,) = pipes.map([Task(0)]), in_process.map([Task(0)])
    assert there.tobytes() == here.tobytes()


def test_results_come_in_the_order_of_the_jobs_and_are_told_of_as_they_come(make_pool):
    told = {}
    with make_pool(Noise) as pool:
        results = pool.map([Task(seed, size=1 + seed) for seed in range(9)], told.__setitem__)
        assert pool.map([]) == []
        with pytest.raises(ZeroDivisionError):
            pool.map([Task(0)], lambda number, result: 1 / 0)
        assert len(pool.map([Task(0)])) == 1
    assert [len(result) for result in results] == list(range(1, 10))
    assert [told[number] is result for number, result in enumerate(results)] == [True] * 9


def test_a_job_that_always_fails_is_a_failure_in_its_place(make_pool, caplog):
    caplog.set_level(logging.WARNING)
    with make_pool(Noise, max_attempts=2) as pool:
        fine, failed, also_fine = pool.map([Task(0), Task(1, "raise"), Task(2)])
    message = "task 1: ValueError: bad luck, as it happens (attempt 2 of 2)"
    assert failed == JobFailure(Task(1, "raise"), message)
    assert len(fine) == len(also_fine) == 4
    said = [record.getMessage() for record in caplog.records]
    assert [words.splitlines()[0] for words in said] == [message.replace("2 of", "1 of"), message]
    assert 'raise ValueError("bad luck' in said[1]  # the traceback, from where it happened


@pytest.mark.parametrize(
    "fault, why",
    [
        ("kill", "its worker was ended by SIGKILL"),
        ("segfault", "its worker was ended by SIGSEGV"),
        ("exit", "its worker ended with status 3"),
        ("hang", "its worker took longer than 0.3 s"),
        ("raise for users", "luck: expected good, found bad; try again"),
    ],
)
def test_a_failure_says_why(fault, why):
    with make_pipes(Noise, max_attempts=2, timeout_s=0.3) as pool:
        failed, fine = pool.map([Task(0, fault), Task(1)])
    assert failed.message == f"task 0: {why} (attempt 2 of 2)"
    assert len(fine) == 4


def test_a_pool_can_be_told_to_stop_at_a_failure(make_pool):
    with make_pool(Noise, max_attempts=1, stop_on_failure=True) as pool:
        with pytest.raises(PoolError, match=r"^task 1: ValueError: bad luck.*\(attempt 1 of 1\)$"):
            pool.map([Task(0), Task(1, "raise"), Task(2)])
        assert len(pool.map([Task(0)])) == 1


def test_a_runner_that_failed_is_made_anew(make_pool):
    class Broken(Noise):
        is_broken = False

        def run(self, task):
            if task.fault:
                self.is_broken = True
                raise ValueError("broken")
            return self.is_broken, self._mean

    with make_pool(Broken, max_attempts=1, **fewest(make_pool)) as pool:
        pool.broadcast(b"7")
        _, after = pool.map([Task(0, "raise"), Task(1)])
    assert after == (False, 7.0)


def fewest(make_pool):
    return {"num_workers": 1} if make_pool is make_pipes else {}


def test_what_cannot_be_loaded_is_refused_and_nothing_runs_with_it(make_pool):
    with make_pool(Noise) as pool:
        pool.broadcast(b"1")
        before = sha256(pool.map([Task(0)]))
        with pytest.raises(PoolError, match="^broadcast: ValueError: could not convert string"):
            pool.broadcast(b"one")
        with pytest.raises(PoolError, match="the last broadcast, found that it failed"):
            pool.map([Task(0)])
        with pytest.raises(UserError, match="^luck: expected good, found bad; try again$"):
            pool.broadcast(b"raise for users")
        pool.broadcast(b"1")
        assert sha256(pool.map([Task(0)])) == before


def test_data_that_end_every_worker_end_the_attempts():
    with make_pipes(Noise, 1, max_attempts=2) as pool:
        pool.broadcast(b"kill")
        with pytest.raises(PoolError, match="^workers: its worker was ended by SIGKILL$"):
            pool.map([Task(0)])
        pool.broadcast(b"1")
        assert len(pool.map([Task(0)])) == 1


def test_a_worker_that_hangs_in_loading_is_replaced(expected):
    with make_pipes(Noise, 1, timeout_s=0.3, num_spares=1) as pool:
        pool.broadcast(b"hang")
        pool.broadcast(b"0")
        assert sha256(pool.map([Task(index) for index in range(NUM_JOBS)])) == expected[0]


@pytest.mark.parametrize("fault", ["raise", "kill", "hang"])
def test_a_failing_start_is_one_error_and_leaves_nothing(fault):
    def make_runner():
        from tests.tfrl_systems.drivers.runners import FAULTS

        FAULTS[fault]()

    why = {
        "raise": "ValueError: bad luck, as it happens",
        "kill": "its worker was ended by SIGKILL",
        "hang": "its worker took longer than 0.5 s",
    }
    pool = make_pipes(make_runner, start_timeout_s=0.5 if fault == "hang" else 60)
    with pytest.raises(PoolError, match=f"^workers: {why[fault]}$"):
        pool.map([Task(0)])
    assert not workers()
    with pytest.raises(PoolError, match="expected an open one, found it closed"):
        pool.broadcast(b"1")


def test_what_a_user_can_mend_stays_a_users_error(make_pool):
    def make_runner():
        raise UserError("runner: expected x, found y; do z")

    with pytest.raises(UserError, match="^runner: expected x, found y; do z$"):
        make_pool(make_runner).broadcast(b"1")
    with pytest.raises(UserError, match="workers: expected 1 or more, found 0"):
        DriverPool(Noise, 0)


def test_a_spare_takes_over_at_once_and_another_one_is_started():
    with make_pipes(Process, 2, num_spares=1) as pool:
        pool.map([Task(0)])
        before = workers()
        assert len(before) == 3
        while not pool._spares[0].is_ready:  # it starts in the background
            victim = pool.map([Task(0)])[0]
        os.kill(victim, signal.SIGKILL)
        began_s = time.monotonic()
        seen = set(pool.map([Task(seed) for seed in range(50)]))
        assert time.monotonic() - began_s < 1
        assert victim not in seen and len(seen) == 2
        assert seen < {one.pid for one in before}
        assert len(workers()) == 3


def test_workers_killed_between_uses_are_replaced(expected):
    pool = make_pipes(Noise)
    with pool:
        pool.broadcast(b"0")
        for worker in workers():
            worker.kill()
        assert sha256(pool.map([Task(index) for index in range(NUM_JOBS)])) == expected[0]
        for worker in workers():
            worker.kill()
        pool.broadcast(b"1")
        tasks = [Task(100 + index) for index in range(NUM_JOBS)]
        assert sha256(pool.map(tasks)) == expected[1]


def test_an_interruption_leaves_a_pool_that_works(expected):
    tasks = [Task(index) for index in range(NUM_JOBS)]

    def interrupt(number, result):
        raise KeyboardInterrupt

    with make_pipes(Noise) as pool:
        pool.broadcast(b"0")
        for _ in range(2):
            with pytest.raises(KeyboardInterrupt):
                pool.map(tasks, interrupt)
        assert sha256(pool.map(tasks)) == expected[0]


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


def test_time_is_measured_where_it_is_spent(make_pool):
    with make_pool(Sleep) as pool:
        pool.broadcast(b"1")
        before = pool.timings
        pool.map([Task(seed) for seed in range(4)])
        spent = pool.timings - before
        assert len(spent.workers) == pool.num_workers
        assert sum(worker.jobs for worker in spent.workers) == 4
        assert 0.4 <= spent.collecting_s < 0.8
        # In processes they sleep at the same time.
        assert 0.4 / pool.num_workers <= spent.waiting_s < 0.8 / pool.num_workers
        assert all(5 < worker.jobs_per_s <= 10 for worker in spent.workers)
        assert spent.broadcasting_s == 0 < before.broadcasting_s < 1


def test_close_ends_all_and_a_closed_pool_says_so(make_pool, tmp_path):
    class Closing(Noise):
        def close(self):
            (tmp_path / str(os.getpid())).touch()

    pool = make_pool(Closing)
    pool.map([Task(0)])
    pool.close()
    pool.close()
    assert len(list(tmp_path.iterdir())) == pool.num_workers
    assert not workers()
    with pytest.raises(PoolError, match="expected an open one, found it closed; make another"):
        pool.map([Task(0)])


def test_a_pool_that_is_forgotten_leaves_nothing():
    pool = make_pipes(Noise)
    pool.map([Task(0)])
    processes = workers()
    assert len(processes) == 2
    del pool
    wait_for_end(processes, 1)


def test_closing_does_not_wait_for_what_hangs(monkeypatch):
    monkeypatch.setattr("tfrl_systems.drivers.pool._CLOSE_TIMEOUT_S", 0.3)

    class Sticky(Noise):
        def close(self):
            time.sleep(1e6)

    pool = make_pipes(Sticky)
    pool.map([Task(0)])
    began_s = time.monotonic()
    pool.close()
    assert time.monotonic() - began_s < 2


def test_chunks_name_themselves_and_differ():
    assert str(Chunk(3, 1, 7)) == "chunk 1 of iteration 3, seed 7"
    states = {
        tuple(Chunk(iteration, index, seed).seed_sequence().generate_state(2))
        for iteration in range(3)
        for index in range(3)
        for seed in range(3)
    }
    assert len(states) == 27
