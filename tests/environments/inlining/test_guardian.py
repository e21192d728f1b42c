"""However a host ends, nothing of it is left: no process, no pipe, no directory."""

from __future__ import annotations

import pathlib
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest

from environments.errors import UserError
from environments.inlining import guardian
from tests.environments.inlining.small_modules import many_calls, write_module

# Begins a compile, says so, and is then slow to decide: whatever comes finds it at work.
HOST = """
import os, pathlib, sys, time
from environments.inlining.collection import Collector
from environments.inlining.compilers import make_compiler
from environments.inlining.corpus import Module
from environments.inlining.heuristics import Default
from environments.inlining.trajectories import TrajectoryStore

class Slow(Default):
    def begin(self, module_name, names):
        decide = super().begin(module_name, names)
        def slowly(features, first):
            if first == 2:
                os.write(1, b"at work\\n")  # at once: both threads say it, and print writes twice
            time.sleep({pause})
            return decide(features, first)
        return slowly

module = Module("module", pathlib.Path(sys.argv[2]), ".", "c")
with Collector(lambda: make_compiler(sys.argv[1]), TrajectoryStore(), num_workers=2) as collector:
    collector.play([module, module], Slow())
print("done", flush=True)
"""


@pytest.fixture
def start(tmp_path, monkeypatch):
    """Starts a host whose temporary files all lie in one directory."""
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    module = write_module(tmp_path, "module", many_calls(30), text=True)
    hosts = []

    def start_host(compiler: str, pause: float = 0.1) -> subprocess.Popen:
        command = [sys.executable, "-c", HOST.format(pause=pause), compiler, module.path]
        hosts.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE))
        return hosts[-1]

    yield start_host
    for host in hosts:
        host.kill()
        host.communicate()


@pytest.fixture(params=["embedded", "clang-19", "clang-22"])
def compiler_name(request):
    if request.param != "embedded" and shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    return request.param


def assert_nothing_is_left(tmp_path: pathlib.Path, family: list[psutil.Process]) -> None:
    deadline_s = time.monotonic() + 10
    while time.monotonic() < deadline_s:
        alive = [process for process in family if process.is_running()]
        alive = [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
        files = list((tmp_path / "temporary").iterdir())
        if not alive and not files:
            return
        time.sleep(0.02)
    pytest.fail(f"left behind: {alive} {files}")


def at_work(host: subprocess.Popen) -> list[psutil.Process]:
    """Waits until the host compiles; all processes that it started."""
    assert host.stdout.readline() == b"at work\n", host.stderr.read()
    family = psutil.Process(host.pid).children(recursive=True)
    assert len(family) >= 3  # two compilers and the guardian
    return family


def test_sigkill_of_the_host(start, tmp_path, compiler_name):
    host = start(compiler_name)
    family = at_work(host)
    assert list((tmp_path / "temporary").iterdir())
    host.kill()
    assert_nothing_is_left(tmp_path, family)


@pytest.mark.parametrize("compiler_name", ["embedded", "clang-22"], indirect=True)
def test_ctrl_c(start, tmp_path, compiler_name):
    host = start(compiler_name)
    family = at_work(host)
    began_s = time.monotonic()
    host.send_signal(signal.SIGINT)
    _, said = host.communicate(timeout=30)
    assert time.monotonic() - began_s < 5
    assert said.rstrip().endswith(b"KeyboardInterrupt")
    assert host.returncode == -signal.SIGINT
    assert_nothing_is_left(tmp_path, family)


def test_sigterm(start, tmp_path):
    host = start("embedded")
    family = at_work(host)
    host.terminate()
    assert_nothing_is_left(tmp_path, family)


def test_a_normal_end_leaves_nothing_at_once(start, tmp_path):
    host = start("embedded", pause=0)
    said, _ = host.communicate(timeout=60)
    assert said.endswith(b"done\n") and host.returncode == 0
    assert list((tmp_path / "temporary").iterdir()) == []


def test_a_host_whose_guardian_was_killed_goes_on(start, tmp_path):
    host = start("embedded")
    family = at_work(host)
    (its_guardian,) = [one for one in family if "guardian_process.py" in " ".join(one.cmdline())]
    its_guardian.kill()
    said, _ = host.communicate(timeout=60)
    assert said.endswith(b"done\n") and host.returncode == 0
    assert list((tmp_path / "temporary").iterdir()) == []


def test_no_room_for_temporary_files():
    with guardian.make_directory() as directory:
        place = pathlib.Path(directory).parent
        moved = place.rename(place.with_name("moved"))
        try:
            with pytest.raises(UserError, match="temporary files: expected room in .*, found"):
                guardian.make_directory()
        finally:
            moved.rename(place)
