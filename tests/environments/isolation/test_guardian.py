"""However a host ends, nothing of it is left: no process, no pipe, no directory."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import time

import psutil
import pytest

from environments.errors import UserError
from environments.isolation import guardian
from tests.environments.inlining.small_modules import many_calls, write_module
from tests.processes import is_alive, unless_ended, wait_for_end, workers
from tests.requirements import needs_programs

# Begins to compile, says so, and is then slow to decide: whatever comes finds it at work.
HOST = """
import os, pathlib, sys, time
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Default
from environments.inlining.collection.store import TrajectoryStore
from tfrl_systems.drivers.collect import Collect
from tfrl_systems.systems.inlining.workers import make_collector

class Slow(Default):
    name = fingerprint = "slow"  # as no policy that could be put inside a clang

    def begin(self, module_name, names):
        decide = super().begin(module_name, names)
        def slowly(features, first):
            if first == 2:
                os.write(2, b"at work\\n")  # at once, not in two parts
            time.sleep({pause})
            return decide(features, first)
        return slowly

compiler, num_workers, path = sys.argv[1:]
module = Module("module", pathlib.Path(path), ".", "c")
collect = Collect.with_workers(int(num_workers))
with make_collector(compiler, TrajectoryStore(), collect) as collector:
    played = collector.play([module, module], Slow())
    assert [one.module for one in played] == ["module"] * 2
print("done", flush=True)
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a host whose temporary files all lie in one directory."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    module = write_module(tmp_path, "module", many_calls(30), text=True)
    hosts = []

    def start_host(compiler: str, num_workers: int, pause: float = 0.1) -> subprocess.Popen:
        script = HOST.format(pause=pause)
        command = [sys.executable, "-c", script, compiler, str(num_workers), module.path]
        hosts.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return hosts[-1]

    yield start_host
    for host in hosts:
        host.kill()
        host.communicate()


def assert_nothing_is_left(tmp_path: pathlib.Path, family: list[psutil.Process]) -> None:
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        alive = [process for process in family if is_alive(process)]
        files = list((tmp_path / "temporary").iterdir())
        if not alive and not files:
            return
        time.sleep(0.02)
    pytest.fail(f"left behind: {alive} {files}")


def at_work(host: subprocess.Popen, num_workers: int) -> list[psutil.Process]:
    """Waits until all compilers of the host are at work; all processes that it started."""
    for _ in range(num_workers):
        assert host.stderr.readline() == b"at work\n", host.stderr.read()
    family = psutil.Process(host.pid).children(recursive=True)
    # Compilers and their guardians, and workers where the host itself does not compile.
    assert len(family) >= 2 * num_workers + (num_workers if num_workers > 1 else 0)
    return family


@pytest.mark.usefixtures("default_signals")
@pytest.mark.parametrize(
    ("compiler_name", "num_workers", "number"),
    [
        ("embedded", 1, signal.SIGKILL),
        ("embedded", 2, signal.SIGTERM),
        pytest.param("clang-22", 2, signal.SIGKILL, marks=needs_programs("clang-22")),
        pytest.param("clang-22", 2, signal.SIGINT, marks=needs_programs("clang-22")),
    ],
)
def test_a_host_that_a_signal_ends(start, tmp_path, compiler_name, num_workers, number):
    host = start(compiler_name, num_workers)
    family = at_work(host, num_workers)
    assert list((tmp_path / "temporary").iterdir())
    host.send_signal(number)
    _, said = host.communicate(timeout=60)
    if number == signal.SIGINT:
        assert said.rstrip().endswith(b"KeyboardInterrupt")
    assert host.returncode == -number
    assert_nothing_is_left(tmp_path, family)


def test_sigkill_of_a_worker_takes_its_compiler_along(start, tmp_path):
    host = start("embedded", 2, pause=0.03)
    family = at_work(host, 2)
    killed, _ = workers(host.pid)
    lost = [killed, *killed.children(recursive=True)]
    assert len(lost) == 3  # a compiler and a guardian
    killed.kill()
    wait_for_end(lost, timeout_s=5)
    said, complaint = host.communicate(timeout=60)
    assert said.endswith(b"done\n") and host.returncode == 0
    assert b"module: its worker was ended by SIGKILL (attempt 1 of 3)" in complaint
    assert_nothing_is_left(tmp_path, family)


def test_a_host_whose_guardian_was_killed_goes_on(start, tmp_path):
    host = start("embedded", 1, pause=0.03)
    family = at_work(host, 1)
    (its_guardian,) = [
        process
        for process in family
        if "guardian_process.py" in " ".join(unless_ended(process.cmdline, []))
    ]
    its_guardian.kill()
    said, _ = host.communicate(timeout=60)
    assert said.endswith(b"done\n") and host.returncode == 0
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_host_that_was_killed_as_its_guardian_began(tmp_path):
    script = pathlib.Path(guardian.__file__).with_name("guardian_process.py")
    reads, writes = os.pipe()
    os.close(reads)
    command = [sys.executable, "-I", "-S", script]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        command, env=environment, stdin=subprocess.DEVNULL, stdout=writes, timeout=60
    )
    os.close(writes)
    assert done.returncode == 0
    assert list(tmp_path.iterdir()) == []


def test_no_room_for_temporary_files():
    with guardian.make_directory() as directory:
        place = pathlib.Path(directory).parent
        moved = place.rename(place.with_name("moved"))
        try:
            with pytest.raises(UserError, match="temporary files: expected room in .*, found"):
                guardian.make_directory()
        finally:
            moved.rename(place)
