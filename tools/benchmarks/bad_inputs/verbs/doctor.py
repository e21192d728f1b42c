"""Bad inputs of `tfrl doctor`; what is wrong is in its report."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator

from tools.benchmarks.bad_inputs import damage
from tools.benchmarks.bad_inputs.case import EITHER, PERHAPS, Case, MakeFn, all_of, usage
from tools.benchmarks.bad_inputs.verbs import cache, programs


def cases(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl doctor`."""
    return [
        *_looked_at(seed),
        *_on_path(),
        *(
            Case(
                f"surroundings: {what}", ("doctor", "--json"), _bin, PERHAPS, reports=True,
                environment={"PATH": "bin", **environment},
            )
            for what, environment in _SURROUNDINGS.items()
        ),
        *usage(
            "doctor", ("a name", "clang"), ("no such option", "--nonsense"),
            ("a cache without a name", "--cache"),
        ),
    ]  # fmt: skip


_SURROUNDINGS = {
    **cache.SURROUNDINGS,
    "a PATH of nothing": {"PATH": ""},
    "a PATH that is missing": {"PATH": "/no/such/directory"},
    "a TMPDIR that is missing": {"TMPDIR": "nowhere"},
    "a TMPDIR that cannot be written": {"TMPDIR": "/proc"},
    "a TMPDIR of a long name": {"TMPDIR": "/tmp/" + "n" * 200},
}


_BEGUN = tuple(
    f"{name}{rest}"
    for name in ("given", "file", "nowhere", "two\nlines", os.fsdecode(b"name-\xff\xfe"))
    for rest in ("", "-journal", ".damaged")
)


def _looked_at(seed: int) -> Iterator[Case]:
    def words(path: str) -> tuple[str, ...]:
        return ("doctor", "--json", f"--cache={path}")

    for one in damage.files("--cache", words, cache.database(), seed):
        # A cache is begun where none is, and anew where one is damaged.
        is_usage = one.status == EITHER
        yield Case(
            one.what, one.words, all_of(_bin, one.make_fn), (0, *one.status), _BEGUN,
            environment={"PATH": "bin"}, reports=not is_usage,
        )  # fmt: skip


def _on_path() -> Iterator[Case]:
    """Yield machines whose clangs are none."""
    for name in ("clang", "clang-17", "clang-19", "clang-22"):
        for what, (program, make_fn) in (programs.NOT_STARTING | programs.NO_CLANGS).items():
            if program.startswith("./"):
                yield Case(
                    f"{name}: {what}", ("doctor", "--json"),
                    all_of(_bin, make_fn, _moved_to(f"bin/{name}")), PERHAPS,
                    environment={"PATH": "bin"}, reports=True,
                )  # fmt: skip


def _moved_to(name: str) -> MakeFn:
    return lambda directory: (directory / programs.NAME).rename(directory / name)


def _bin(directory: pathlib.Path) -> None:
    """Make a directory of programs in which there is no clang."""
    (directory / "bin").mkdir()
    (directory / "file").write_bytes(b"")
