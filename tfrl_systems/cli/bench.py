"""`tfrl bench`: what things cost here, side by side in one run."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from tfrl_systems.cli import options as shared

_DESCRIPTION = """\
Measures what learning costs beside plain compiling: every figure is of the same modules, in turns,
on one processor, as CPU time of this process and of all compilers; of each figure the median.

  tfrl bench inlining
  tfrl bench inlining --corpus runs/corpus/heldout --policy runs/first/policy --compiler clang-22

scored_trajectory_cpu_over_clang
                     a compile under the policy, features and size reading included, over a plain
                     clang -Oz -c of the same modules by the same clang
embedded_scored_trajectory_cpu_over_clang
                     the same with the embedded LLVM, over the same plain clang
..._of_the_median_module
                     the same ratio for the median module: the others are of sums, which large
                     modules decide
policy_us_per_decision, channel_us_per_decision
                     CPU time of one decision of the policy; what asking adds to a plain compile
trajectories_per_second
                     of the embedded LLVM with --workers, none recalled from a cache

Without --corpus a small one is compiled from sources that come along; without --policy one of the
usual size is fitted to LLVM's own decisions.
"""


def add_parser(subparsers: Any) -> None:
    """Adds `bench` to the verbs."""
    verb = shared.add_verb(subparsers, "bench", "what things cost here", "Measures costs.")
    environments = verb.add_subparsers(title="environments", metavar="ENV", required=True)
    parser = shared.add_verb(environments, "inlining", "which calls to inline", _DESCRIPTION)
    parser.add_argument("--corpus", type=pathlib.Path, metavar="DIR", help="modules to compile")
    parser.add_argument(
        "--compiler",
        metavar="CLANG",
        help="the clang to compare with: a path or a name on PATH (default: the newest on PATH)",
    )
    parser.add_argument("--policy", metavar="DIR|NAME", help="the policy that decides")
    parser.add_argument(
        "--modules",
        type=shared.whole_number(1),
        default=12,
        metavar="N",
        help="how many of the corpus, evenly spread by size (default: 12)",
    )
    parser.add_argument(
        "--rounds",
        type=shared.whole_number(1),
        default=5,
        metavar="N",
        help="how often each is compiled in each way (default: 5)",
    )
    parser.add_argument(
        "--workers",
        type=shared.whole_number(1),
        default=shared.default_workers(),
        metavar="N",
        help="for trajectories_per_second (default: one for each processor)",
    )
    shared.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measures."""
    from tfrl_systems.cli.inlining import bench as bench_inlining

    return bench_inlining.run(options)
