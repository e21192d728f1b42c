"""The verb `tfrl optimize`, which writes a faster model that computes the same."""

from __future__ import annotations

import argparse
from typing import Any

from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show, show_json
from tfrl_systems.experiments.arguments import add_fields, path_of_file, read_fields
from tfrl_systems.reporting import Terminal
from tfrl_systems.settings import make

_DESCRIPTION = """\
Rewrites an ONNX model by verified rules so that it runs faster and computes the same.

  tfrl optimize model.onnx -o fast.onnx
  tfrl optimize model.onnx -o fast.onnx --inputs examples.npz --report report.html
  tfrl optimize model.onnx -o fast.onnx --policy runs/graphs/policy
  tfrl optimize model.onnx -o fast.onnx --dimension batch=8 --objective onnxruntime-cuda
  tfrl optimize model.onnx -o fast.onnx --dimension width=160,320 --dimension 'x[0]=1'
  tfrl optimize model.onnx -o fast.onnx --strict

A search looks for graphs that cost less, operator by operator, as measured on this machine. Its
best candidates are run beside MODEL, on random inputs and on yours, and dropped if an output
differs by more than a relative 1e-4 (float32), 2e-2 (float16) or one unit (8-bit integers). The
others are measured end to end against MODEL in turns, next to a second copy of MODEL, which tells
how far equal models differ. One is written only if it is faster than that, and not slower than
MODEL at whichever level of onnxruntime's optimisation suits MODEL best. Otherwise OUT is a copy of
MODEL, and "no gain available" says why.

A size that MODEL leaves open has the file's own name (batch, p2o.DynamicDimension.0), or
INPUT[AXIS]. The first size given for it leads the search; OUT is right and not slower at any of
those given. If none is given, a batch is 1, and for the others usual sizes are tried until MODEL
runs. What was chosen is printed with the options that change it; half and double of it are measured
too. --inputs FILE.npz gives sizes and values from real data.

--policy DIR lets a learned policy lead the search: it plays first, and the search goes on from the
cheapest graph that it finds. With --method policy it plays alone.

--seconds bounds everything before the candidates are compared and measured. Operators whose
measurement does not fit in are estimated by a formula.

Rules are right for numbers. Some may turn a NaN or an infinity into a number: x / y * y becomes x,
also where y is 0. Some may lose digits where large numbers cancel: (x - c) * a becomes
x * a - c * a. --strict leaves both kinds out. For integers, which wrap around, and truth values
rules are used only if they give exactly the same.

Ctrl-C ends the search and goes on with the best so far; pressed again, it ends the program.
"""
_PLACES = ("model", "output")


def add_parser(subparsers: Any) -> None:
    """Add `optimize` to the verbs."""
    parser = shared.add_verb(
        subparsers, "optimize", "a faster model that computes the same", _DESCRIPTION
    )
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

    asked = make(Optimization, read_fields(options, Optimization))
    with Terminal() as terminal:
        outcome = optimize(asked, terminal)
    if options.json:
        show_json(outcome.to_json())
    else:
        show(outcome.to_text())
    return 0
