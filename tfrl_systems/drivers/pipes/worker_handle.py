"""The pool's handle on one worker process: starts it, times it, and makes sure that it ends."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from environments.machine import search_path
from tfrl_systems.drivers.collect import Supervision
from tfrl_systems.drivers.pipes.messages import Channel
from tfrl_systems.drivers.remote_pool import Handle, State
from tfrl_systems.drivers.worker import SINGLE_THREADED

_PROGRAM = "tfrl_systems.drivers.pipes.worker_main"
# How long a worker's process may take to end after its socket has closed.
_DEATH_TIMEOUT_S = 1.0


class WorkerHandle(Handle):
    """A process that runs jobs, one at a time, in the order in which it gets them.

    Attributes:
      channel: non-blocking channel to the worker.
    """

    def __init__(self, make_runner_pickled: bytes, supervision: Supervision) -> None:
        super().__init__(supervision, State.STARTING)
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
        self.deadline_s = time.monotonic() + self.limit_s
        settings = (search_path(), os.environ.get("PYTHONPATH"))
        with contextlib.suppress(OSError):  # if it has ended, the next read finds out
            self.channel.send(settings, make_runner_pickled)

    @property
    def pid(self) -> int:
        """Return the number of the process."""
        return self._process.pid

    @property
    def was_killed(self) -> bool:
        """Return whether `kill` was called."""
        return self._process.returncode is not None

    def _send(self, method: str, *arguments: Any) -> None:
        payload, *more = arguments
        with contextlib.suppress(OSError):
            self.channel.send((method, *more), payload)

    def explain_end(self) -> str:
        """Wait for a process whose socket has closed, and return why it ended."""
        ended = self.wait(_DEATH_TIMEOUT_S)
        if ended is None:
            return "its worker closed its socket"
        if ended.si_code == os.CLD_EXITED:
            return f"its worker ended with status {ended.si_status}"
        # Real-time signals have no names.
        names = {int(number): number.name for number in signal.Signals}
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
