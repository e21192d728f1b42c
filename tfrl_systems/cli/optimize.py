"""`tfrl optimize`: a faster model that computes the same."""

from __future__ import annotations

import argparse
import math
import pathlib
from collections.abc import Callable
from typing import Any

from tfrl_systems.cli import options as shared

_DESCRIPTION = """\
Rewrites an ONNX model by verified rules so that it runs faster and computes the same.

  tfrl optimize model.onnx -o fast.onnx
  tfrl optimize model.onnx -o fast.onnx --inputs examples.npz --report report.html
  tfrl optimize model.onnx -o fast.onnx --method policy --policy runs/graphs/policy
  tfrl optimize model.onnx -o fast.onnx --dimension batch=8 --objective onnxruntime-cuda

A search looks for graphs that cost less, operator by operator, as measured on this machine. Its
best candidates are run beside MODEL, on random inputs and on yours, and dropped if an output
differs by more than a relative 1e-4 (float32). The others are measured end to end against MODEL in
turns, next to a second copy of MODEL, which tells how far equal models differ. One is written only
if it is faster than that, and not slower than MODEL at whichever level of onnxruntime's
optimisation suits MODEL best. Otherwise OUT is a copy of MODEL, and "no gain available" says why.

Ctrl-C ends the search and goes on with the best so far; pressed again, it ends the program.
"""


def add_parser(subparsers: Any) -> None:
    """Adds `optimize` to the verbs."""
    parser = shared.add_verb(
        subparsers, "optimize", "a faster model that computes the same", _DESCRIPTION
    )
    parser.add_argument("model", type=pathlib.Path, metavar="MODEL.onnx", help="the model")
    parser.add_argument(
        *("-o", "--output"),
        type=pathlib.Path,
        required=True,
        metavar="OUT.onnx",
        help="where the faster model goes",
    )
    parser.add_argument(
        "--method",
        default="regions",
        choices=("regions", "greedy", "taso", "beam", "policy"),
        help="how to search; see tfrl evaluate tensor_graphs (default: regions)",
    )
    parser.add_argument(
        "--policy",
        type=pathlib.Path,
        metavar="DIR",
        help="what tfrl train tensor_graphs learned, for --method policy",
    )
    add_rollouts(parser)
    add_budget(parser, seconds=60.0)
    add_problem(parser)
    _add_measuring(parser)
    parser.add_argument(
        "--bound",
        action="store_true",
        help="also tell how far from optimal the estimate is (for graphs of up to 30 operators)",
    )
    parser.add_argument(
        "--checkpoint",
        type=pathlib.Path,
        metavar="FILE",
        help="keep the search in this file; if it is there, go on from it",
    )
    parser.add_argument(
        "--report",
        type=pathlib.Path,
        metavar="FILE.html",
        help="write a page with the graph before and after, and what each rule saves",
    )
    shared.add_json(parser)
    parser.set_defaults(run=run)


def _add_measuring(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--measure",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure candidates end to end; without it the estimate decides (default: --measure)",
    )
    parser.add_argument(
        "--measure-seconds",
        type=positive_number,
        default=10.0,
        metavar="N",
        help="for each of the last measurements; longer ones tell smaller gains (default: 10)",
    )
    parser.add_argument(
        "--inputs",
        type=pathlib.Path,
        metavar="FILE.npz",
        help="an array for each of the model's inputs, by name: to compare and to measure with",
    )


def add_budget(parser: argparse.ArgumentParser, seconds: float) -> None:
    """--seconds and --expansions."""
    parser.add_argument(
        "--seconds",
        type=positive_number,
        default=seconds,
        metavar="N",
        help=f"for a search (default: {seconds:.0f})",
    )
    parser.add_argument(
        "--expansions",
        type=shared.whole_number(0),
        metavar="N",
        help="rules that a search may apply at most; its result then is the same on every run",
    )


def add_rollouts(parser: argparse.ArgumentParser) -> None:
    """--rollouts."""
    parser.add_argument(
        "--rollouts",
        type=shared.whole_number(1),
        default=64,
        metavar="K",
        help="episodes that a learned policy plays: one with its likeliest actions, the others "
        "drawn, most of them from the cheapest graph so far or from the way to it, and given up "
        "where they go nowhere; in place of every eighth it looks around (default: 64)",
    )


def add_problem(parser: argparse.ArgumentParser, objective: str = "onnxruntime") -> None:
    """--rules, --objective and --dimension."""
    parser.add_argument(
        "--rules",
        type=pathlib.Path,
        metavar="FILE",
        help="rules to use (default: those that come with the program; see tfrl rules)",
    )
    parser.add_argument(
        "--objective",
        default=objective,
        metavar="NAME",
        help="what is to become less: onnxruntime, onnxruntime-{disable,basic,extended}, "
        f"onnxruntime-cuda, openvino (measured here), or analytic (default: {objective})",
    )
    parser.add_argument(
        "--dimension",
        action="append",
        default=[],
        dest="dimensions",
        type=_dimension,
        metavar="NAME=SIZE",
        help="a size that the model leaves open, to measure with (default: 1); may be repeated",
    )


def positive_number(text: str) -> float:
    """A parser of numbers above 0."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not (value > 0 and math.isfinite(value)):
        raise argparse.ArgumentTypeError(f"expected a number above 0, found {text!r}")
    return value


def _dimension(text: str) -> tuple[str, int]:
    name, _, size = text.partition("=")
    parse: Callable[[str], int] = shared.whole_number(1)
    if not name:
        raise argparse.ArgumentTypeError(f"expected NAME=SIZE, found {text!r}")
    return name, parse(size)


def run(options: argparse.Namespace) -> int:
    """Optimises."""
    from tfrl_systems.cli.tensor_graphs import optimize

    return optimize.run(options)
