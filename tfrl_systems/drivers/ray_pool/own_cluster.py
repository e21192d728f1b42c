"""A Ray cluster of this machine alone, which ends however the process that started it ends.

`ray.init` starts a cluster, but not one that keeps a pool's promises (measured with Ray 2.60). If
the caller is killed, two of Ray's agents live on for 62 s, and the 53 files of the session stay. If
a process of the cluster ends, Ray ends the caller without a word. So a program of its own holds
it::

    python -m tfrl_systems.drivers.ray_pool.own_cluster DIRECTORY

The program writes one line of JSON to its stdout: the cluster's address and the numbers of its
processes, or why there is none. When the caller writes to its stdin, or the kernel closes that
however the caller ends, the program kills all processes of the cluster, and removes DIRECTORY,
which holds their sockets and logs. If Ray has ended the caller, it says why on stderr.
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
from tfrl_systems.drivers.worker import SINGLE_THREADED

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
        self._holder = subprocess.Popen(
            [sys.executable, "-P", "-m", _PROGRAM, self._directory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **_ENVIRONMENT, "PYTHONPATH": os.pathsep.join(search_path())},
            # A Ctrl-C is for this process; it decides what ends. Ray's processes stay in the
            # session.
            start_new_session=True,
        )
        self._ends: dict[int, str] = {}
        try:
            answer = self._answer()
            pids = {**answer["pids"], "holder": self._holder.pid}
            self._ends = {os.pidfd_open(pid): name for name, pid in pids.items()}
        except ProcessLookupError as error:
            self.close()
            raise PoolError(f"{_NO_START}: a process of it has ended") from error
        except BaseException:
            self.close()
            raise
        self.address: str = answer["address"]

    def _answer(self) -> dict[str, Any]:
        """Return what the program answers.

        Raises:
          PoolError: it answers that there is no cluster, or does not answer in time.
        """
        answer: dict[str, Any] = {"error": f"no answer in {_START_TIMEOUT_S:g} s"}
        answers = self._holder.stdout
        assert answers is not None
        if select.select([answers], [], [], _START_TIMEOUT_S)[0]:
            line = answers.readline()
            answer = json.loads(line) if line else {"error": "a process of it has ended"}
        if "error" in answer:
            raise PoolError(f"{_NO_START}: {answer['error']}")
        return answer

    def lost(self) -> str:
        """Return which of the processes that it cannot do without has ended; "" for none."""
        poller = select.poll()
        for end in self._ends:
            poller.register(end, select.POLLIN)
        return next((self._ends[end] for end, _ in poller.poll(0)), "")

    def close(self) -> None:
        """End the cluster, and remove its files."""
        try:
            self._holder.communicate(b"end", _STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._holder.kill()
            self._holder.communicate()
        if self._holder.returncode:
            _end_session(self._holder.pid)
        shutil.rmtree(self._directory, ignore_errors=True)
        while self._ends:
            os.close(self._ends.popitem()[0])


def _end_session(number: int) -> None:
    """End the other processes of a session: Ray's agents live on for a minute without it."""
    members = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and os.getsid(process.pid) == number:
                process.kill()
                members.append(process)
    psutil.wait_procs(members, _DEATH_TIMEOUT_S)


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
    directory = pathlib.Path(sys.argv[1])
    signal.signal(signal.SIGTERM, _exit)
    answers_fd, says_fd = os.dup(1), os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):  # Ray writes what nobody has asked for
        os.dup2(nowhere, number)
    try:
        answer = _start(directory)
        needed = {psutil.Process(pid): name for name, pid in answer.get("pids", {}).items()}
        with contextlib.suppress(BrokenPipeError), os.fdopen(answers_fd, "w") as file:
            file.write(json.dumps(answer))
        signal.signal(signal.SIGTERM, _exit)  # Ray has set its own handler
        is_orderly = bool(os.read(0, 1))
        if not is_orderly:
            ended: list[psutil.Process] = []
            psutil.wait_procs(list(needed), _DYING_S, ended.append)
            if ended:
                os.write(says_fd, f"tfrl: {loss_message(needed[ended[0]])}\n".encode())
    finally:
        ray.shutdown()
        _end_session(os.getpid())
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
