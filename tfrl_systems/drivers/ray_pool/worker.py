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
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import ray

from environments.errors import UserError
from tfrl_systems.drivers.pipes.messages import RemoteError, pickled, unpickled
from tfrl_systems.drivers.pool_parts import RestartingRunner
from tfrl_systems.drivers.ray_pool.shipping import Copies, DigestedFiles, default_directory
from tfrl_systems.drivers.requirements import Requirements, note_copies

# Other versions of these can change results.
_PACKAGES = (
    "tfrl-systems",
    "cloudpickle",
    "llvmlite",
    "numpy",
    "onnx",
    "onnxruntime",
    "scipy",
    "tf-agents",
)

# Larger results are compressed before they travel to another node: padded graphs to a 25th.
_LARGE_BYTES = 1 << 20


@dataclasses.dataclass(frozen=True)
class Needs:
    """What a worker needs, as the caller's process has it.

    Attributes:
      versions: version by name of the package; "" for one that is not installed.
      directory: working directory, which relative paths start from.
      path: directories to import from.
      node_id: Ray's name of the caller's node.
      files: files that the runner reads.
      programs_pickled: by name of a program, the function that returns its identity, and what it
        returns in the caller's process; pickled, because unpickling it needs `path`.
    """

    versions: Mapping[str, str]
    directory: str
    path: tuple[str, ...]
    node_id: str
    files: tuple[DigestedFiles, ...]
    programs_pickled: bytes

    @classmethod
    def of_this_process(cls, path: list[str], requirements: Requirements, is_local: bool) -> Needs:
        """Return what this process has.

        Args:
          path: its absolute sys.path.
          requirements: what runners need.
          is_local: whether all workers are on this machine, where files and programs are the same.

        Raises:
          UserError: this process lacks a file or a program.
        """
        files, programs = requirements.files, requirements.programs
        return cls(
            versions(),
            str(pathlib.Path.cwd()),
            tuple(path),
            ray.get_runtime_context().get_node_id(),
            () if is_local else tuple(map(DigestedFiles.of, files)),
            pickled({} if is_local else {name: (of, of()) for name, of in programs.items()}),
        )

    def lacking(self) -> str:
        """Return what this process lacks, in one line; "" if nothing."""
        found = versions()
        wrong = [name for name, version in self.versions.items() if found[name] != version]
        if not wrong:
            return self._lacking_programs()
        expected = ", ".join(f"{name} {self.versions[name] or 'not installed'}" for name in wrong)
        told = ", ".join(f"{name} {found[name] or 'not installed'}" for name in wrong)
        return f"expected {expected}, found {told}; install there what is installed here"

    def _lacking_programs(self) -> str:
        for name, (identity_fn, expected) in unpickled(self.programs_pickled).items():
            try:
                found = identity_fn()
            except UserError as error:
                return f"expected {name} ({expected}), found none ({error})"
            if found != expected:
                return f"expected {name} ({expected}), found {found}; install there what is here"
        return ""


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
      node_id: Ray's name of the node.
      pid: its process.
      lacking: what the node lacks, in one line; "" if nothing.
    """

    node: str
    node_id: str
    pid: int
    lacking: str


class Answer(NamedTuple):
    """What a call came to.

    Attributes:
      payload: the pickled result, or the pickled `RemoteError`.
      is_error: whether it is an error.
      seconds: time that the worker spent on it.
      is_compressed: whether the payload is, by zlib.
    """

    payload: bytes = b""
    is_error: bool = False
    seconds: float = 0.0
    is_compressed: bool = False

    @property
    def value(self) -> Any:
        """The result, or the `RemoteError`."""
        return unpickled(zlib.decompress(self.payload) if self.is_compressed else self.payload)

    def compressed(self) -> Answer:
        """Return the same answer in fewer bytes, if there are many."""
        if len(self.payload) < _LARGE_BYTES:
            return self
        return self._replace(payload=zlib.compress(self.payload, 1), is_compressed=True)


class Worker:
    """Makes a runner, then loads data and runs jobs; the pool makes one call at a time."""

    def __init__(self) -> None:
        self._runner: RestartingRunner[Any, Any] | None = None
        self._files: tuple[DigestedFiles, ...] = ()
        self._copies = Copies(default_directory())
        self._is_far = False

    def look(self, needs: Needs) -> Place:
        """Say where this worker is, and what is missing there; take over the search path."""
        sys.path += [place for place in needs.path if place not in sys.path]
        with contextlib.suppress(OSError):
            pathlib.Path(needs.directory).mkdir(parents=True, exist_ok=True)
            os.chdir(needs.directory)
        self._files = needs.files
        node_id = ray.get_runtime_context().get_node_id()
        self._is_far = node_id != needs.node_id
        return Place(ray.util.get_node_ip_address(), node_id, os.getpid(), needs.lacking())

    def start(self, make_runner_pickled: bytes) -> Answer:
        """Make the runner. If files are missing, answer the number of the first ones instead."""

        def make() -> int | None:
            for number, wanted in enumerate(self._files):
                directory = self._copies.find(wanted)
                if directory is None:
                    return number
                note_copies(wanted.files, directory)
            # Unpickled anew for each runner, so that a failed runner leaves nothing to the next.
            self._runner = RestartingRunner(lambda: unpickled(make_runner_pickled)(), unpickled)
            # All objects made so far will stay, so the garbage collector need not look at them.
            gc.collect()
            gc.freeze()
            return None

        return _answer(make)

    def fetch(self, number: int, part_refs: list[Any]) -> Answer:
        """Copy missing files to this node; the references are to their parts."""
        parts = (ray.get(one) for one in part_refs)
        return _answer(lambda: self._copies.add(self._files[number], parts))

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
        answer = _answer(lambda: self._ready_runner.run(unpickled(job_pickled), version))
        return answer.compressed() if self._is_far else answer

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
