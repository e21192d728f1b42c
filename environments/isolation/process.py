"""A process that answers requests; a request starts it where it does not run."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from environments.errors import UserError
from environments.isolation import wire
from environments.machine import search_path

_DEATH_TIMEOUT_S = 5.0
_STDERR = 2


class CrashError(UserError):
    """The process ended before it answered."""


class Process:
    """A process that answers requests.

    Args:
      program: module to run; it calls `serving.serve`.
      subject: what runs there, for messages.
      shows_output: whether what the program prints goes to stderr; otherwise it is dropped.

    Attributes:
      generation: how many processes were started so far; what was opened in an earlier one is gone.
    """

    def __init__(self, program: str, subject: str, shows_output: bool = False) -> None:
        self.generation = 0
        self._program, self._subject = program, subject
        self._output = None if shows_output else subprocess.DEVNULL
        self._forgotten: list[int] = []
        self._next = 0
        self._end: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._finalizer: weakref.finalize | None = None

    def number(self) -> int:
        """Return a number for a program or for inputs."""
        self._next += 1
        return self._next

    def forget(self, number: int) -> None:
        """Tell the process with the next request that it may forget a program or inputs."""
        self._forgotten.append(number)

    @property
    def pid(self) -> int | None:
        """The number of the process; None where it does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process, unless it runs."""
        if self._end is not None:
            return
        mine, its = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                # -P: no file of the user's in the working directory can shadow a module.
                [sys.executable, "-P", "-m", self._program, str(its.fileno())],
                pass_fds=[its.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=_STDERR if self._output is None else self._output,
                # The caller reports a crash in one line, so C++ need not write its own.
                stderr=self._output,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(search_path())},
                # Ctrl-C must reach the caller only, which decides what becomes of this process.
                start_new_session=True,
            )
        except BaseException:
            mine.close()
            raise
        finally:
            its.close()
        self._end = mine
        self.generation += 1
        self._finalizer = weakref.finalize(self, _kill, os.getpid(), self._process, mine)

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request, and return its answer.

        Raises:
          CrashError: the process ended instead.
          UserError: the answer is an error.
        """
        self.send(**request)
        return self.answer()

    def send(self, **request: Any) -> None:
        """Send a request, whose answer `answer` returns.

        Raises:
          CrashError: the process ended instead.
        """
        self.start()
        forgotten, self._forgotten = self._forgotten, []
        with self._in_step() as end:
            wire.send(end, {**request, "forget": forgotten})

    def answer(self, within_s: float | None = None) -> dict[str, Any]:
        """Wait for the answer to what was sent; see `ask`.

        A process that does not begin to answer within so many seconds is ended: a CrashError.
        """
        with self._in_step() as end:
            end.settimeout(within_s)
            answer: dict[str, Any] = wire.receive(end)
            end.settimeout(None)
        if "error" in answer:
            raise UserError(answer["error"])
        return answer

    @contextlib.contextmanager
    def _in_step(self) -> Iterator[socket.socket]:
        """Lend the socket; end the process if a request or an answer stays incomplete."""
        if self._end is None:
            raise CrashError(f"{self._subject} ended before it answered")
        try:
            yield self._end
        except TimeoutError:
            self.kill()
            raise CrashError(f"{self._subject} took too long") from None
        except (EOFError, OSError):
            raise CrashError(f"{self._subject} {self._why_it_ended()}") from None
        except BaseException:
            # The answer may still come, and would be read as that to the next request.
            self.kill()
            raise

    def _why_it_ended(self) -> str:
        assert self._process is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_DEATH_TIMEOUT_S)
        status = self._process.returncode
        self.kill()
        if status is not None and status < 0:
            return f"was ended by {signal.Signals(-status).name}"
        return f"ended with status {status}"

    def kill(self) -> None:
        """End the process. May be called more than once; the next request starts another."""
        if self._finalizer is not None:
            self._finalizer()
        self._end = self._process = self._finalizer = None


def share_processor(processes: Sequence[Process]) -> None:
    """Have all threads of processes run on the processor that the first one ran on last.

    Those that do not run are left out; nothing happens where the system does not allow it.
    """
    # It takes a while to import, and most programs measure nothing.
    import psutil

    pids = [process.pid for process in processes if process.pid is not None]
    with contextlib.suppress(psutil.Error, OSError):
        running = [psutil.Process(pid) for pid in pids]
        processors = {process.cpu_num() for process in running[:1]}
        for thread in [thread for process in running for thread in process.threads()]:
            os.sched_setaffinity(thread.id, processors)


def _kill(owner_pid: int, process: subprocess.Popen[bytes], end: socket.socket) -> None:
    """Kill a process, unless this one is a forked copy of the one that started it."""
    end.close()
    if os.getpid() == owner_pid and process.returncode is None:
        process.kill()
        process.wait()
