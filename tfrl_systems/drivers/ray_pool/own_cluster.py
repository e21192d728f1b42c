"""A Ray cluster that is started on this machine for this process, and how its loss is noticed."""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import shutil
import subprocess
import sys
import tempfile
from typing import Any

import psutil

from environments.machine import search_path
from tfrl_systems.drivers.jobs import PoolError
from tfrl_systems.drivers.processes import SINGLE_THREADED
from tfrl_systems.drivers.ray_pool.losses import Watch

_PROGRAM = "tfrl_systems.drivers.ray_pool.local_cluster"
_START_TIMEOUT_S = 180.0
_STOP_TIMEOUT_S = 30.0
# Linux does not take longer paths of sockets; up to 74 letters come behind the directory.
_MAX_DIRECTORY_LETTERS = 107 - 74
# Ray would let its workers wait for all other processes of the machine.
_ENVIRONMENT = {"RAY_worker_niceness": "0"}


class OwnCluster:
    """A cluster of this machine alone; however this process ends, the cluster ends too.

    Attributes:
      address: its HOST:PORT.

    Raises:
      PoolError: it does not start.
    """

    def __init__(self) -> None:
        self._directory = _make_directory()
        life_its, self._life_fd = os.pipe()
        answer_fd, answer_its = os.pipe()
        says_its = os.dup(2)
        its = (life_its, answer_its, says_its)
        self._holder = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM, *map(str, its), self._directory],
            pass_fds=its,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={
                **os.environ,
                **_ENVIRONMENT,
                **SINGLE_THREADED,
                "PYTHONPATH": os.pathsep.join(search_path()),
            },
            # A Ctrl-C is for this process; it decides what ends.
            start_new_session=True,
        )
        for number in its:
            os.close(number)
        self._watch = Watch({})
        try:
            answer = _answer(answer_fd)
            self._watch = Watch({**answer["pids"], "holder": self._holder.pid})
        except BaseException:
            self.close()
            raise
        self.address: str = answer["address"]

    def lost(self) -> str:
        """Return which of the processes that it cannot do without has ended; "" for none."""
        return self._watch.ended()

    def close(self) -> None:
        """End the cluster, and remove its files."""
        with contextlib.suppress(BrokenPipeError):
            os.write(self._life_fd, b"end")
        os.close(self._life_fd)
        try:
            self._holder.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.wait()
        if self._holder.returncode:
            _kill_session(self._holder.pid)
        shutil.rmtree(self._directory, ignore_errors=True)
        self._watch.close()


def _kill_session(number: int) -> None:
    """Kill what is left of a session: Ray's agents live on for a minute without their cluster."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if os.getsid(process.pid) == number:
                process.kill()


def _answer(answer_fd: int) -> dict[str, Any]:
    """Return what the program that holds the cluster answers.

    Raises:
      PoolError: it answers that there is no cluster, or does not answer in time.
    """
    answer: dict[str, Any] = {"error": f"no answer in {_START_TIMEOUT_S:g} s"}
    with os.fdopen(answer_fd) as answers:
        if select.select([answers], [], [], _START_TIMEOUT_S)[0]:
            line = answers.readline()
            answer = json.loads(line) if line else {"error": "a process of it has ended"}
    if "error" in answer:
        raise PoolError(f"collect: Ray does not start on this machine: {answer['error']}")
    return answer


def _make_directory() -> pathlib.Path:
    """Make a directory for sockets and logs that only this user can enter.

    Raises:
      PoolError: it cannot be made.
    """
    base = pathlib.Path(tempfile.gettempdir())
    # mkdtemp adds 8 letters to the prefix.
    if len(str(base)) + len("/tfrl-ray-") + 8 > _MAX_DIRECTORY_LETTERS:
        base = pathlib.Path("/tmp")
    try:
        return pathlib.Path(tempfile.mkdtemp(prefix="tfrl-ray-", dir=base))
    except OSError as error:
        raise PoolError(
            f"collect: expected room for Ray's sockets in {base}, found: {error.strerror}; set "
            "TMPDIR to another directory, whose name is short"
        ) from error
