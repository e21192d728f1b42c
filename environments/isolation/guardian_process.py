"""The process that cleans up when its host cannot (`guardian.py`); started as a script.

It imports nothing outside the standard library, so it starts in a few milliseconds. The two sides
exchange lines::

    to the host       a line of JSON, the directory that was made; nothing if it cannot be made
    from the host     "watch PID" or "release PID", a line each

When stdin ends, the guardian kills the groups of the processes that it still watches and removes
the directory.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import sys
import tempfile


def main() -> None:
    """Watch processes until the host ends, then clean up."""
    try:
        directory = tempfile.mkdtemp(prefix="tfrl-")
    except OSError:
        return
    with contextlib.suppress(BrokenPipeError):  # The host has already ended; so does stdin.
        os.write(1, json.dumps(directory).encode() + b"\n")
    watched: dict[int, int] = {}
    for line in sys.stdin.buffer:
        verb, number = line.split()
        pid = int(number)
        if verb == b"watch":
            # A pidfd names this one process, even if its number is used again later.
            with contextlib.suppress(OSError):
                watched[pid] = os.pidfd_open(pid)
        elif pid in watched:
            os.close(watched.pop(pid))
    for pid, pidfd in watched.items():
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(pidfd, 0)  # Raises an OSError if the process has ended.
            os.killpg(pid, signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
