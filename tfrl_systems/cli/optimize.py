"""The verb `tfrl optimize`, which writes a faster model that computes the same."""

from __future__ import annotations

import argparse
from typing import Any

from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show, show_json
from tfrl_systems.experiments.arguments import add_fields, path_of_file, read_fields
from tfrl_systems.reporting import Terminal
from tfrl_systems.settings import make

_PLACES = ("model", "output")


def add_parser(subparsers: Any) -> None:
    """Add `optimize` to the verbs."""
    parser = shared.add_verb_of_few(subparsers, "optimize", "a faster model that computes the same")
    parser.fill_fn = _fill
    parser.set_defaults(run=run)


def _fill(parser: shared.LazyParser) -> None:
    from tfrl_systems.systems.tensor_graphs.optimize.request import Optimization

    parser.add_argument("model", type=path_of_file, metavar="MODEL.onnx", help="the model")
    parser.add_argument(
        *("-o", "--output"),
        type=path_of_file,
        required=True,
        metavar="OUT.onnx",
        help="where the faster model goes",
    )
    add_fields(parser, Optimization, _PLACES)
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Optimise a model as the command line says."""
    from tfrl_systems.systems.tensor_graphs.optimize.optimization import optimize
    from tfrl_systems.systems.tensor_graphs.optimize.request import Optimization

    optimization = make(Optimization, read_fields(options, Optimization))
    with Terminal() as terminal:
        outcome = optimize(optimization, terminal)
    if options.json:
        show_json(outcome.to_json())
    else:
        show(outcome.to_text())
    return 0
