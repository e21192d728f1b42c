"""Files that a build has written, out of the way while it writes them again."""

from __future__ import annotations

import contextlib
import os
import pathlib
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence

from environments.errors import UserError


@contextlib.contextmanager
def set_aside(paths: Sequence[str | os.PathLike[str]]) -> Iterator[Callable[[], None]]:
    """Move files away; at the end put them back, whatever has come in their place.

    Args:
      paths: regular files, what others are made from first: make compares times, so those that come
        back are new, in this order.

    Yields:
      A function that gives the files up instead, because the build has written them again.

    Raises:
      UserError: they cannot be moved.
    """
    if not paths:
        yield lambda: None
        return
    absolute = [pathlib.Path(path).absolute() for path in paths]
    directory = _directory_beside(absolute)
    moved: dict[pathlib.Path, pathlib.Path] = {}
    try:
        try:
            for number, path in enumerate(absolute):
                # Entered first: an interrupt may come right after the move.
                moved[path] = directory / str(number)
                shutil.move(path, moved[path])
        except OSError as error:
            raise UserError(
                f"{path}: expected to move it aside, to build it again, found: {error.strerror}; "
                "build in a directory of your own"
            ) from error
        yield moved.clear
    finally:
        _put_back(moved)
        shutil.rmtree(directory, ignore_errors=True)


def _put_back(moved: Mapping[pathlib.Path, pathlib.Path]) -> None:
    for path, place in moved.items():
        try:
            if place.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                shutil.move(place, path)
                os.utime(path)
        except OSError as error:
            raise UserError(
                f"{path}: expected to put it back from {place}, found: {error.strerror}; move it "
                "yourself, or clean the tree"
            ) from error


def _directory_beside(paths: Sequence[pathlib.Path]) -> pathlib.Path:
    """Make a directory on the same file system, if possible: moving is then fast."""
    shared = os.path.commonpath([path.parent for path in paths])
    for place in (shared, None):
        with contextlib.suppress(OSError):
            return pathlib.Path(tempfile.mkdtemp(prefix=".tfrl-", dir=place))
    raise UserError(f"{shared}: expected to make a directory there, found none that can be written")
