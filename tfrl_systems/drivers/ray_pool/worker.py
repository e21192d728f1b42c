"""A worker of a Ray cluster: an actor that holds one runner.

Ray carries only bytes between a pool and its workers: what `messages.pickled` makes. Each side
unpickles only what the other one wrote.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pathlib
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

import ray

from environments.errors import UserError
from environments.machine import package_versions
from tfrl_systems.drivers.pipes.messages import pickled, unpickled
from tfrl_systems.drivers.ray_pool.shipping import Copies, DigestedFiles, default_directory
from tfrl_systems.drivers.requirements import Requirements, note_copies
from tfrl_systems.drivers.worker import Answer, Worker, answer_of

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
        """Return what this process has; `path` is its absolute sys.path.

        If `is_local`, all workers are on this machine, where files and programs are the same.

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
        installed = versions()
        wrong = [name for name, version in self.versions.items() if installed[name] != version]
        if not wrong:
            return self._lacking_programs()
        expected = ", ".join(f"{name} {self.versions[name] or 'not installed'}" for name in wrong)
        actual = ", ".join(f"{name} {installed[name] or 'not installed'}" for name in wrong)
        return f"expected {expected}, found {actual}; install there what is installed here"

    def _lacking_programs(self) -> str:
        for name, (identity_fn, expected) in unpickled(self.programs_pickled).items():
            try:
                identity = identity_fn()
            except UserError as error:
                return f"expected {name} ({expected}), found none ({error})"
            if identity != expected:
                return f"expected {name} ({expected}), found {identity}; install there what is here"
        return ""


def versions() -> dict[str, str]:
    """Return the versions of the packages that results depend on; "" where one is missing."""
    return package_versions(_PACKAGES)


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


class NodeWorker(Worker):
    """A worker that says where it is, and has missing files copied to its node."""

    def __init__(self) -> None:
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

    def start(self, make_runner_pickled: bytes | bytearray) -> Answer:
        """Make the runner. If files are missing, answer the number of the first ones instead."""
        for number, wanted in enumerate(self._files):
            directory = self._copies.find(wanted)
            if directory is None:
                return Answer(pickled(number))
            note_copies(wanted.files, directory)
        return super().start(make_runner_pickled)

    def fetch(self, part_refs: list[Any], number: int) -> Answer:
        """Copy missing files to this node; the references are to their parts."""
        parts = (ray.get(part_ref) for part_ref in part_refs)
        return answer_of(lambda: self._copies.add(self._files[number], parts))

    def run(self, job_pickled: bytes, version: int) -> Answer:
        """Run a job that needs the data of `version`."""
        answer = super().run(job_pickled, version)
        return answer.compressed() if self._is_far else answer
