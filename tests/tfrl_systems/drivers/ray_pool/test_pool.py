"""What workers on a cluster can suffer: the pool outlives it, and its results are the same."""

from __future__ import annotations

import functools
import itertools
import logging
import os
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from tests.requirements import NO_RAY

pytest.importorskip("ray", reason=NO_RAY)

from environments.errors import UserError
from tests.checkout import environment
from tests.processes import unless_ended, wait_for_end
from tests.tfrl_systems.drivers.collecting import collect, expected
from tests.tfrl_systems.drivers.runners import Noise, Task
from tfrl_systems.drivers.collect import Collect, Supervision, make_pool
from tfrl_systems.drivers.jobs import PoolError
from tfrl_systems.drivers.ray_pool import worker

TIMEOUT_S = 2.0


@pytest.fixture(scope="module", autouse=True)
def cluster(one_cluster):
    one_cluster.keep()


@pytest.fixture(scope="module")
def noise(cluster):
    """A pool that several tests use: workers take a second to start."""
    with make(Noise, max_attempts=2) as pool:
        yield pool


def make(make_runner, num_workers=2, **supervision):
    return make_pool(Collect("ray", num_workers), make_runner, Supervision(**supervision))


def test_results_are_the_same_whatever_ends_workers(tmp_path, caplog, capfd):
    caplog.set_level(logging.WARNING)
    faults = [(0, 0, "kill", 2), (0, 7, "segfault", 1), (0, 1, "hang", 1)]
    faults += [(1, 0, "hang in C", 1), (1, 3, "stop", 1), (2, 5, "exit", 1)]
    pool = make(functools.partial(Noise, tmp_path), 3, timeout_s=TIMEOUT_S)
    assert collect(pool, faults) == expected()
    assert f"its worker took longer than {TIMEOUT_S:g} s" in caplog.text
    assert "was lost (ActorDiedError) (attempt 2 of 3)" in caplog.text
    # Ray would print its own words on stdout, where results go.
    assert capfd.readouterr().out == ""


def test_a_failing_start_ends_the_attempts():
    def make_runner():
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(PoolError, match=r"^workers: its worker on .* was lost"):
        make(make_runner, 1, max_attempts=2).map([Task(0)])


@pytest.mark.slow
def test_a_place_whose_workers_never_start_is_left_empty(tmp_path):
    def make_runner():
        try:
            (tmp_path / "first").touch(exist_ok=False)
        except FileExistsError:
            time.sleep(1)  # the first one gets ready
            os.kill(os.getpid(), signal.SIGKILL)
        return Noise()

    with make(make_runner, 2, max_attempts=2) as pool:
        assert len(pool.map([Task(0), Task(1)])) == 2


def test_what_a_node_lacks_is_said_in_one_line(monkeypatch):
    here = worker.versions()
    monkeypatch.setattr(worker, "versions", lambda: {**here, "numpy": "0.9", "llvmlite": ""})
    with pytest.raises(UserError) as raised:
        make(Noise, 1).map([Task(0)])
    assert str(raised.value) == (
        f"expected llvmlite not installed, numpy 0.9, found llvmlite {here['llvmlite']}, "
        f"numpy {here['numpy']}; install there what is installed here"
    )


@pytest.mark.ci
@pytest.mark.usefixtures("no_saved_models")
def test_a_run_is_the_same_and_nobody_but_us_is_heard(lent_run, small_run, tmp_path, capfd):
    run = small_run("learn_to_optimize", "ppo").train(tmp_path / "run", collect=Collect("ray", 2))
    whole = lent_run("learn_to_optimize", "ppo").result
    capture = capfd.readouterr()
    assert (capture.out, capture.err) == ("", "")
    for name in ("experience_sha256", "policy_sha256"):
        assert run.result[name] == whole[name]


SCRIPT = """
from tests.tfrl_systems.drivers.runners import FAULTS, Noise, Task
from tfrl_systems.drivers.collect import Collect, make_pool

with make_pool(Collect("ray", 2), Noise) as pool:
    pool.map([Task(0), Task(1)])
    print("begun", flush=True)
    pool.map([Task(0, "stop"), Task(1, "hang in C")])
"""


SLOW = pytest.mark.slow
_HOLDER = "tfrl_systems.drivers.ray_pool.own_cluster"


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGINT, marks=SLOW),
        pytest.param(signal.SIGTERM, marks=SLOW),
    ],
)
def test_nothing_is_left_whatever_ends_the_caller(tmp_path, number):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    parent = subprocess.Popen(
        [sys.executable, script], env=environment(), stdout=subprocess.PIPE, text=True
    )
    try:
        assert parent.stdout.readline() == "begun\n"
        family = psutil.Process(parent.pid).children(recursive=True)
        commands = [unless_ended(process.cmdline, []) for process in family]
        names = " ".join(itertools.chain(*commands))
        assert "raylet" in names and "gcs_server" in names
        (of_holder,) = [command for command in commands if _HOLDER in command]
        directory = pathlib.Path(of_holder[-1])
        assert directory.stat().st_mode & 0o777 == 0o700
        time.sleep(0.5)  # its jobs begin
        parent.send_signal(number)
        wait_for_end(family)
        assert not directory.exists()
    finally:
        parent.kill()
        parent.communicate()
