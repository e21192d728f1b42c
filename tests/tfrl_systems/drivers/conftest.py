"""No test of this room may leave a process."""

from __future__ import annotations

import time

import psutil
import pytest


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs; one that only waits to be buried does not."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def is_worker(process: psutil.Process) -> bool:
    """Whether a living process is a worker, by its command line.

    Linux shows an empty command line for a moment after the program of a process was replaced.
    """
    while is_alive(process):
        if command := process.cmdline():
            return "tfrl_systems.drivers.pipes.worker_main" in command
    return False


def workers(parent_pid: int | None = None) -> list[psutil.Process]:
    """The living workers of this process or of another."""
    return [child for child in psutil.Process(parent_pid).children() if is_worker(child)]


def wait_for_end(processes: list[psutil.Process], timeout_s: float) -> float:
    """Waits until all have ended, and says how long that took, in seconds."""
    began_s = time.monotonic()
    while alive := [process for process in processes if is_alive(process)]:
        assert time.monotonic() - began_s < timeout_s, f"alive after {timeout_s} s: {alive}"
        time.sleep(0.005)
    return time.monotonic() - began_s


@pytest.fixture(autouse=True)
def nothing_is_left():
    yield
    assert not workers()
