"""Joining a Ray cluster: one that runs already, or one that is started on this machine.

A process can be in one cluster at a time. All its pools share it, and the last one leaves it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import logging
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import ray

from environments.errors import UserError, one_line
from environments.machine import home_directory
from tfrl_systems.drivers.jobs import PoolError
from tfrl_systems.drivers.ray_pool.own_cluster import OwnCluster, loss_message

_ASK_TIMEOUT_S = 10.0
# Nobody can join an own cluster without it, though its ports are open to all users of this machine.
# Ray keeps the first token that a process reads, so there is one for each process.
_TOKEN = secrets.token_hex(32)
_TOKEN_FILE = ".ray/auth_token"
# Ray ends a process whose cluster has not answered for a minute, even while it learns and needs no
# cluster. Pools notice the loss of an own cluster themselves, so Ray may wait longer.
_SILENCE = "RAY_gcs_rpc_server_reconnect_timeout_s"
_SILENCE_S = 3600


@dataclasses.dataclass
class _Membership:
    """This process's membership of a cluster.

    Attributes:
      address: see `joined`.
      own: the cluster, if it was started for this process.
      end: leaves the cluster; ends it if it was started for this process.
      num_users: how many use it.
    """

    address: str
    own: OwnCluster | None
    end: contextlib.ExitStack
    num_users: int = 0


_lock = threading.Lock()
_membership: _Membership | None = None


@contextlib.contextmanager
def joined(address: str) -> Iterator[None]:
    """Join a cluster, unless this process is in it already; the last of its users leaves it.

    Args:
      address: HOST:PORT of a cluster that this machine is a node of, or "auto" for the one that
        runs on this machine; "" for a new one, or for the one that the caller has joined by itself.

    Raises:
      UserError: there is no such cluster, or this process is in another one.
      PoolError: no cluster can be started.
    """
    global _membership
    # Ray warns about its own defaults.
    logging.getLogger("ray").setLevel(logging.ERROR)
    with _lock:
        if _membership is None:
            _membership = _join(address)
        check_not_lost()
        membership = _membership
        if membership.address != address:
            raise UserError(
                f"address: expected {membership.address!r}, the cluster that this process is in, "
                f"found {address!r}; close the pools of that cluster first"
            )
        membership.num_users += 1
    try:
        yield
    finally:
        with _lock:
            membership.num_users -= 1
            if not membership.num_users:
                _membership = None
                membership.end.close()


def is_local() -> bool:
    """Return whether this process has started the cluster that it is in."""
    return _membership is not None and _membership.own is not None


def lost() -> str:
    """Return which process of the own cluster has ended; "" for none, or without such a cluster."""
    own = _membership.own if _membership is not None else None
    return own.lost() if own is not None else ""


def check_not_lost() -> None:
    """Check that the own cluster still works: without it Ray ends this process or waits for ever.

    Raises:
      PoolError: the cluster that this process has started was lost.
    """
    if name := lost():
        raise PoolError(loss_message(name))


def _join(address: str) -> _Membership:
    with contextlib.ExitStack() as end:
        own = None
        if address:
            _join_existing(address, end)
        elif not ray.is_initialized():
            settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": _TOKEN}
            end.enter_context(_environment(settings))
            own = end.enter_context(contextlib.closing(OwnCluster()))
            end.enter_context(_environment({_SILENCE: str(_SILENCE_S)}))
            _connect(own.address, end)
        return _Membership(address, own, end.pop_all())


def _join_existing(address: str, end: contextlib.ExitStack) -> None:
    if "://" in address:
        raise UserError(
            f"address: expected HOST:PORT or auto, found {address!r}; make this machine a node "
            "of the cluster (ray start --address=HOST:PORT) and give the same address"
        )
    # `ray start` decides in the same way on each machine of the cluster.
    if _token_is_known() and "RAY_AUTH_MODE" not in os.environ:
        end.enter_context(_environment({"RAY_AUTH_MODE": "token"}))
    try:
        if address != "auto":  # Ray would try for many minutes where nobody listens
            host, _, port = address.rpartition(":")
            socket.create_connection((host, int(port)), _ASK_TIMEOUT_S).close()
        _connect(address, end)
    except Exception as error:  # Ray raises many kinds
        raise UserError(
            f"address: expected a Ray cluster at {address} with this machine as a node, found "
            f"none ({_reason(error)}); on its first machine type: ray start --head; on the "
            "others, this one too: ray start --address=HOST:PORT"
        ) from error


def _connect(address: str, end: contextlib.ExitStack) -> None:
    with _own_signal_handlers(), _without_reports():
        ray.init(address, configure_logging=False, log_to_driver=False)
    end.callback(ray.shutdown)


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
    """Have Ray read its variables again; it reads them only when it is imported."""
    importlib.import_module("ray._raylet").Config.initialize("")


@contextlib.contextmanager
def _without_reports() -> Iterator[None]:
    """Keep Ray from printing lost workers and nodes on stdout, where results go.

    The pools log them. Ray has no setting for the thread that prints, which starts when a process
    joins a cluster.
    """
    module: Any = importlib.import_module("ray._private.worker")
    before = getattr(module, "listen_error_messages", None)
    module.listen_error_messages = lambda *_: None
    try:
        yield
    finally:
        module.listen_error_messages = before


@contextlib.contextmanager
def _own_signal_handlers() -> Iterator[None]:
    """Restore the caller's handler of SIGTERM, which Ray replaces."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        is_main = threading.current_thread() is threading.main_thread()
        if is_main and before is not None:
            signal.signal(signal.SIGTERM, before)


def _token_is_known() -> bool:
    """Return whether this user has a token for clusters."""
    names = ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH")
    return any(name in os.environ for name in names) or (home_directory() / _TOKEN_FILE).exists()


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
    while not (num_cpus := int(ray.cluster_resources().get("CPU", 0))):
        if time.monotonic() > until_s:
            raise PoolError(
                "address: expected a cluster with processors, found none; add nodes to it: "
                "ray start --address=HOST:PORT"
            )
        time.sleep(0.1)
    return num_cpus
