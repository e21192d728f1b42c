"""A worker of a Ray cluster: an actor that holds one runner.

Ray carries only bytes between a pool and its workers: what `messages.pickled` makes. Each side
unpickles only what the other one wrote.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import hashlib
import importlib.metadata
import os
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import ray

from tfrl_systems.drivers.pipes.messages import RemoteError, pickled, unpickled
from tfrl_systems.drivers.pool_parts import RestartingRunner

# Other versions of these can change results.
_PACKAGES = (
    "tfrl-systems",
    "cloudpickle",
    "llvmlite",
    "numpy",
    "onnx",
    "onnxruntime",
    "scikit-learn",
    "scipy",
    "tf-agents",
)


@dataclasses.dataclass(frozen=True)
class Needs:
    """What a worker needs, as the caller's process has it.

    Attributes:
      versions: version by name of the package; "" for one that is not installed.
      directory: working directory, which relative paths start from.
      path: directories to import from.
    """

    versions: Mapping[str, str]
    directory: str
    path: tuple[str, ...]

    @classmethod
    def of_this_process(cls, path: list[str]) -> Needs:
        """Return what this process has; `path` is its absolute sys.path."""
        return cls(versions(), str(pathlib.Path.cwd()), tuple(path))

    def lacking(self) -> str:
        """Return what this process lacks, in one line; "" if nothing."""
        found = versions()
        wrong = [name for name, version in self.versions.items() if found[name] != version]
        if not wrong:
            return ""
        expected = ", ".join(f"{name} {self.versions[name] or 'not installed'}" for name in wrong)
        told = ", ".join(f"{name} {found[name] or 'not installed'}" for name in wrong)
        return f"expected {expected}, found {told}; install there what is installed here"


def versions() -> dict[str, str]:
    """Return the versions of the packages that results depend on; "" where one is missing."""
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


class Place(NamedTuple):
    """Where a worker is.

    Attributes:
      node: address of its node.
      pid: its process.
      lacking: what the node lacks, in one line; "" if nothing.
    """

    node: str
    pid: int
    lacking: str


class Answer(NamedTuple):
    """What a call came to.

    Attributes:
      payload: the pickled result, or the pickled `RemoteError`.
      is_error: whether it is an error.
      seconds: time that the worker spent on it.
    """

    payload: bytes = b""
    is_error: bool = False
    seconds: float = 0.0


class Worker:
    """Makes a runner, then loads data and runs jobs; the pool makes one call at a time."""

    def __init__(self) -> None:
        self._runner: RestartingRunner[Any, Any] | None = None

    def look(self, needs: Needs) -> Place:
        """Say where this worker is, and what is missing there; take over the search path."""
        sys.path += [place for place in needs.path if place not in sys.path]
        with contextlib.suppress(OSError):
            pathlib.Path(needs.directory).mkdir(parents=True, exist_ok=True)
            os.chdir(needs.directory)
        return Place(ray.util.get_node_ip_address(), os.getpid(), needs.lacking())

    def start(self, make_runner_pickled: bytes) -> Answer:
        """Make the runner."""

        def make() -> None:
            # Unpickled anew for each runner, so that a failed runner leaves nothing to the next.
            self._runner = RestartingRunner(lambda: unpickled(make_runner_pickled)(), unpickled)
            # All objects made so far will stay, so the garbage collector need not look at them.
            gc.collect()
            gc.freeze()

        return _answer(make)

    def load(self, data_pickled: bytes, version: int, sha256: str) -> Answer:
        """Load data of a broadcast."""

        def load() -> None:
            found = hashlib.sha256(data_pickled).hexdigest()
            if found != sha256:
                raise RuntimeError(f"expected data with sha256 {sha256}, found {found}")
            self._ready_runner.load(data_pickled, version)

        return _answer(load)

    def run(self, job_pickled: bytes, version: int) -> Answer:
        """Run a job that needs the data of `version`."""
        return _answer(lambda: self._ready_runner.run(unpickled(job_pickled), version))

    def close(self) -> None:
        """Close the runner."""
        if self._runner is not None:
            self._runner.close()

    @property
    def _ready_runner(self) -> RestartingRunner[Any, Any]:
        assert self._runner is not None, "a pool calls start first"
        return self._runner


def _answer(function: Callable[[], Any]) -> Answer:
    began_s = time.perf_counter()
    try:
        result = function()
        seconds = time.perf_counter() - began_s
        return Answer(pickled(result), seconds=seconds)
    except Exception as error:
        return Answer(pickled(RemoteError.of(error)), is_error=True)
