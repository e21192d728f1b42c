"""Remove this process's temporary files and compilers however it ends, even by SIGKILL.

A process that is killed removes neither its files nor the processes that it started. So a second
process, the guardian, makes and removes the directory for the files, such as models and the named
pipes of compilers, and knows the running compilers. It waits on a pipe from its host. The kernel
closes that pipe however the host ends; the guardian then kills the compilers, removes the directory
and ends too.

This file is the host's side; `guardian_process.py` is the guardian.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading

from environments.errors import UserError

_SCRIPT = pathlib.Path(__file__).with_name("guardian_process.py")
_END_TIMEOUT_S = 10.0


class _Guardian:
    """The host's handle to its guardian process."""

    def __init__(self) -> None:
        self.host_pid = os.getpid()
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", _SCRIPT],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            # Ctrl-C must reach only the host: it would end the guardian before its work is done.
            start_new_session=True,
        )
        assert self._process.stdin is not None and self._process.stdout is not None
        with self._process.stdout as stdout:
            reply = stdout.readline()
        if not reply:
            self._process.wait()
            raise UserError(
                f"temporary files: expected room in {tempfile.gettempdir()}, found that no "
                "directory could be made there; free some space or set TMPDIR to another place"
            )
        self.directory = pathlib.Path(json.loads(reply))

    def tell(self, verb: str, pid: int) -> None:
        assert self._process.stdin is not None
        # A guardian that was killed no longer guards; everything else still works.
        with contextlib.suppress(BrokenPipeError):
            os.write(self._process.stdin.fileno(), f"{verb} {pid}\n".encode())

    def end(self) -> None:
        assert self._process.stdin is not None
        if self.host_pid != os.getpid():
            return
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_TIMEOUT_S)
        shutil.rmtree(self.directory, ignore_errors=True)


_lock = threading.Lock()
_current: _Guardian | None = None


def _guardian() -> _Guardian:
    """Return the guardian of this process; start it on the first call."""
    global _current
    with _lock:
        if _current is None or _current.host_pid != os.getpid():
            _current = _Guardian()
            atexit.register(_current.end)
        return _current


def make_directory() -> tempfile.TemporaryDirectory:
    """Make a private directory; it is removed on cleanup or when this process ends.

    Raises:
      UserError: there is no room for a directory.
    """
    try:
        return tempfile.TemporaryDirectory(dir=_guardian().directory)
    except OSError as error:
        raise UserError(
            f"temporary files: expected room in {tempfile.gettempdir()}, found: {error}; "
            "free some space or set TMPDIR to another place"
        ) from error


def watch(process: subprocess.Popen) -> None:
    """Have `process`, the leader of a group, killed if this process ends before it calls `kill`."""
    _guardian().tell("watch", process.pid)


def kill(process: subprocess.Popen) -> None:
    """Kill `process`, the leader of a group, with its whole group, and stop watching it."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    _guardian().tell("release", process.pid)
