"""`tfrl train`: learns a policy."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from tfrl_systems.cli import options as shared
from tfrl_systems.cli.settings import Setting, describe, parse_settings, read_settings

_DESCRIPTION = """\
Learns which call sites to inline so that objects become smaller than clang -Oz makes them.

  tfrl train inlining --agent bc_max --corpus runs/corpus/train --workdir runs/first
  tfrl train inlining --agent bc_max --corpus runs/corpus/train --holdout runs/corpus/heldout \\
      --workdir runs/second --compiler clang-22 --iterations 3 --set model=trees

--workdir gets
  policy/        what was learned: a TensorFlow SavedModel, and arrays for NumPy alone
  tensorboard/   savings, loss and agreement over the iterations: tensorboard --logdir DIR
  checkpoints/   the policy and the record of each iteration
  result.json    the outcome, with all that is needed to get it again
A run that was interrupted goes on with --resume and ends as if it had not been.
"""
_CLASSES = {
    "loop": ("tfrl_systems.training.bc_max", "Config"),
    "exploration": ("environments.inlining.exploration", "ExplorationConfig"),
    "agent": ("tfrl_systems.agents.bc_max", "Config"),
}
# --seed sets the seeds; the margin is chosen among `margins`; the environment names its baseline
# and the scope.
_SET_OTHERWISE = ("seed", "margin", "baseline_feature", "scope_feature")


def add_parser(subparsers: Any) -> None:
    """Adds `train` to the verbs."""
    train = shared.add_verb(subparsers, "train", "learn a policy", "Learns a policy.")
    environments = train.add_subparsers(title="environments", metavar="ENV", required=True)
    parser = shared.add_verb(environments, "inlining", "which calls to inline", _DESCRIPTION)
    parser.add_argument("--agent", choices=("bc_max",), required=True, help="how to learn")
    parser.add_argument(
        "--corpus",
        type=pathlib.Path,
        required=True,
        metavar="DIR",
        help="modules to learn on (tfrl corpus build makes one)",
    )
    parser.add_argument(
        "--holdout",
        type=pathlib.Path,
        metavar="DIR",
        help="modules to measure each policy on; never used to learn or to choose",
    )
    parser.add_argument(
        "--workdir",
        type=pathlib.Path,
        required=True,
        metavar="DIR",
        help="where the run is kept",
    )
    parser.add_argument(
        "--iterations",
        type=shared.whole_number(1),
        metavar="N",
        help="rounds of exploring and learning; the same as --set iterations=N",
    )
    parser.add_argument(
        "--seed", type=shared.whole_number(0), default=0, metavar="S", help="default: 0"
    )
    parser.add_argument("--resume", action="store_true", help="go on with the run in --workdir")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        dest="assignments",
        metavar="FIELD=VALUE",
        help="change a field; see below; may be repeated",
    )
    shared.add_compiler(parser)
    shared.add_collection(parser)
    shared.add_json(parser)
    parser.epilog = f"fields for --set, with their defaults:\n{describe(settings_of_training())}"
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Trains."""
    values = parse_settings(options.assignments, settings_of_training())
    if options.iterations is not None:
        values["loop"]["iterations"] = options.iterations
    from tfrl_systems.cli.inlining import train as train_inlining

    return train_inlining.run(options, values)


def settings_of_training() -> tuple[Setting, ...]:
    """The fields that `--set` reaches."""
    return read_settings(_CLASSES, _SET_OTHERWISE)
