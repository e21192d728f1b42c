"""The pool's handle on one worker process: starts it, times it, and makes sure that it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections import deque

from environments.machine import search_path
from tfrl_systems.drivers.pipes.messages import Channel, Kind, Message, pickled
from tfrl_systems.drivers.processes import SINGLE_THREADED

_PROGRAM = "tfrl_systems.drivers.pipes.worker_main"
# How long a worker's process may take to end after its socket has closed.
_DEATH_TIMEOUT_S = 1.0


class WorkerHandle:
    """A process that runs jobs, one at a time, in the order in which it gets them.

    Args:
      make_runner_pickled: the pickled function with which the worker makes its runner.
      start_timeout_s: seconds that the worker may take to make its runner.
      timeout_s: seconds that the worker may take for one job, or to load data.

    Attributes:
      channel: non-blocking channel to the worker.
      is_ready: whether the worker has made its runner.
      version: version of the data that the worker answered to last; 0 before the first. The pool
        sets it.
      jobs: numbers of the job that the worker is running and of those that it runs next.
      is_loading: whether the worker was sent data and has not answered yet.
      deadline_s: when the worker is late, on the clock of `time.monotonic`; None while it has
        nothing to do.
    """

    def __init__(
        self, make_runner_pickled: bytes, start_timeout_s: float, timeout_s: float
    ) -> None:
        mine, its = socket.socketpair()
        life_its, self._life_fd = os.pipe()
        try:
            self._process = subprocess.Popen(
                # -P: no file of the user's in the working directory can shadow a module.
                [sys.executable, "-P", "-m", _PROGRAM, str(its.fileno()), str(life_its)],
                pass_fds=(its.fileno(), life_its),
                stdin=subprocess.DEVNULL,
                # The caller's stdout is for its results.
                stdout=2,
                env={**os.environ, **SINGLE_THREADED, "PYTHONPATH": os.pathsep.join(search_path())},
                # The worker's own group can be killed as a whole, and does not get a Ctrl-C.
                start_new_session=True,
            )
        except BaseException:
            mine.close()
            os.close(self._life_fd)
            raise
        finally:
            # While this process holds them too, it cannot notice that the worker has ended.
            its.close()
            os.close(life_its)
        mine.setblocking(False)
        self.channel = Channel(mine)
        self.is_ready = self.is_loading = False
        self.version = 0
        self.jobs: deque[int] = deque()
        self._timeout_s = timeout_s
        self.deadline_s: float | None = time.monotonic() + start_timeout_s
        settings = (search_path(), os.environ.get("PYTHONPATH"), make_runner_pickled)
        with contextlib.suppress(OSError):  # if it has ended, the next read finds out
            self.channel.send(Message(Kind.START, pickled(settings)))

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        return self._process.pid

    @property
    def was_killed(self) -> bool:
        """Return whether `kill` was called."""
        return self._process.returncode is not None

    @property
    def is_idle(self) -> bool:
        """Return whether the worker is ready and has nothing to do."""
        return self.is_ready and not self.is_loading and not self.jobs

    def load(self, data_pickled: bytes, version: int) -> None:
        """Have the worker load data; it must be idle."""
        self.is_loading = True
        self._send(Message(Kind.LOAD, data_pickled, number=version))

    def run(self, number: int, job_pickled: bytes) -> None:
        """Have the worker run a job with its current data, after the jobs that it already has."""
        self.jobs.append(number)
        self._send(Message(Kind.JOB, job_pickled, number, self.version))

    def _send(self, message: Message) -> None:
        if self.deadline_s is None:
            self.deadline_s = time.monotonic() + self._timeout_s
        with contextlib.suppress(OSError):
            self.channel.send(message)

    def note_answer(self) -> None:
        """Note that the worker has answered its oldest request, done or failed."""
        if self.jobs:
            self.jobs.popleft()
        self.is_loading = False
        self.deadline_s = time.monotonic() + self._timeout_s if self.jobs else None

    def explain_end(self) -> str:
        """Wait for a process whose socket has closed, and return why it ended."""
        ended = self.wait(_DEATH_TIMEOUT_S)
        if ended is None:
            return "its worker closed its socket"
        if ended.si_code == os.CLD_EXITED:
            return f"its worker ended with status {ended.si_status}"
        names = {
            int(number): number.name for number in signal.Signals
        }  # real-time signals have none
        return f"its worker was ended by {names.get(ended.si_status, ended.si_status)}"

    def ask_to_end(self) -> None:
        """Close the socket. A worker that is not at work then closes its runner and ends."""
        self.channel.close()

    def wait(self, timeout_s: float) -> os.waitid_result | None:
        """Wait for the process to end, without reaping it; return None after `timeout_s`."""
        until_s, pause_s = time.monotonic() + timeout_s, 1e-4
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while (ended := os.waitid(os.P_PID, self._process.pid, options)) is None:
            if time.monotonic() > until_s:
                return None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1e-2)
        return ended

    def kill(self) -> None:
        """Kill the process and its group, and reap the process. May be called more than once."""
        self.channel.close()
        if self._process.returncode is None:
            # Until the process is reaped, no other process or group can get its number.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            os.close(self._life_fd)
