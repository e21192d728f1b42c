"""A worker process of `pool.DriverPool`: makes a runner, then loads and runs as it is told.

It is started as `python -m tfrl_systems.drivers.worker SOCKET LIFE`, both numbers of inherited file
descriptors, and not by multiprocessing, which would run the user's script in it once more. It ends
when its socket ends. LIFE is the read end of a pipe whose write end only the parent has; the kernel
closes that however the parent ends, and the worker's group is killed then, whatever it is doing.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import gc
import os
import select
import signal
import socket
import sys
import threading
import time
from typing import Any

from tfrl_systems.drivers.runner_host import RunnerHost
from tfrl_systems.drivers.wire import Channel, Frame, Kind, pickled, trouble_of, unpickled


def main() -> None:
    """Serves the parent until it closes the socket."""
    faulthandler.enable()  # a crash says where, on stderr
    socket_fd, life_fd = (int(number) for number in sys.argv[1:3])
    die_with_parent(life_fd)
    channel = Channel(socket.socket(fileno=socket_fd))
    # The other end is closed with the pool, or with the parent.
    with contextlib.suppress(EOFError, ConnectionError):
        serve(channel)


def die_with_parent(life_fd: int) -> None:
    """Has this process and its group killed when the write end of a pipe is closed.

    Linux does it by itself, also while Python cannot run because C code does not let it. Elsewhere
    a thread waits, and such code delays the end.

    Args:
      life_fd: the read end. Nothing is ever written.
    """
    os.set_inheritable(life_fd, False)
    if hasattr(fcntl, "F_SETSIG"):
        fcntl.fcntl(life_fd, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(life_fd, fcntl.F_SETOWN, -os.getpgrp())
        flags = fcntl.fcntl(life_fd, fcntl.F_GETFL)
        fcntl.fcntl(life_fd, fcntl.F_SETFL, flags | os.O_ASYNC)
        # The parent may have ended before there was anyone to tell.
        if select.select([life_fd], [], [], 0)[0]:
            os.killpg(0, signal.SIGKILL)
    else:

        def wait() -> None:
            os.read(life_fd, 1)
            os.killpg(0, signal.SIGKILL)

        threading.Thread(target=wait, daemon=True).start()


def serve(channel: Channel) -> None:
    """Does what comes through the channel.

    Raises:
      EOFError: the other end is closed.
    """
    started = _receive(channel)
    try:
        sys.path[:], python_path, make_runner_pickled = unpickled(started.payload)
        # It was there for this process only; processes that a runner starts have the user's.
        os.environ.pop("PYTHONPATH", None)
        if python_path is not None:
            os.environ["PYTHONPATH"] = python_path
        # Unpickled anew for each runner, that nothing of one that failed gets into the next.
        host: RunnerHost[Any, Any] = RunnerHost(lambda: unpickled(make_runner_pickled)())
    except Exception as error:
        channel.send(Frame(Kind.START_FAILED, pickled(trouble_of(error))))
        return
    # What importing and making left will stay: the collector need not look at it again.
    gc.collect()
    gc.freeze()
    channel.send(Frame(Kind.READY))
    try:
        while True:
            channel.send(_answer(host, _receive(channel)))
    finally:
        host.close()


def _receive(channel: Channel) -> Frame:
    frame = channel.receive()
    assert frame is not None, "the worker's socket blocks"
    return frame


def _answer(host: RunnerHost[Any, Any], frame: Frame) -> Frame:
    try:
        if frame.kind == Kind.LOAD:
            host.load(bytes(frame.payload), frame.number)
            return Frame(Kind.LOADED, number=frame.number)
        began_s = time.perf_counter()
        result = host.run(unpickled(frame.payload), frame.version)
        seconds = time.perf_counter() - began_s
        return Frame(Kind.RESULT, pickled(result), frame.number, frame.version, seconds)
    except Exception as error:
        kind = Kind.LOAD_FAILED if frame.kind == Kind.LOAD else Kind.JOB_FAILED
        return Frame(kind, pickled(trouble_of(error)), frame.number, frame.version)


if __name__ == "__main__":
    main()
