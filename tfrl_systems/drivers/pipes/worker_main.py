"""The program of a worker process: it makes a runner, then loads data and runs jobs as told.

It is the worker of Mayer's thesis (Algorithm 5.5), which makes its own environment and driver,
receives θ, runs and answers. Here one θ may serve several runs, and each message is answered, so
that a failure is known at once.

The pool starts it as `python -m tfrl_systems.drivers.pipes.worker_main SOCKET LIFE`, where both
arguments are numbers of inherited file descriptors. It does not use multiprocessing, which would
run the user's script again in the worker. The worker ends when its socket closes. LIFE is the read
end of a pipe whose write end only the parent has. The kernel closes the write end however the
parent ends, and the worker's group is then killed, whatever it is doing.
"""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import select
import signal
import socket
import sys
from typing import Any

from tfrl_systems.drivers.pipes.messages import Channel
from tfrl_systems.drivers.worker import Worker


def main() -> None:
    """Serve the parent until it closes the socket."""
    faulthandler.enable()  # a crash prints where it happened to stderr
    socket_fd, life_fd = (int(number) for number in sys.argv[1:3])
    die_with_parent(life_fd)
    channel = Channel(socket.socket(fileno=socket_fd))
    # The other end closes when the pool is closed or the parent ends.
    with contextlib.suppress(EOFError, ConnectionError):
        serve(channel)


def die_with_parent(life_fd: int) -> None:
    """Have this process and its group killed when the write end of a pipe is closed.

    The kernel kills them, even while C code keeps Python from running.

    Args:
      life_fd: the read end of the pipe, to which nothing is ever written.
    """
    os.set_inheritable(life_fd, False)
    fcntl.fcntl(life_fd, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life_fd, fcntl.F_SETOWN, -os.getpgrp())
    flags = fcntl.fcntl(life_fd, fcntl.F_GETFL)
    fcntl.fcntl(life_fd, fcntl.F_SETFL, flags | os.O_ASYNC)
    # The parent may have ended before the signal was set up.
    if select.select([life_fd], [], [], 0)[0]:
        os.killpg(0, signal.SIGKILL)


def serve(channel: Channel) -> None:
    """Do what the messages of a channel ask for, and answer them.

    Raises:
      EOFError: the other end is closed.
    """
    (sys.path[:], python_path), make_runner_pickled = _receive(channel)
    # The parent set PYTHONPATH for this process only. Processes that a runner starts get the
    # user's.
    os.environ.pop("PYTHONPATH", None)
    if python_path is not None:
        os.environ["PYTHONPATH"] = python_path
    worker = Worker()
    answer = worker.start(make_runner_pickled)
    try:
        while True:
            channel.send((answer.is_error, answer.seconds), answer.payload)
            (method, *arguments), payload = _receive(channel)
            answer = getattr(worker, method)(payload, *arguments)
    finally:
        worker.close()


def _receive(channel: Channel) -> tuple[Any, bytearray]:
    message = channel.receive()
    assert message is not None, "the worker's socket blocks"
    return message


if __name__ == "__main__":
    main()
