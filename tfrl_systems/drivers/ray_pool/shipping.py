"""Files on the nodes of a cluster: found where the caller has them, or copied there.

A node needs one copy, whatever its number of workers. Copies lie in a private directory, each in a
directory of its own whose name is the digest of all its files. A process that uses a copy holds a
shared lock on it, which the kernel releases however the process ends. A copy that nobody uses stays
until the node needs other copies.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator

from environments.errors import UserError
from tfrl_systems.drivers.pipes.messages import pickled, unpickled
from tfrl_systems.drivers.requirements import Files

# Files travel in parts, because a large corpus does not fit into memory at once.
_PART_BYTES = 16 << 20


@dataclasses.dataclass(frozen=True)
class DigestedFiles:
    """Required files with their contents' digests.

    Attributes:
      files: the files, as the caller named them.
      sha256s: sha256 of each, in the order of their names.
    """

    files: Files
    sha256s: tuple[str, ...]

    @classmethod
    def of(cls, files: Files) -> DigestedFiles:
        """Read files.

        Raises:
          UserError: a file cannot be read.
        """
        try:
            return cls(files, tuple(_sha256(files.directory / name) for name in files.names))
        except OSError as error:
            raise UserError(
                f"{error.filename}: expected a file to read, found: {error.strerror}; bring it back"
            ) from error

    @functools.cached_property
    def sha256(self) -> str:
        """Digest of all names and contents."""
        pairs = zip(self.files.names, self.sha256s, strict=True)
        lines = [f"{name}\0{sha256}" for name, sha256 in pairs]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    def are_in(self, directory: pathlib.Path) -> bool:
        """Return whether a directory holds the same files."""
        pairs = zip(self.files.names, self.sha256s, strict=True)
        try:
            return all(_sha256(directory / name) == sha256 for name, sha256 in pairs)
        except OSError:
            return False

    def parts(self) -> Iterator[bytes]:
        """Yield the files in parts, to be given to `Copies.add`."""
        part: list[tuple[str, bytes]] = []
        for name in self.files.names:
            part.append((name, (self.files.directory / name).read_bytes()))
            if sum(len(content) for _, content in part) >= _PART_BYTES:
                yield pickled(part)
                part = []
        yield pickled(part)


def default_directory() -> pathlib.Path:
    """Return the directory for this user's copies, among this machine's temporary files."""
    return pathlib.Path(tempfile.gettempdir()) / f"tfrl-copies-{os.getuid()}"


class Copies:
    """The copies on this machine. A copy that was found stays for as long as this process lives.

    Args:
      directory: where the copies lie; made when it is first needed.

    Attributes:
      held: file descriptors of the copies that this process uses, each with a shared lock.
    """

    def __init__(self, directory: pathlib.Path) -> None:
        self._directory = directory
        self.held: list[int] = []

    def find(self, wanted: DigestedFiles) -> pathlib.Path | None:
        """Return the directory that holds the files: the caller's, or a copy; None if neither."""
        if wanted.are_in(wanted.files.directory):
            return wanted.files.directory
        copy = self._directory / wanted.sha256
        try:
            held = os.open(copy, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None
        fcntl.flock(held, fcntl.LOCK_SH)
        # It may have been deleted, and made anew, before it was locked.
        is_there = copy.is_dir() and os.path.samestat(os.fstat(held), copy.stat())
        if is_there and wanted.are_in(copy):
            self.held.append(held)
            return copy
        os.close(held)
        return None

    def add(self, wanted: DigestedFiles, parts: Iterable[bytes]) -> None:
        """Make a copy of what `DigestedFiles.parts` gave, unless another worker has made it.

        Raises:
          UserError: the directory is not private, or has no room, or the contents are others.
        """
        try:
            with self._lock():
                if self.find(wanted) is None:
                    self._delete_unused()
                    self._write(wanted, parts)
        except OSError as error:
            raise UserError(
                f"{self._directory}: expected room for copies of {wanted.files.directory}, found: "
                f"{error.strerror}; make room there"
            ) from error

    def _write(self, wanted: DigestedFiles, parts: Iterable[bytes]) -> None:
        unfinished = self._directory / f"{wanted.sha256}.part"
        try:
            for part in parts:
                for name, content in unpickled(part):
                    path = unfinished / name
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
            if not wanted.are_in(unfinished):
                raise UserError(
                    f"{wanted.files.directory}: expected the files as they were when the run began "
                    f"(digest {wanted.sha256[:12]}), found others; run again, and leave them alone"
                )
            unfinished.rename(self._directory / wanted.sha256)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)

    @contextlib.contextmanager
    def _lock(self) -> Iterator[None]:
        """Let one process at a time change the directory."""
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            status = os.fstat(held)
            if status.st_uid != os.getuid() or status.st_mode & 0o077:
                raise UserError(
                    f"{self._directory}: expected a directory that only this user can enter, found "
                    f"mode {status.st_mode & 0o777:o} of user {status.st_uid}; delete it"
                )
            fcntl.flock(held, fcntl.LOCK_EX)
            yield
        finally:
            os.close(held)

    def _delete_unused(self) -> None:
        """Delete what no process uses: copies, also damaged and unfinished ones."""
        for copy in self._directory.iterdir():
            held = os.open(copy, os.O_RDONLY | os.O_DIRECTORY)
            try:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(copy)
            finally:
                os.close(held)


def _sha256(path: pathlib.Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
