"""The verb `tfrl replay`, which plays saved trajectories again and ranks them."""

from __future__ import annotations

import argparse
from typing import Any

from tfrl_systems import experiments
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import show_result
from tfrl_systems.experiments.arguments import path_of_file
from tfrl_systems.reporting import Terminal

_DESCRIPTION = """\
Plays a saved trajectory again on this machine, and says that all is equal (each observation, each
reward and the result), or what differs first. Of several, or of directories of them, it makes a
table for each context, the largest reward first. Only those that are equal are ranked.

  tfrl replay mine.json
  tfrl replay mine.json --corpus runs/mine        the corpus lies elsewhere on this machine
  tfrl replay trajectories/ friend.json --json

To save one, in Python:

  from environments.recording import Recorder

  recorder = Recorder("tensor_graphs", models=["bert-tiny"], objective="analytic")
  step = recorder.reset()
  while not step.is_last():
      step = recorder.step(...)
  recorder.save_trajectory("mine.json", author="me")

An environment of Gymnasium has save_trajectory, too. Costs that are measured differ from machine to
machine; those of objective="analytic" do not. A model that is a file is looked for by the name that
it had; if it has another one here, say so in Python:

  from environments import replays, trajectories

  trajectory = trajectories.Trajectory.load("mine.json")
  print(replays.replay(trajectory, models=["here.onnx"], context="here.onnx"))

A file may be a stranger's. So a compiler or a function that a trajectory names is only run if you
name it, too, by --compiler or --function.

The exit status is 0 if all are equal, and 1 if not.
"""


def add_parser(subparsers: Any) -> None:
    """Add `replay` to the verbs."""
    parser = shared.add_verb(
        subparsers, "replay", "play saved trajectories again, and rank them", _DESCRIPTION
    )
    parser.add_argument(
        "paths",
        nargs="+",
        type=path_of_file,
        metavar="FILE",
        help="a trajectory, or a directory of them (*.json)",
    )
    parser.add_argument(
        "--corpus",
        type=path_of_file,
        metavar="DIR",
        help="the corpus of trajectories that have one, if it lies elsewhere now",
    )
    parser.add_argument(
        "--compiler", metavar="CLANG", help="the clang of trajectories that name one"
    )
    parser.add_argument(
        "--function",
        metavar="MODULE:CALLABLE",
        help="the function of trajectories of one that is not built in",
    )
    shared.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Replay what the command line names."""
    from tfrl_systems.experiments.replaying import replay_table

    named = {"corpus": options.corpus, "compiler": options.compiler, "function": options.function}
    overrides = {name: str(value) for name, value in named.items() if value is not None}
    with Terminal() as terminal:
        result = experiments.replay(options.paths, reporter=terminal, **overrides)
    show_result(options, result, replay_table(result))
    return 0 if all(row["equal"] for row in result["trajectories"]) else 1
