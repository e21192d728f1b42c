"""A Ray cluster of this machine alone, which ends however the process that started it ends.

`ray.init` starts a cluster, but not one that keeps a pool's promises. If the caller is killed,
Ray's agents live on for more than a minute, and the session's files stay. If a process of the
cluster ends, Ray ends the caller without a word. So a program of its own holds the cluster::

    python -m tfrl_systems.drivers.ray_pool.own_cluster LIFE ANSWER SAYS DIRECTORY

LIFE, ANSWER and SAYS are numbers of inherited file descriptors. The program writes one line of JSON
to ANSWER: the cluster's address and the numbers of its processes, or why there is none. LIFE is the
read end of a pipe whose write end only the caller has. When the caller writes to it, or the kernel
closes it, the program kills all processes of the cluster, and removes DIRECTORY, which holds their
sockets and logs. If Ray has ended the caller, the program says why on SAYS, the caller's stderr.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
from typing import Any, NoReturn

import psutil
import ray

from environments.errors import one_line
from environments.machine import search_path
from tfrl_systems.drivers.jobs import PoolError
from tfrl_systems.drivers.processes import SINGLE_THREADED, adopt_orphans

_PROGRAM = "tfrl_systems.drivers.ray_pool.own_cluster"
_NO_START = "collect: Ray does not start on this machine"
_START_TIMEOUT_S = 180.0
_STOP_TIMEOUT_S = 30.0
# Linux does not take longer paths of sockets; up to 74 letters come behind the directory.
_MAX_DIRECTORY_LETTERS = 107 - 74
# Ray runs workers at niceness 15: beside other work they would hardly get a processor.
_ENVIRONMENT = {**SINGLE_THREADED, "RAY_worker_niceness": "0"}
_OBJECT_STORE_BYTES = 256 << 20
# Ray gives its processes half a minute to start. On a busy machine that may be too little.
_MAX_ATTEMPTS = 3
# A process closes its connections, which others notice, before it has ended.
_DYING_S = 0.2
_DEATH_TIMEOUT_S = 5.0
# The processes that a cluster cannot do without.
_NEEDED = ("raylet", "gcs_server")


def loss_message(name: str) -> str:
    """Return the message for users that a process of the cluster has ended."""
    return (
        "collect: expected the Ray cluster that was started on this machine, found that its "
        f"{name} has ended; run the same command with --resume"
    )


class OwnCluster:
    """The caller's handle on a cluster that the program of this module holds.

    Attributes:
      address: its HOST:PORT.

    Raises:
      PoolError: it does not start.
    """

    def __init__(self) -> None:
        self._directory = _make_directory()
        life_its, self._life_fd = os.pipe()
        answer_fd, answer_its = os.pipe()
        its = (life_its, answer_its, os.dup(2))
        self._holder = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM, *map(str, its), self._directory],
            pass_fds=its,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(search_path())},
            # A Ctrl-C is for this process; it decides what ends.
            start_new_session=True,
        )
        for number in its:
            os.close(number)
        self._ends: dict[int, str] = {}
        try:
            answer = _answer(answer_fd)
            pids = {**answer["pids"], "holder": self._holder.pid}
            self._ends = {os.pidfd_open(pid): name for name, pid in pids.items()}
        except ProcessLookupError as error:
            self.close()
            raise PoolError(f"{_NO_START}: a process of it has ended") from error
        except BaseException:
            self.close()
            raise
        self.address: str = answer["address"]

    def lost(self) -> str:
        """Return which of the processes that it cannot do without has ended; "" for none."""
        poller = select.poll()
        for end in self._ends:
            poller.register(end, select.POLLIN)
        return next((self._ends[end] for end, _ in poller.poll(0)), "")

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
        while self._ends:
            os.close(self._ends.popitem()[0])


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
        raise PoolError(f"{_NO_START}: {answer['error']}")
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


def main() -> None:
    """Hold a cluster until the caller ends."""
    life_fd, answer_fd, says_fd = map(int, sys.argv[1:4])
    directory = pathlib.Path(sys.argv[4])
    signal.signal(signal.SIGTERM, _exit)
    adopt_orphans()
    try:
        answer = _start(directory)
        needed = {psutil.Process(pid): name for name, pid in answer.get("pids", {}).items()}
        with contextlib.suppress(BrokenPipeError), os.fdopen(answer_fd, "w") as file:
            file.write(json.dumps(answer))
        signal.signal(signal.SIGTERM, _exit)  # Ray has set its own handler
        is_orderly = bool(os.read(life_fd, 1))
        if not is_orderly:
            ended: list[psutil.Process] = []
            psutil.wait_procs(list(needed), _DYING_S, ended.append)
            if ended:
                os.write(says_fd, f"tfrl: {loss_message(needed[ended[0]])}\n".encode())
    finally:
        # Ray does not end its agents, and orphans of what it ends become children of this process.
        family = psutil.Process().children(recursive=True)
        ray.shutdown()
        family += psutil.Process().children(recursive=True)
        for process in family:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(family, _DEATH_TIMEOUT_S)
        shutil.rmtree(directory, ignore_errors=True)


def _exit(*_: object) -> NoReturn:
    sys.exit(0)


def _start(directory: pathlib.Path) -> dict[str, Any]:
    """Start the cluster; return its `address` and `pids` by name, or an `error` in one line."""
    for _ in range(_MAX_ATTEMPTS):
        try:
            ray.init(
                "local",
                # Workers of a local cluster ask for no processors; see `worker_handle`.
                num_cpus=0,
                num_gpus=0,
                object_store_memory=_OBJECT_STORE_BYTES,
                include_dashboard=False,
                configure_logging=False,
                log_to_driver=False,
                # All users may enter the directory that Ray makes; the one around it is private.
                _temp_dir=str(directory / "ray"),
                # The history of tasks, which nobody reads, would grow with each of them.
                _system_config={"task_events_report_interval_ms": 0},
            )
            children = {child.name(): child.pid for child in psutil.Process().children()}
            pids = {name: children[name] for name in _NEEDED}
            return {"address": ray.get_runtime_context().gcs_address, "pids": pids}
        except Exception as error:  # whatever Ray raises, the caller has to know
            why = one_line(error)
            ray.shutdown()
    return {"error": why}


if __name__ == "__main__":
    main()
