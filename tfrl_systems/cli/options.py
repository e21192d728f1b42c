"""Options that several verbs share."""

from __future__ import annotations

import argparse
import os
import pathlib
from collections.abc import Callable
from typing import Any


def add_verb(subparsers: Any, name: str, summary: str, description: str) -> argparse.ArgumentParser:
    """A subcommand whose description and examples are shown as they are written."""
    return subparsers.add_parser(
        name,
        help=summary,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_compiler(parser: argparse.ArgumentParser) -> None:
    """--compiler."""
    parser.add_argument(
        "--compiler",
        default="embedded",
        metavar="embedded|CLANG",
        help="the LLVM that came with the installation, or a clang of version 17 or newer: "
        "a path or a name on PATH (default: embedded)",
    )


def add_collection(parser: argparse.ArgumentParser) -> None:
    """--workers and --cache."""
    parser.add_argument(
        "--workers",
        type=whole_number(1),
        default=default_workers(),
        metavar="N",
        help="compilers that run at the same time; the result does not depend on it "
        "(default: one for each processor)",
    )
    parser.add_argument(
        "--cache",
        type=pathlib.Path,
        default=default_cache(),
        metavar="FILE",
        help="where compiles are kept, so that none is made twice (default: %(default)s)",
    )


def add_json(parser: argparse.ArgumentParser) -> None:
    """--json."""
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object on stdout and nothing else"
    )


def whole_number(minimum: int) -> Callable[[str], int]:
    """A parser of integers from `minimum` on."""

    def parse(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = minimum - 1
        if value < minimum:
            raise argparse.ArgumentTypeError(
                f"expected a whole number from {minimum} on, found {text!r}"
            )
        return value

    return parse


def default_workers() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0))


def default_cache() -> pathlib.Path:
    """$XDG_CACHE_HOME/tfrl/compiles.db; ~/.cache where that is not set."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(base).expanduser() / "tfrl" / "compiles.db"
