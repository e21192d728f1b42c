"""What is dear to make, made once for all workers of pytest and lent to the tests that read it."""

from __future__ import annotations

import pathlib
from collections.abc import Callable

import filelock

TIMEOUT_S = 600


class Lender:
    """Makes directories once, whichever worker asks first; the others wait for it.

    Who borrows a directory only reads it: a test that changes something works on a copy.
    `changed` names what was changed all the same.

    Args:
      shelf: where the directories stand; one for all workers.
    """

    def __init__(self, shelf: pathlib.Path) -> None:
        self._shelf = shelf
        self._borrowed: dict[pathlib.Path, dict[pathlib.Path, tuple[int, int]]] = {}

    def __call__(self, name: str, make: Callable[[pathlib.Path], object]) -> pathlib.Path:
        """Return the directory of a name.

        Args:
          name: tells it from others; the same in all workers.
          make: fills a new directory, whose parent is there.
        """
        directory = self._shelf / name
        is_made = self._shelf / f"{name}.made"
        with filelock.FileLock(self._shelf / f"{name}.lock", timeout=TIMEOUT_S):
            if not is_made.exists():
                make(directory)
                is_made.touch()
        self._borrowed.setdefault(directory, _stamps(directory))
        return directory

    def changed(self) -> list[pathlib.Path]:
        """Return files of borrowed directories that were added, written or removed since."""
        return sorted(
            path
            for directory, before in self._borrowed.items()
            for path, _ in before.items() ^ _stamps(directory).items()
        )


def _stamps(directory: pathlib.Path) -> dict[pathlib.Path, tuple[int, int]]:
    """Sizes and times of the files below a directory."""
    stats = {path: path.stat() for path in directory.rglob("*") if path.is_file()}
    return {path: (stat.st_size, stat.st_mtime_ns) for path, stat in stats.items()}
