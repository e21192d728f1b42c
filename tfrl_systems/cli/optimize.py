"""The verb `tfrl optimize`, which writes a faster model that computes the same."""

from __future__ import annotations

import argparse
from typing import Any

from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show_result
from tfrl_systems.experiments.arguments import add_fields, path_of_file, read_fields
from tfrl_systems.experiments.records import implementation_of
from tfrl_systems.reporting import Terminal
from tfrl_systems.settings import make


def add_parser(subparsers: Any) -> None:
    """Add `optimize` to the verbs."""
    parser = shared.add_verb_of_few(subparsers, "optimize", "a faster model that computes the same")
    parser.fill_fn = _fill
    parser.set_defaults(run=run)


def _fill(parser: shared.LazyParser) -> None:
    parser.add_argument("model", type=path_of_file, metavar="MODEL.onnx", help="the model")
    parser.add_argument(
        *("-o", "--output"),
        type=path_of_file,
        metavar="OUT.onnx",
        help="where the faster model goes (default: MODEL.optimized.onnx, beside the model)",
    )
    add_fields(parser, implementation_of("optimize").Optimization, ("model", "output"))
    shared.add_json(parser)


def run(options: argparse.Namespace) -> int:
    """Optimise a model as the command line says."""
    optimization = implementation_of("optimize")
    request = make(optimization.Optimization, read_fields(options, optimization.Optimization))
    with Terminal() as terminal:
        outcome = optimization.optimize(request, terminal)
    show_result(options, outcome.to_json(), outcome.to_text())
    return 0
