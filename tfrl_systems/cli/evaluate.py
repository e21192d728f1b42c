"""`tfrl evaluate`: how good policies are."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from tfrl_systems.cli import optimize
from tfrl_systems.cli import options as shared

_INLINING = """\
Compiles every module of a corpus under each policy and compares the objects with those of LLVM's
own -Oz decisions.

  tfrl evaluate inlining --policy runs/first/policy --policy default --corpus runs/corpus/heldout
  tfrl evaluate inlining --policy runs/first/policy --corpus runs/mine --never-worse --json

Sizes are the text column of llvm-size (code, read-only data, unwind tables); "exec" counts
executable sections only. A policy is a directory that `tfrl train` wrote, or one of default,
always, never, random, cost<N (inline where LLVM's cost estimate is below N; -Oz uses 5).
"""
_LEARN_TO_OPTIMIZE = """\
Compares what policies choose with the minimum of the function, for every free parameter in
{-1, -0.9, ..., 1}; where there are several, for all combinations, up to 1,000 drawn ones.

  tfrl evaluate learn_to_optimize --policy runs/ackley/policy --policy scipy --policy constant
  tfrl evaluate learn_to_optimize --policy random --policy scipy --function rosenbrock --json

mse   mean square of f(policy(c), c) - min over x of f(x, c)
msle  the same of sign(v) log(1 + |v|) of both values
A policy is a directory that `tfrl train` wrote, or one of
  random     a random x
  constant   the one x that is best for all c together
  scipy      a search for each c, from the centre
  cma        CMA-ES for each c (pip install 'tfrl-systems[cma]')
Function, dimensions and free parameters are those of the first directory, where none are given.
"""
_TENSOR_GRAPHS = """\
Compares how cheap policies make the graphs of models: the sum over operators of what each costs, as
measured on this machine (or what --objective says). Nothing is written; see tfrl optimize for that.

  tfrl evaluate tensor_graphs --policy regions --policy taso --model model.onnx --seconds 60
  tfrl evaluate tensor_graphs --policy greedy --policy regions --model bert-tiny --bound --json

A policy is one of
  regions    our search: region by region, what was learned of one is used in all that look alike
  greedy     the rule that saves most, until none saves anything
  taso       TASO's backtracking with a queue of graphs (alpha 1.05)
  beam       the cheapest few graphs of each depth
  random     random rules
  DIR        what tfrl train tensor_graphs learned: --rollouts episodes
An expansion is a rule applied whose result's cost was looked at. A model is a file, or one of
bert-base, bert-mini, bert-tiny, inception-v3, lora-transformer, nasrnn, repvgg-a0, resnet-18,
resnet-50, resnext-50, squeezenet-1.1 with random weights.
"""


def add_parser(subparsers: Any) -> None:
    """Adds `evaluate` to the verbs."""
    verb = shared.add_verb(subparsers, "evaluate", "how good policies are", "Evaluates policies.")
    environments = verb.add_subparsers(title="environments", metavar="ENV", required=True)
    _add_inlining(shared.add_verb(environments, "inlining", "which calls to inline", _INLINING))
    _add_learn_to_optimize(
        shared.add_verb(
            environments, "learn_to_optimize", "minima for any parameters", _LEARN_TO_OPTIMIZE
        )
    )
    _add_tensor_graphs(
        shared.add_verb(environments, "tensor_graphs", "faster models", _TENSOR_GRAPHS)
    )


def _add_inlining(parser: argparse.ArgumentParser) -> None:
    _add_policies(parser)
    parser.add_argument(
        "--corpus", type=pathlib.Path, required=True, metavar="DIR", help="modules to compile"
    )
    parser.add_argument(
        "--never-worse",
        action="store_true",
        help="also keep, for each module, the smaller of the policy's object and the default's, "
        "and measure what compiling twice costs; nothing is recalled from --cache for it",
    )
    shared.add_compiler(parser)
    shared.add_collection(parser)
    shared.add_json(parser)
    parser.set_defaults(run=run_inlining)


def _add_learn_to_optimize(parser: argparse.ArgumentParser) -> None:
    _add_policies(parser)
    shared.add_function(parser, required=False)
    shared.add_json(parser)
    parser.set_defaults(run=run_learn_to_optimize)


def _add_tensor_graphs(parser: argparse.ArgumentParser) -> None:
    _add_policies(parser)
    parser.add_argument(
        "--model",
        action="append",
        required=True,
        dest="models",
        metavar="FILE|NAME",
        help="an ONNX model, or a known one's name; may be repeated",
    )
    optimize.add_budget(parser, seconds=60.0)
    optimize.add_rollouts(parser)
    optimize.add_problem(parser)
    parser.add_argument(
        "--bound",
        action="store_true",
        help="also tell how cheap any graph can be (for up to 30 operators)",
    )
    shared.add_json(parser)
    parser.set_defaults(run=run_tensor_graphs)


def _add_policies(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy",
        action="append",
        required=True,
        dest="policies",
        metavar="DIR|NAME",
        help="a policy's directory or name; may be repeated",
    )
    parser.add_argument(
        "--seed",
        type=shared.whole_number(0),
        default=0,
        metavar="S",
        help="of the policy random (default: 0)",
    )


def run_inlining(options: argparse.Namespace) -> int:
    """Evaluates."""
    from tfrl_systems.cli.inlining import evaluate

    return evaluate.run(options)


def run_learn_to_optimize(options: argparse.Namespace) -> int:
    """Evaluates."""
    from tfrl_systems.cli.learn_to_optimize import evaluate

    return evaluate.run(options)


def run_tensor_graphs(options: argparse.Namespace) -> int:
    """Evaluates."""
    from tfrl_systems.cli.tensor_graphs import evaluate

    return evaluate.run(options)
