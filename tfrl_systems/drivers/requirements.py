"""What runners need where they run, besides Python packages: files, and programs.

Workers on this machine find all of it where the caller does. A worker on another machine may have
to be sent a copy of a file, so what opens a file in a worker asks `here` where it is.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping


@dataclasses.dataclass(frozen=True)
class Files:
    """Files below one directory, named relative to it; a copy keeps their places below it."""

    directory: pathlib.Path
    names: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Requirements:
    """What runners need.

    Attributes:
      files: files that runners read. Nodes that lack them, or have other contents, get copies.
      programs: by name of a program, a function that returns its identity on the machine where it
        is called. It raises a `UserError` where there is no such program. Programs are not sent: a
        node that has another one gets no work.
    """

    files: tuple[Files, ...] = ()
    programs: Mapping[str, Callable[[], str]] = dataclasses.field(default_factory=dict)


_copies: dict[pathlib.Path, pathlib.Path] = {}


def here(path: str | pathlib.Path) -> pathlib.Path:
    """Return where a required file lies on this machine: its own path, or that of a copy."""
    return _copies.get(pathlib.Path(path), pathlib.Path(path))


def note_copies(files: Files, directory: pathlib.Path) -> None:
    """Have `here` find files in another directory, for the rest of this process."""
    _copies.update({files.directory / name: directory / name for name in files.names})
