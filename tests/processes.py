"""What is known of processes that may end while they are asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import psutil

Answer = TypeVar("Answer")


def unless_ended(question: Callable[[], Answer], answer: Answer) -> Answer:
    """Ask a method of a `psutil.Process`; `answer` stands for that of one that has ended."""
    try:
        return question()
    # A zombie counts as one.
    except psutil.NoSuchProcess:
        return answer


def is_alive(process: psutil.Process) -> bool:
    """Whether it runs; one that only waits to be buried does not."""
    status = unless_ended(process.status, psutil.STATUS_ZOMBIE)
    return process.is_running() and status != psutil.STATUS_ZOMBIE


def is_worker(process: psutil.Process) -> bool:
    """Whether a living process is a worker, by its command line.

    Linux shows an empty command line for a moment after the program of a process was replaced.
    """
    while is_alive(process):
        if command := unless_ended(process.cmdline, []):
            return "tfrl_systems.drivers.pipes.worker_main" in command
    return False


def workers(parent_pid: int | None = None) -> list[psutil.Process]:
    """The living workers of this process or of another."""
    return [child for child in psutil.Process(parent_pid).children() if is_worker(child)]


def wait_for_end(processes: Sequence[psutil.Process], timeout_s: float = 60) -> None:
    """Waits until all have ended."""
    began_s = time.monotonic()
    while alive := [process for process in processes if is_alive(process)]:
        assert time.monotonic() - began_s < timeout_s, f"alive after {timeout_s} s: {alive}"
        time.sleep(0.005)
