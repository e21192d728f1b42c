"""A case: a command with something wrong in it, and how it should end."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping

MakeFn = Callable[[pathlib.Path], object]
FAILURE, USAGE = (1,), (2,)
PERHAPS = (0, 1)
"""The damage may leave a right input: a few flipped bits do."""
EITHER = (1, 2)
"""Whether a text can be a file's name may be found when the options are read, or later."""


def nothing(_: pathlib.Path) -> None:
    """Make no files."""


def at(name: str, make_fn: MakeFn) -> MakeFn:
    """Return what makes something at a name below the directory that it gets."""
    return lambda directory: make_fn(directory / name)


def with_file(name: str, content: bytes) -> MakeFn:
    """Return what writes a file into the directory that it gets."""
    return lambda directory: (directory / name).write_bytes(content)


def all_of(*make_fns: MakeFn) -> MakeFn:
    """Return what makes several things, in this order."""

    def make(directory: pathlib.Path) -> None:
        for make_fn in make_fns:
            make_fn(directory)

    return make


@dataclasses.dataclass(frozen=True)
class Case:
    """One bad input.

    Attributes:
      what: what is wrong; no two cases of a verb say the same.
      words: the command line without `tfrl`; paths in it are relative to the case's directory.
      make_fn: makes the case's files in its directory, which is empty before.
      status: the right exit statuses.
      leaves: names in the case's directory that may be new afterwards.
      environment: variables of the case; it runs in its directory.
      reports: whether what is wrong is told in the verb's own report, JSON on stdout.
    """

    what: str
    words: tuple[str, ...]
    make_fn: MakeFn = nothing
    status: tuple[int, ...] = FAILURE
    leaves: tuple[str, ...] = ()
    environment: Mapping[str, str] = dataclasses.field(default_factory=dict)
    reports: bool = False


def usage(command: str, *others: tuple[str, str]) -> list[Case]:
    """Make cases of wrong usage.

    Args:
      command: the verb with all that it needs.
      *others: what is wrong, and the words that make it so, which are appended.
    """
    return [Case(what, (*command.split(), *words.split()), status=USAGE) for what, words in others]


def numbers(command: str, option: str, minimum: int) -> list[Case]:
    """Make cases of an option that takes whole numbers from a minimum on."""
    wrong = {
        "no number": "many", "empty": "", "below the least": str(minimum - 1), "negative": "-7",
        "a fraction": "1.5", "NaN": "nan", "infinite": "inf", "hexadecimal": "0x10",
        "of 5000 digits": "9" * 5000,
    }  # fmt: skip
    return [
        Case(f"{option}: {what}", (*command.split(), f"{option}={text}"), status=USAGE)
        for what, text in wrong.items()
    ]
