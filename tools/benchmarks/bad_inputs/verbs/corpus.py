"""Bad inputs of `tfrl corpus`."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tools.benchmarks.bad_inputs import damage, texts
from tools.benchmarks.bad_inputs.case import FAILURE, Case, MakeFn, nothing, usage

_DESCRIPTION: dict[str, Any] = {
    "modules": ["p/a.c", "p/b.c"],
    "has_thinlto": False,
    "global_command_override": ["<UNSPECIFIED>"],
    "tfrl": {"modules": {"p/a.c": {"language": "c"}}},
}
_FINE_VALUES = (
    "has_thinlto is missing",
    "modules.0 is missing",
    "global_command_override is missing",
    "global_command_override is an empty list",
)
_NAMES = {
    "leads out": "../a",
    "leads out in its middle": "p/../../a",
    "is absolute": "/etc/passwd",
    "is empty": "",
    "is a dot": ".",
    "has an empty part": "p//a.c",
    "has a line break": "p/a\nb.c",
    "has a zero byte": "p/a\0b.c",
    "has an escape": "p/\x1b[2Ja.c",
    "has a backslash": "..\\a.c",
    "is too long": "p/" + "a" * 5000,
    "has half a character": "p/\ud800.c",
    "is that of a missing file": "p/missing.c",
}


def corpus_of(description: bytes, directory: pathlib.Path, bitcode: bytes = b"BC\xc0\xde") -> None:
    """Write a corpus of two modules."""
    (directory / "p").mkdir(parents=True)
    for name in ("a.c", "b.c"):
        (directory / "p" / f"{name}.bc").write_bytes(bitcode)
    (directory / "corpus_description.json").write_bytes(description)


Damaged = tuple[str, bytes, MakeFn]
"""What is wrong, the content of the description, and what else is done to the corpus."""


def corpora(
    argument: str,
    words_fn: Callable[[str], Sequence[str]],
    seed: int,
    *,
    leaves: tuple[str, ...] = (),
) -> list[Case]:
    """Make the cases of an argument that is a corpus.

    Args:
      argument: its name.
      words_fn: (directory) -> the command line.
      seed: of the damage.
      leaves: see `Case`.
    """

    def case(what: str, description: bytes, damage_fn: MakeFn) -> Case:
        def make(directory: pathlib.Path) -> None:
            corpus_of(description, directory / "corpus")
            damage_fn(directory / "corpus")

        return Case(f"{argument}: {what}", tuple(words_fn("corpus")), make, FAILURE, leaves)

    places = damage.files(argument, words_fn, b"{}", seed, without=("an empty name",))
    damaged = (*_descriptions(), *_files(seed))
    return [*places, *(case(*one) for one in damaged)]


def _descriptions() -> Iterator[Damaged]:
    """Yield descriptions that are JSON, or nearly, and describe no corpus."""
    fields = [("modules",), ("modules", 0), ("has_thinlto",), ("global_command_override",)]
    for what, content in texts.NO_JSON.items():
        yield what, content, nothing
    for what, bad in texts.with_wrong_values(_DESCRIPTION, fields):
        if what not in _FINE_VALUES:
            yield what, texts.encoded(bad), nothing
    for what, name in _NAMES.items():
        named = {**_DESCRIPTION, "modules": [name]}
        yield f"a module's name {what}", texts.encoded(named), nothing
    no_indices = {**_DESCRIPTION, "has_thinlto": True}
    yield "ThinLTO without its indices", texts.encoded(no_indices), nothing


def _files(seed: int) -> Iterator[Damaged]:
    """Yield corpora whose description would be right, and whose files are not."""
    good = texts.encoded(_DESCRIPTION)
    for what, make_fn in damage.in_place("description", good, seed):
        yield what, good, _replaced(make_fn, "corpus_description.json")
    places: dict[str, MakeFn] = {
        "a directory": pathlib.Path.mkdir,
        "a pipe": os.mkfifo,
        "an endless device": lambda path: path.symlink_to("/dev/zero"),
    }
    for what, make_fn in places.items():
        yield f"a module is {what}", good, _replaced(make_fn)
        yield f"options are {what}", good, _replaced(make_fn, "p/a.c.cmd")
    yield "a module is a link to nothing", good, _replaced(lambda path: path.symlink_to("no"))
    yield "a module is a link to itself", good, _replaced(lambda path: path.symlink_to(path.name))
    not_text: MakeFn = lambda path: path.write_bytes(b"-cc1\0\xff")  # noqa: E731
    yield "options are not UTF-8", good, _replaced(not_text, "p/a.c.cmd")


def _replaced(make_fn: MakeFn, name: str = "p/a.c.bc") -> MakeFn:
    def replace(directory: pathlib.Path) -> None:
        (directory / name).unlink(missing_ok=True)
        make_fn(directory / name)

    return replace


def info(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl corpus info`."""
    return [
        *corpora("DIR", lambda path: ("corpus", "info", path), seed),
        *usage("corpus info", ("no corpus", ""), ("two corpora", "a b"), ("no option", "a --no")),
    ]
