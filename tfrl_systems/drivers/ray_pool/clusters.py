"""Joining a Ray cluster: one that runs already, or one that is started on this machine.

A process can be in one cluster at a time. All its pools share it, and the last one leaves it.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import logging
import os
import pathlib
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator

import ray

from environments.errors import UserError
from tfrl_systems.drivers.jobs import PoolError
from tfrl_systems.drivers.pool_parts import one_line
from tfrl_systems.drivers.processes import SINGLE_THREADED, search_path

_PROGRAM = "tfrl_systems.drivers.ray_pool.local_cluster"
_START_TIMEOUT_S = 180.0
_STOP_TIMEOUT_S = 30.0
_ASK_TIMEOUT_S = 10.0
# Linux does not take longer paths of sockets; up to 74 letters come behind the directory.
_MAX_DIRECTORY_LETTERS = 107 - 74
# Ray would let its workers wait for all other processes of the machine.
_ENVIRONMENT = {"RAY_worker_niceness": "0"}
# Whoever listens on this machine's ports cannot join without it. Ray keeps the first one it reads,
# so there is one for each process.
_TOKEN = secrets.token_hex(32)
_TOKEN_FILE = pathlib.Path("~/.ray/auth_token")


class Membership:
    """This process's place in a cluster, until the last user has left.

    Args:
      address: HOST:PORT of a cluster that this machine is a node of, or "auto" for the one that
        runs on this machine; "" for a new one, or for the one that the caller has joined by itself.

    Attributes:
      address: the same.
      is_local: whether the cluster was started for this process.
      num_users: how many use it.

    Raises:
      UserError: there is no such cluster.
      PoolError: none can be started.
    """

    def __init__(self, address: str) -> None:
        self.address = address
        self.num_users = 0
        self.is_local = False
        self._end = contextlib.ExitStack()
        if ray.is_initialized() and not address:
            return
        try:
            if address:
                self._join(address)
            else:
                self.is_local = True
                self._join_own()
        except BaseException:
            self.leave()
            raise

    def leave(self) -> None:
        """Leave the cluster; end it if it was started for this process."""
        self._end.close()

    def _join(self, address: str) -> None:
        if "://" in address:
            raise UserError(
                f"address: expected HOST:PORT or auto, found {address!r}; make this machine a node "
                "of the cluster (ray start --address=HOST:PORT) and give the same address"
            )
        # `ray start` decides alike, on each machine of the cluster.
        if _token_is_known() and "RAY_AUTH_MODE" not in os.environ:
            self._end.enter_context(_environment({"RAY_AUTH_MODE": "token"}))
        try:
            _check_that_someone_listens(address)
            self._connect(address)
        except Exception as error:  # Ray raises many kinds
            raise UserError(
                f"address: expected a Ray cluster at {address} with this machine as a node, found "
                f"none ({_reason(error)}); on its first machine type: ray start --head; on the "
                "others, this one too: ray start --address=HOST:PORT"
            ) from error

    def _join_own(self) -> None:
        settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN}
        self._end.enter_context(_environment(settings))
        address = self._end.enter_context(_own_cluster())
        self._connect(address)

    def _connect(self, address: str) -> None:
        with _own_signal_handlers():
            ray.init(address, configure_logging=False, log_to_driver=False)
        self._end.callback(ray.shutdown)


_lock = threading.Lock()
_membership: Membership | None = None


def connect(address: str) -> Callable[[], None]:
    """Join a cluster, unless this process is in it already.

    Args:
      address: see `Membership`.

    Returns:
      A function that leaves the cluster, if nobody else in this process uses it. It may be called
      more than once.

    Raises:
      UserError: there is no such cluster, or this process is in another one.
      PoolError: no cluster can be started.
    """
    global _membership
    # Ray warns of what its own defaults have decided.
    logging.getLogger("ray").setLevel(logging.ERROR)
    with _lock:
        if _membership is None:
            _membership = Membership(address)
        joined = _membership
        if joined.address != address:
            raise UserError(
                f"address: expected {joined.address!r}, the cluster that this process is in, found "
                f"{address!r}; close the pools of that cluster first"
            )
        joined.num_users += 1
    has_left = False

    def leave() -> None:
        nonlocal has_left
        global _membership
        with _lock:
            joined.num_users -= not has_left
            has_left = True
            if not joined.num_users and _membership is joined:
                _membership = None
                joined.leave()

    return leave


def is_local() -> bool:
    """Return whether this process has started the cluster that it is in."""
    return _membership is not None and _membership.is_local


@contextlib.contextmanager
def _own_cluster() -> Iterator[str]:
    """Start a cluster on this machine, give its address, and end it.

    Raises:
      PoolError: it does not start.
    """
    directory = _make_directory()
    life_its, life_fd = os.pipe()
    answer_fd, answer_its = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", _PROGRAM, str(life_its), str(answer_its), directory],
        pass_fds=(life_its, answer_its),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={
            **os.environ,
            **_ENVIRONMENT,
            **SINGLE_THREADED,
            "PYTHONPATH": os.pathsep.join(search_path()),
        },
        # A Ctrl-C is for this process; it decides what ends.
        start_new_session=True,
    )
    os.close(life_its)
    os.close(answer_its)
    try:
        with os.fdopen(answer_fd) as answers:
            is_answered = bool(select.select([answers], [], [], _START_TIMEOUT_S)[0])
            line = answers.readline() if is_answered else ""
        answer = json.loads(line) if line else {"error": f"no answer in {_START_TIMEOUT_S:g} s"}
        if "error" in answer:
            raise PoolError(f"collect: Ray does not start on this machine: {answer['error']}")
        yield answer["address"]
    finally:
        os.close(life_fd)
        try:
            process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(directory, ignore_errors=True)


def _make_directory() -> pathlib.Path:
    """Make a directory for sockets and logs that only this user can enter."""
    base = pathlib.Path(tempfile.gettempdir())
    # mkdtemp adds 8 letters to the prefix.
    if len(str(base)) + len("/tfrl-ray-") + 8 > _MAX_DIRECTORY_LETTERS:
        base = pathlib.Path("/tmp")
    return pathlib.Path(tempfile.mkdtemp(prefix="tfrl-ray-", dir=base))


@contextlib.contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Set environment variables for Ray, which reads them once."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    _read_environment_again()
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        _read_environment_again()


def _read_environment_again() -> None:
    """Have Ray read the variables that it has read when it was imported."""
    importlib.import_module("ray._raylet").Config.initialize("")


@contextlib.contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Keep the caller's answer to SIGTERM, which Ray replaces."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and before is not None:
            signal.signal(signal.SIGTERM, before)


def _check_that_someone_listens(address: str) -> None:
    """Ask before Ray does, because Ray asks again for many minutes.

    Raises:
      OSError, ValueError: nobody listens there.
    """
    if address != "auto":
        host, _, port = address.rpartition(":")
        socket.create_connection((host, int(port)), _ASK_TIMEOUT_S).close()


def _token_is_known() -> bool:
    """Return whether this user has a token for clusters."""
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    return any(name in os.environ for name in names) or _TOKEN_FILE.expanduser().exists()


def _reason(error: Exception) -> str:
    """Return the last cause of an exception, in few words."""
    while error.__cause__ is not None and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return one_line(error)[:200]


def node_ids() -> set[str]:
    """Return Ray's names of the nodes that can have workers."""
    return {
        node["NodeID"]
        for node in ray.nodes()
        if node["Alive"] and (is_local() or node["Resources"].get("CPU"))
    }


def num_processors() -> int:
    """Return how many processors the cluster has that this process is in.

    Raises:
      PoolError: it has none.
    """
    until_s = time.monotonic() + _ASK_TIMEOUT_S
    # A process that has just joined does not know the nodes yet.
    while not (found := int(ray.cluster_resources().get("CPU", 0))):
        if time.monotonic() > until_s:
            raise PoolError(
                "address: expected a cluster with processors, found none; add nodes to it: "
                "ray start --address=HOST:PORT"
            )
        time.sleep(0.1)
    return found
