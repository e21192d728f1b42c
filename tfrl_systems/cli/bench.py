"""`tfrl bench`: what things cost here, side by side in one run."""

from __future__ import annotations

import argparse
import pathlib
from typing import Any

from tfrl_systems.cli import optimize
from tfrl_systems.cli import options as shared

_INLINING = """\
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
_LEARN_TO_OPTIMIZE = """\
Measures what collecting and learning cost beside others that do the same work: 64 episodes of 2
steps of Ackley in two dimensions, PPO's policy of two hidden layers of 64 units, one thread for
TensorFlow. Times are medians of wall time, measured in turns. cpu_ratio is the same in CPU time of
this process and its children, which other programs on the machine disturb less.

  tfrl bench learn_to_optimize
  tfrl bench learn_to_optimize --only collect_ms --only numpy_actor_over_tf_actor
  chrt -f 1 tfrl bench learn_to_optimize --json      (as root: before all other programs)

collect_ms           ours: NumPy policy, batched environment, one chunk of 64, in this process
collect_over_...     another's time over ours: how many times faster
    ..._eager_driver                  TF-Agents' DynamicEpisodeDriver as its tutorials call it
    ..._tf_function_driver            the same in a tf.function
    ..._parallel_py_environment       the same with TF-Agents' ParallelPyEnvironment of 2 processes
    ..._stable_baselines3             Stable-Baselines3 PPO.collect_rollouts (values and advantages
                                      among it), DummyVecEnv of 64; needs the extra "bench"
numpy_actor_over_tf_actor
                     ours with TensorFlow for the policy, over ours
pipes_collect_ms_2_workers
                     by 2 processes, 32 episodes each; all of it, also that the policy's variables
                     are read, sent and loaded
pipes_scaling_sleep_1ms_K
                     an environment that sleeps 1 ms in every step: one process over K workers
broadcast_ms         to read the policy's variables from TensorFlow and load them into NumPy
query_us, query_us_per_row
                     policy(c) -> x for one c, and for each of many at a time
train_step_ms        PPO's training on what was collected
"""
_TENSOR_GRAPHS = """\
Measures what a step costs: a rule applied, and all matches, the graph's cost and the masks brought
up to date; and what learning costs. Random walks of 20 steps; medians of CPU time.

  tfrl bench tensor_graphs
  tfrl bench tensor_graphs --model bert-base --model model.onnx --json

engine_step_ms_MODEL                a step
incremental_over_full_match_MODEL   searching all matches of the same graphs anew, over a step: how
                                    many times faster
environment_step_ms_MODEL           a step of the environment, with its observation
memory_growth_mib_MODEL             by how much the process grew in the last nine tenths of those
                                    steps; tells more with --steps 100000
policy_ms_MODEL                     a decision of a policy that has learned nothing
train_step_ms_MODEL                 PPO's update from the 32 graphs that it decided on
"""
_TENSOR_GRAPHS_MODELS = ("resnet-50", "inception-v3", "bert-base")

# In the order in which they are shown.
_LEARN_TO_OPTIMIZE_NAMES = (
    "collect_ms",
    "collect_over_eager_driver",
    "collect_over_tf_function_driver",
    "collect_over_parallel_py_environment",
    "collect_over_stable_baselines3",
    "numpy_actor_over_tf_actor",
    "pipes_collect_ms_2_workers",
    "pipes_scaling_sleep_1ms_2",
    "pipes_scaling_sleep_1ms_4",
    "pipes_scaling_sleep_1ms_8",
    "broadcast_ms",
    "query_us",
    "query_us_per_row",
    "train_step_ms",
)


def add_parser(subparsers: Any) -> None:
    """Adds `bench` to the verbs."""
    verb = shared.add_verb(subparsers, "bench", "what things cost here", "Measures costs.")
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
    parser.set_defaults(run=run_inlining)


def _add_learn_to_optimize(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--only",
        action="append",
        choices=_LEARN_TO_OPTIMIZE_NAMES,
        metavar="NAME",
        help="measure this one; may be repeated",
    )
    parser.add_argument(
        "--rounds",
        type=shared.whole_number(1),
        default=3,
        metavar="N",
        help="how often each takes its turn (default: 3)",
    )
    shared.add_json(parser)
    parser.set_defaults(run=run_learn_to_optimize, benchmarks=_LEARN_TO_OPTIMIZE_NAMES)


def _add_tensor_graphs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        action="append",
        dest="models",
        metavar="FILE|NAME",
        help=f"may be repeated (default: {', '.join(_TENSOR_GRAPHS_MODELS)})",
    )
    parser.add_argument(
        "--steps",
        type=shared.whole_number(1),
        default=200,
        metavar="N",
        help="how many are measured (default: 200)",
    )
    parser.add_argument(
        "--seed", type=shared.whole_number(0), default=0, metavar="S", help="default: 0"
    )
    optimize.add_problem(parser, objective="analytic")
    shared.add_json(parser)
    parser.set_defaults(run=run_tensor_graphs)


def run_inlining(options: argparse.Namespace) -> int:
    """Measures."""
    from tfrl_systems.cli.inlining import bench as bench_inlining

    return bench_inlining.run(options)


def run_learn_to_optimize(options: argparse.Namespace) -> int:
    """Measures."""
    from tfrl_systems.cli.learn_to_optimize import bench as bench_learn_to_optimize

    return bench_learn_to_optimize.run(options)


def run_tensor_graphs(options: argparse.Namespace) -> int:
    """Measures."""
    from tfrl_systems.cli.tensor_graphs import bench as bench_tensor_graphs

    options.models = options.models or list(_TENSOR_GRAPHS_MODELS)
    return bench_tensor_graphs.run(options)
