"""What every kind of pool promises; what only processes can suffer is in `pipes/test_pool.py`."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib.util
import logging
import os
import pathlib
import re
import sys
import time

import numpy as np
import pytest

from environments.errors import Failure, UserError
from tests.processes import workers
from tests.tfrl_systems.drivers import collecting
from tests.tfrl_systems.drivers.collecting import NUM_ITERATIONS, collect, sha256, tasks_of
from tests.tfrl_systems.drivers.runners import Noise, Task
from tfrl_systems.drivers.collect import POOLS, Collect, Supervision, make_pool
from tfrl_systems.drivers.jobs import Chunk, PoolError
from tfrl_systems.drivers.worker import SINGLE_THREADED

HAS_RAY = importlib.util.find_spec("ray") is not None
ONE_EACH = {kind: Collect(kind) for kind in POOLS if kind != "ray" or HAS_RAY}
# With two workers where a kind has them.
PLACES = {kind: Collect(kind, 1 if kind == "inprocess" else 2) for kind in ONE_EACH}
LOSSES = {
    "pipes": "its worker was ended by SIGKILL",
    "ray": r"its worker on .* was lost \(ActorDiedError\)",
}
IN_PROCESSES = pytest.mark.parametrize(
    "place", [place for kind, place in PLACES.items() if kind in LOSSES], indirect=True, ids=str
)


@pytest.fixture(scope="module", autouse=True)
def cluster(one_cluster):
    if HAS_RAY:
        one_cluster.keep()


class Call(Noise):
    """Does what a job says."""

    is_broken = False

    def run(self, job):
        return job(self)


class Slow(Noise):
    """The third that loads data takes a second for it, and jobs wait until it does."""

    def load(self, data: bytes) -> None:
        number = len(list(self._memory.glob("load.*")))
        (self._memory / f"load.{number}.{os.getpid()}").touch()
        if number == 2:
            (self._memory / "loading").touch()
            time.sleep(1)
        super().load(data)

    def run(self, task: Task) -> np.ndarray:
        if task.fault == "wait":
            while not (self._memory / "loading").exists():
                time.sleep(0.01)
            return np.zeros(1)
        return super().run(task)


@pytest.fixture(params=PLACES.values(), ids=PLACES)
def place(request):
    return request.param


@pytest.fixture(scope="module")
def noise_on_ray(cluster):
    """A pool that is kept, because Ray's workers take a second to start."""
    with make(PLACES["ray"], Noise, max_attempts=2) as pool:
        yield pool


@pytest.fixture(scope="module")
def calls(cluster, tmp_path_factory):
    """By kind, a pool whose runners do what a job says; and only this process finds `only_here`."""
    directory = tmp_path_factory.mktemp("modules")
    (directory / "only_here.py").write_text("NUMBER = 5")
    with contextlib.ExitStack() as end, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path, str(directory)])
        patch.delenv("PYTHONPATH", raising=False)
        yield {
            kind: end.enter_context(make(place, Call, max_attempts=1))
            for kind, place in PLACES.items()
        }


@pytest.fixture
def noise(place, request):
    """A pool that draws numbers, and tries a job twice."""
    if place.kind == "ray":
        yield request.getfixturevalue("noise_on_ray")
    else:
        with make(place, Noise, max_attempts=2) as pool:
            yield pool


def make(place, make_runner, **supervision):
    return make_pool(place, make_runner, Supervision(**supervision))


@IN_PROCESSES
def test_data_that_a_worker_still_loads_are_not_taken_for_later_ones(place, tmp_path):
    """What replaces a killed worker loads data 1, when data 2 are broadcast."""
    # A job that came with the wrong data would be tried again.
    with make(place, functools.partial(Slow, tmp_path), max_attempts=1) as pool:
        pool.broadcast(b"1")
        pool.map([Task(0, "kill"), Task(1, "wait")])
        pool.broadcast(b"2")
        results = pool.map([Task(seed) for seed in range(8)])
    runner = Noise()
    runner.load(b"2")
    assert sha256(results) == sha256([runner.run(Task(seed)) for seed in range(8)])


@pytest.mark.parametrize(
    "place",
    [*ONE_EACH.values(), Collect("pipes", 3)],
    ids=lambda place: f"{place.kind}-{place.workers}",
)
def test_results_do_not_depend_on_where_they_are_made_or_on_exceptions(place, tmp_path):
    """They are those of a runner by itself, job after job."""
    expected = collecting.expected()
    assert len(set(expected)) == NUM_ITERATIONS
    pool = make(place, functools.partial(Noise, tmp_path))
    assert collect(pool, [(0, 3, "raise", 1), (1, 0, "raise", 2)]) == expected
    assert len(list(tmp_path.iterdir())) == 3


def test_large_products_have_the_same_last_bits(calls):
    """With more threads BLAS adds in another order."""

    def product(runner):
        generator = np.random.default_rng(0)
        return generator.normal(size=(64, 1000)) @ generator.normal(size=(1000, 100))

    products = [pool.map([product])[0].tobytes() for pool in calls.values()]
    assert len(set(products)) == 1 < len(products)


def test_results_come_in_the_order_of_the_jobs_and_are_told_of_as_they_come(noise):
    reported = {}
    results = noise.map([Task(seed, size=1 + seed) for seed in range(9)], reported.__setitem__)
    assert noise.map([]) == []
    with pytest.raises(ZeroDivisionError):
        noise.map([Task(0)], lambda number, result: 1 / 0)
    assert len(noise.map([Task(0)])) == 1
    assert [len(result) for result in results] == list(range(1, 10))
    assert [reported[number] is result for number, result in enumerate(results)] == [True] * 9


def test_a_job_that_always_fails_is_a_failure_in_its_place(noise, caplog):
    caplog.set_level(logging.WARNING)
    fine, failed, also_fine = noise.map([Task(0), Task(1, "raise"), Task(2)])
    (for_users,) = noise.map([Task(3, "raise for users")])
    message = "task 1: ValueError: bad luck, as it happens (attempt 2 of 2)"
    assert failed == Failure("task 1", message)
    assert len(fine) == len(also_fine) == 4
    said = [record.getMessage() for record in caplog.records[:2]]
    assert [words.splitlines()[0] for words in said] == [message.replace("2 of", "1 of"), message]
    assert 'raise ValueError("bad luck' in said[1]  # the traceback, from where it happened
    assert for_users.message.startswith("task 3: luck: expected good, found bad; try again (")


@IN_PROCESSES
def test_a_job_that_ends_every_worker_is_a_failure_that_says_why(noise, place):
    failed, fine = noise.map([Task(0, "kill"), Task(1)])
    assert re.fullmatch(rf"task 0: {LOSSES[place.kind]} \(attempt 2 of 2\)", failed.message)
    assert len(fine) == 4


def test_an_interruption_leaves_a_pool_that_works(noise):
    def interrupt(number, result):
        raise KeyboardInterrupt

    noise.broadcast(b"0")
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            noise.map(tasks_of(0), interrupt)
    assert sha256(noise.map(tasks_of(0))) == collecting.expected()[0]


@IN_PROCESSES
def test_a_worker_sees_no_gpu_has_one_thread_and_imports_what_the_caller_does(calls, place):
    def look(runner):
        import only_here

        assert only_here.NUMBER == 5
        heavy = {"tensorflow", "tf_agents", "tree", "sklearn"} & set(sys.modules)
        return heavy, dict(os.environ), pathlib.Path.cwd()

    ((heavy, environment, directory),) = calls[place.kind].map([look])
    assert (heavy, directory) == (set(), pathlib.Path.cwd())
    assert environment.items() >= SINGLE_THREADED.items()
    if place.kind == "pipes":
        assert "PYTHONPATH" not in environment


@IN_PROCESSES
def test_a_user_s_time_limit_for_a_job_goes_before_the_system_s(place, tmp_path, caplog):
    """The system would wait 300 s for the worker that hangs; the user waits half a second."""
    caplog.set_level(logging.WARNING)
    place = dataclasses.replace(place, timeout_s=0.5)
    with make(place, functools.partial(Noise, tmp_path)) as pool:
        (result,) = pool.map([Task(0, "hang")])
    assert np.array_equal(result, Noise().run(Task(0)))
    said = [record.getMessage() for record in caplog.records]
    assert any(
        "task 0: its worker took longer than 0.5 s (attempt 1 of 3)" in message for message in said
    )


def test_a_runner_that_failed_is_made_anew_and_loads_what_was_broadcast(calls):
    def spoil(runner):
        runner.is_broken = True
        raise ValueError("broken")

    for pool in calls.values():
        pool.broadcast(b"7")
        *_, after = pool.map([spoil] * pool.num_workers + [lambda runner: vars(runner)])
        assert "is_broken" not in after and after["_mean"] == 7.0


def test_what_cannot_be_loaded_is_refused_and_nothing_runs_with_it(noise):
    noise.broadcast(b"1")
    before = sha256(noise.map([Task(0)]))
    with pytest.raises(PoolError, match="^broadcast: ValueError: could not convert string"):
        noise.broadcast(b"one")
    with pytest.raises(PoolError, match="the last broadcast, found that it failed"):
        noise.map([Task(0)])
    with pytest.raises(UserError, match="^luck: expected good, found bad; try again$"):
        noise.broadcast(b"raise for users")
    noise.broadcast(b"1")
    assert sha256(noise.map([Task(0)])) == before


def test_a_runner_that_cannot_be_made_is_one_error(place):
    def make_runner():
        raise UserError("runner: expected x, found y; do z")

    with pytest.raises(UserError, match="^runner: expected x, found y; do z$"):
        make(place, make_runner).broadcast(b"1")
    with pytest.raises(PoolError, match="^workers: ZeroDivisionError: division by zero$"):
        make(place, lambda: 1 / 0).broadcast(b"1")


@pytest.mark.parametrize(
    "kind, workers_, address, message",
    [
        ("inprocess", 0, "", "workers: expected 1 or more, found 0"),
        ("smoke", 1, "", "expected one of inprocess, pipes, ray, found 'smoke'"),
        ("inprocess", 2, "", "expected one worker and no address in this process, found 2 and ''"),
        ("pipes", 1, "there", "expected no address with pipes, found 'there'"),
    ],
)
def test_what_a_kind_cannot_do_is_said(kind, workers_, address, message):
    with pytest.raises(UserError, match=message):
        make_pool(Collect(kind, workers_, address), Noise)


def test_without_ray_one_line_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    for name in [name for name in sys.modules if name.startswith("tfrl_systems.drivers.ray_pool")]:
        monkeypatch.delitem(sys.modules, name)
    with pytest.raises(
        UserError, match=r"found that it is not.*pip install 'tfrl-systems\[ray\]'$"
    ):
        make_pool(Collect("ray"), Noise)


def test_time_is_measured_where_it_is_spent(calls, place):
    pool = calls[place.kind]
    pool.broadcast(b"1")
    before = pool.timings
    pool.map([lambda runner: time.sleep(0.1)] * 4)
    spent = pool.timings - before
    assert len(spent.workers) == pool.num_workers
    assert sum(worker.jobs for worker in spent.workers) == 4
    # All work at the same time, each for as long as it measures itself.
    assert all(0 < worker.jobs_per_s <= 10 for worker in spent.workers)
    assert 0.4 <= spent.collecting_s <= pool.num_workers * spent.waiting_s
    assert spent.broadcasting_s == 0 < before.broadcasting_s


def test_close_ends_all_and_a_closed_pool_says_so(place, tmp_path):
    class Closing(Noise):
        def close(self):
            (tmp_path / str(os.getpid())).touch()

    before = workers()
    pool = make(place, Closing)
    pool.map([Task(0)])
    pool.close()
    pool.close()
    assert len(list(tmp_path.iterdir())) == pool.num_workers
    assert workers() == before
    with pytest.raises(PoolError, match="expected an open one, found it closed; make another"):
        pool.map([Task(0)])


def test_chunks_name_themselves_and_differ():
    assert str(Chunk(3, 1, 7)) == "chunk 1 of iteration 3, seed 7"
    states = {
        tuple(Chunk(iteration, index, seed).seed_sequence().generate_state(2))
        for iteration in range(3)
        for index in range(3)
        for seed in range(3)
    }
    assert len(states) == 27
