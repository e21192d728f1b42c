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


def add_training(parser: argparse.ArgumentParser, iterations_help: str) -> None:
    """--workdir, --iterations, --seed, --resume and --set."""
    parser.add_argument(
        "--workdir",
        type=pathlib.Path,
        required=True,
        metavar="DIR",
        help="where the run is kept",
    )
    parser.add_argument(
        "--iterations",
        type=whole_number(1),
        metavar="N",
        help=f"{iterations_help}; the same as --set iterations=N",
    )
    parser.add_argument("--seed", type=whole_number(0), default=0, metavar="S", help="default: 0")
    parser.add_argument("--resume", action="store_true", help="go on with the run in --workdir")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="assignments",
        metavar="FIELD=VALUE",
        help="change a field; see below; may be repeated",
    )


def add_where_to_collect(parser: argparse.ArgumentParser) -> None:
    """--collect and --workers."""
    parser.add_argument(
        "--collect",
        choices=("inprocess", "pipes"),
        help="collect in this process, or in --workers others (default: inprocess, and pipes where "
        "--workers is given)",
    )
    parser.add_argument(
        "--workers",
        type=whole_number(1),
        metavar="N",
        help="processes that collect, with --collect pipes (default: one for each processor)",
    )


def num_collecting(options: argparse.Namespace) -> int:
    """Processes that --collect and --workers ask for; 0 to collect in this one."""
    collect = options.collect or ("pipes" if options.workers else "inprocess")
    return (options.workers or default_workers()) if collect == "pipes" else 0


def add_function(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """--function, --dimensions, --free and --bounds."""
    parser.add_argument(
        "--function",
        required=required,
        metavar="NAME|MODULE:CALLABLE",
        help="what to minimise: ackley, rosenbrock, sphere, one of these with shifted_ or rotated_ "
        "before it, or your own, called with points [N, n] and returning values [N]",
    )
    parser.add_argument(
        "--dimensions",
        type=whole_number(1),
        default=2,
        metavar="N",
        help="coordinates of the function (default: 2)",
    )
    parser.add_argument(
        "--free",
        type=whole_number(0),
        default=1,
        metavar="K",
        help="how many of them, the last ones, are given and not chosen (default: 1)",
    )
    parser.add_argument(
        "--bounds",
        type=_bounds,
        metavar="LOW,HIGH",
        help="domain of your own function in every coordinate (default: its attribute bounds, "
        "or -1,1)",
    )


def _bounds(text: str) -> tuple[float, float]:
    try:
        low, high = map(float, text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"expected two numbers, as in -5,5, found {text!r}"
        ) from None
    return low, high


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
