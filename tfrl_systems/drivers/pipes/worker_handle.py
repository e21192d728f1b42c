"""The pool's handle on one worker process: starts it, times it, and surely ends it."""

from __future__ import annotations

import contextlib
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
from collections import deque

from tfrl_systems.drivers.pipes.messages import Channel, Kind, Message, pickled

# A worker is one of several: it uses one core, and never the GPU that the learner needs.
_ENVIRONMENT = {
    "CUDA_VISIBLE_DEVICES": "",
    "TF_NUM_INTEROP_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
    "NUMEXPR_NUM_THREADS": "1",
}
_PROGRAM = "tfrl_systems.drivers.pipes.worker_main"
# Between the end of a worker's socket and the end of its process.
_DEATH_TIMEOUT_S = 1.0


class WorkerHandle:
    """A process that runs jobs, one at a time, in the order in which it gets them.

    Args:
      make_runner_pickled: what it makes its runner with.
      start_timeout_s: how long that may take.
      timeout_s: how long it may take for one job, or to load data.

    Attributes:
      channel: to talk to it; does not block.
      is_ready: it has made its runner.
      version: of the data that it was given last and has answered to; 0 before.
      jobs: numbers of the job that it is running and of those that it runs next.
      is_loading: it has been sent data and has not said what came of it.
      deadline_s: on `time.monotonic`'s clock, when it is late; None where nothing is asked of it.
    """

    def __init__(
        self, make_runner_pickled: bytes, start_timeout_s: float, timeout_s: float
    ) -> None:
        mine, its = socket.socketpair()
        life_its, self._life_fd = os.pipe()
        try:
            self._process = subprocess.Popen(
                # -P: a file of the user's in the working directory is not in Python's way.
                [sys.executable, "-P", "-m", _PROGRAM, str(its.fileno()), str(life_its)],
                pass_fds=(its.fileno(), life_its),
                stdin=subprocess.DEVNULL,
                # The caller's stdout is for its results.
                stdout=2,
                env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(_path())},
                # A group of its own, which dies as a whole; and a Ctrl-C is for the parent alone.
                start_new_session=True,
            )
        except BaseException:
            mine.close()
            os.close(self._life_fd)
            raise
        finally:
            # As long as they were open here too, the end of the worker would not show.
            its.close()
            os.close(life_its)
        mine.setblocking(False)
        self.channel = Channel(mine)
        self.is_ready = self.is_loading = False
        self.version = 0
        self.jobs: deque[int] = deque()
        self._timeout_s = timeout_s
        self.deadline_s: float | None = time.monotonic() + start_timeout_s
        settings = (_path(), os.environ.get("PYTHONPATH"), make_runner_pickled)
        with contextlib.suppress(OSError):  # that it has ended is found when it is read from
            self.channel.send(Message(Kind.START, pickled(settings)))

    @property
    def was_killed(self) -> bool:
        """`kill` was called."""
        return self._process.returncode is not None

    @property
    def is_idle(self) -> bool:
        """It is ready and nothing is asked of it."""
        return self.is_ready and not self.is_loading and not self.jobs

    def load(self, data_pickled: bytes, version: int) -> None:
        """Has it load data; it must be idle."""
        self.is_loading = True
        self._send(Message(Kind.LOAD, data_pickled, number=version))

    def run(self, number: int, job_pickled: bytes) -> None:
        """Has it run a job with the data that it has, after those that it was given before."""
        self.jobs.append(number)
        self._send(Message(Kind.JOB, job_pickled, number, self.version))

    def _send(self, message: Message) -> None:
        if self.deadline_s is None:
            self.deadline_s = time.monotonic() + self._timeout_s
        with contextlib.suppress(OSError):
            self.channel.send(message)

    def note_answer(self) -> None:
        """Notes that what it was asked first is answered: done, or failed."""
        if self.jobs:
            self.jobs.popleft()
        self.is_loading = False
        self.deadline_s = time.monotonic() + self._timeout_s if self.jobs else None

    def explain_end(self) -> str:
        """Waits for a process whose socket has ended, and says why it did."""
        ended = self.wait(_DEATH_TIMEOUT_S)
        if ended is None:
            return "its worker closed its socket"
        if ended.si_code == os.CLD_EXITED:
            return f"its worker ended with status {ended.si_status}"
        names = {int(one): one.name for one in signal.Signals}
        return f"its worker was ended by {names.get(ended.si_status, ended.si_status)}"

    def ask_to_end(self) -> None:
        """Closes its socket: unless it is at work, it closes its runner and ends."""
        self.channel.close()

    def wait(self, timeout_s: float) -> os.waitid_result | None:
        """Waits until it has ended, so long, and leaves it for `kill`; None if it has not."""
        until_s, pause_s = time.monotonic() + timeout_s, 1e-4
        options = os.WEXITED | os.WNOHANG | os.WNOWAIT
        while (ended := os.waitid(os.P_PID, self._process.pid, options)) is None:
            if time.monotonic() > until_s:
                return None
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1e-2)
        return ended

    def kill(self) -> None:
        """Ends it and its group; returns when nothing of it is left. May be called again."""
        self.channel.close()
        if self._process.returncode is None:
            # Before it is waited for, its number is that of its group and of nothing else.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            os.close(self._life_fd)


def _path() -> list[str]:
    """Where this process finds modules, for one with the same working directory."""
    return [place or str(pathlib.Path.cwd()) for place in sys.path]
