"""The process that cleans up when its host cannot (`guardian.py`); started as a script.

It imports nothing outside the standard library, so that it is up in a few milliseconds::

    to the host       a line of JSON, the directory that was made; nothing where it cannot be made
    from the host     "watch PID" or "release PID", a line each

When stdin ends, the groups of the processes still watched are killed and the directory is removed.
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
    """Guards until the host ends."""
    try:
        directory = tempfile.mkdtemp(prefix="tfrl-inlining-")
    except OSError:
        return
    os.write(1, json.dumps(directory).encode() + b"\n")
    watched: dict[int, int] = {}
    for line in sys.stdin.buffer:
        verb, number = line.split()
        pid = int(number)
        if verb == b"watch":
            # A pidfd names this one process, also when its number is used again.
            with contextlib.suppress(OSError):
                watched[pid] = os.pidfd_open(pid)
        elif pid in watched:
            os.close(watched.pop(pid))
    for pid, pidfd in watched.items():
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(pidfd, 0)  # raises where the process has ended
            os.killpg(pid, signal.SIGKILL)
    shutil.rmtree(directory, ignore_errors=True)


if __name__ == "__main__":
    main()
