"""`tfrl train`: learns a policy."""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Mapping
from typing import Any

from tfrl_systems.cli import options as shared
from tfrl_systems.cli.optimize import add_problem
from tfrl_systems.cli.settings import (
    Setting,
    describe,
    parse_settings,
    read_settings,
    with_defaults,
)

_WORKDIR = """\
--workdir gets
  policy/        what was learned: a TensorFlow SavedModel, and arrays for NumPy alone
  tensorboard/   curves over the iterations: tensorboard --logdir DIR
  checkpoints/   what a resumed run needs
  result.json    the outcome, with all that is needed to get it again
A run that was interrupted goes on with --resume and ends as if it had not been.
"""
_INLINING = f"""\
Learns which call sites to inline so that objects become smaller than clang -Oz makes them.

  tfrl train inlining --agent bc_max --corpus runs/corpus/train --workdir runs/first
  tfrl train inlining --agent bc_max --corpus runs/corpus/train --holdout runs/corpus/heldout \\
      --workdir runs/second --compiler clang-22 --iterations 3 --set model=trees
  tfrl train inlining --agent ppo --corpus runs/corpus/train --workdir runs/third

bc_max explores around LLVM's own decisions and imitates the best: it is what makes code smaller
here. ppo and reinforce learn from whole compiles alone, each paid for at its end, beginning with
LLVM's own decisions; they need many more compiles.

{_WORKDIR}"""
_LEARN_TO_OPTIMIZE = f"""\
Learns a policy that gives the x of the least f(x; c) for any free parameters c at once.

  tfrl train learn_to_optimize --agent ppo --function shifted_ackley --workdir runs/ackley
  tfrl train learn_to_optimize --agent ppo --function plant:cost --dimensions 3 --free 1 \\
      --bounds -5,5 --workdir runs/plant --collect pipes --workers 2

What is collected, and so the policy, is the same for every --collect and every --workers.

{_WORKDIR}"""

_TENSOR_GRAPHS = f"""\
Learns which substitution to apply where, so that graphs of tensor operations cost less.

  tfrl train tensor_graphs --agent ppo --model bert-tiny --workdir runs/graphs
  tfrl train tensor_graphs --agent ppo --model resnet-50 --model model.onnx \\
      --workdir runs/several --collect pipes --workers 2

Of several models, each episode rewrites one. A policy sees graphs and rules, not their numbers, and
so can be used on models that it never saw.

{_WORKDIR}"""

_BC_MAX = {
    "loop": ("tfrl_systems.training.bc_max", "Config"),
    "exploration": ("environments.inlining.exploration", "ExplorationConfig"),
    "agent": ("tfrl_systems.agents.bc_max", "Config"),
}
# Of policy gradients on inlining, where they differ from the defaults of agent and loop: rewards
# come at the end of episodes, which are long and cost compiles.
_POLICY_GRADIENT_ON_INLINING = {
    "iterations": "100",
    "num_chunks": "8",
    "max_failed_chunks": "2",
    "episodes_per_chunk": "4",
    "evaluate_every": "20",
    "checkpoint_every": "10",
    "gamma": "1.0",
    "gae_lambda": "1.0",
    "hidden_sizes": "64,64",
    "final_learning_rate": "1e-5",
    "num_epochs": "10",
    "gradient_clipping": "0.5",
    "relative_advantages": "False",
    "normalize_rewards": "True",
}
# The same on graphs: episodes are tens of steps long, each pays at once for what it gains and later
# for what it makes possible.
_POLICY_GRADIENT_ON_GRAPHS = {
    "iterations": "40",
    "episodes_per_chunk": "4",
    "checkpoint_every": "10",
    "gamma": "0.95",
    "learning_rate": "3e-3",
    "final_learning_rate": "1e-4",
    "num_epochs": "3",
    "minibatch_size": "100",
    "episodes_per_update": "2",
    "value_weight": "0.1",
    "normalize_rewards": "True",
    "entropy_regularization": "0.02",
    "gradient_clipping": "1.0",
}
# What is so on some models is less certain on others.
_OF_SEVERAL_MODELS = {"max_logit": "4.0"}
# Uncertainty sampling goes by where the policy's entropy is high: by nothing where it is the same
# everywhere.
_SAMPLERS_THAT_ASK = ("uncertainty", "heterogeneous")
_OF_A_POLICY_THAT_IS_ASKED = {"state_dependent_std": "True"}
# --seed sets the seeds; the margin is chosen among `margins`; the environment names its baseline
# and the scope.
_SET_OTHERWISE = ("seed", "margin", "baseline_feature", "scope_feature")


def add_parser(subparsers: Any) -> None:
    """Adds `train` to the verbs."""
    train = shared.add_verb(subparsers, "train", "learn a policy", "Learns a policy.")
    environments = train.add_subparsers(title="environments", metavar="ENV", required=True)
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
    parser.add_argument(
        "--agent", choices=("bc_max", "ppo", "reinforce"), required=True, help="how to learn"
    )
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
    shared.add_training(parser, "rounds of exploring, or collecting, and learning")
    shared.add_compiler(parser)
    shared.add_collection(parser)
    shared.add_json(parser)
    parser.epilog = "\n\n".join(
        f"with --agent {agent}: {_fields(settings_of_inlining(agent))}"
        for agent in ("bc_max", "ppo", "reinforce")
    )
    parser.set_defaults(run=run_inlining)


def _add_learn_to_optimize(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", choices=("ppo", "reinforce"), required=True, help="how to learn")
    shared.add_function(parser, required=True)
    parser.add_argument(
        "--sampler",
        choices=("random", "latin_hypercube", "uncertainty", "heterogeneous"),
        default="random",
        help="how start points are drawn; heterogeneous takes the other three in turn; "
        "uncertainty asks the policy where it is unsure, and sets state_dependent_std for that "
        "(default: random)",
    )
    shared.add_training(parser, "rounds of collecting and learning")
    shared.add_where_to_collect(parser)
    shared.add_json(parser)
    parser.epilog = "\n\n".join(
        f"with --agent {agent}: {_fields(settings_of_learning(agent))}"
        for agent in ("ppo", "reinforce")
    )
    parser.set_defaults(run=run_learn_to_optimize)


def _add_tensor_graphs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--agent", choices=("ppo", "reinforce"), required=True, help="how to learn")
    parser.add_argument(
        "--model",
        action="append",
        required=True,
        dest="models",
        metavar="FILE|NAME",
        help="an ONNX file, or one of tfrl evaluate tensor_graphs' models; may be repeated, which "
        f"sets max_logit to {_OF_SEVERAL_MODELS['max_logit']}",
    )
    add_problem(parser)
    shared.add_training(parser, "rounds of collecting and learning")
    shared.add_where_to_collect(parser)
    shared.add_json(parser)
    parser.epilog = "\n\n".join(
        f"with --agent {agent}: {_fields(settings_on_graphs(agent))}"
        for agent in ("ppo", "reinforce")
    )
    parser.set_defaults(run=run_tensor_graphs)


def run_inlining(options: argparse.Namespace) -> int:
    """Trains."""
    values = _values(options, settings_of_inlining(options.agent))
    if options.agent == "bc_max":
        from tfrl_systems.cli.inlining import train

        return train.run(options, values)
    from tfrl_systems.cli.inlining import online

    return online.run(options, values)


def run_learn_to_optimize(options: argparse.Namespace) -> int:
    """Trains."""
    values = _values(options, settings_of_learning(options.agent, options.sampler))
    from tfrl_systems.cli.learn_to_optimize import train

    return train.run(options, values)


def run_tensor_graphs(options: argparse.Namespace) -> int:
    """Trains."""
    values = _values(options, settings_on_graphs(options.agent, len(options.models)))
    from tfrl_systems.cli.tensor_graphs import train

    return train.run(options, values)


def settings_of_inlining(agent: str) -> tuple[Setting, ...]:
    """The fields that `--set` reaches when an agent learns to inline."""
    if agent == "bc_max":
        return read_settings(_BC_MAX, _SET_OTHERWISE)
    classes = {
        "loop": ("tfrl_systems.training.online", "Config"),
        "episodes": ("tfrl_systems.cli.inlining.online", "EpisodeConfig"),
        "agent": (f"tfrl_systems.agents.{agent}", "Config"),
    }
    return with_defaults(read_settings(classes, _SET_OTHERWISE), _POLICY_GRADIENT_ON_INLINING)


def settings_of_learning(agent: str, sampler: str = "random") -> tuple[Setting, ...]:
    """The fields that `--set` reaches when a policy gradient agent learns to optimise.

    Args:
      agent: "ppo" or "reinforce".
      sampler: of start points; those that ask the policy have it learn where it is unsure.
    """
    classes = {
        "loop": ("tfrl_systems.training.online", "Config"),
        "environment": ("tfrl_systems.cli.learn_to_optimize.problem", "EnvironmentConfig"),
        "agent": (f"tfrl_systems.agents.{agent}", "Config"),
    }
    defaults = _OF_A_POLICY_THAT_IS_ASKED if sampler in _SAMPLERS_THAT_ASK else {}
    return with_defaults(read_settings(classes, _SET_OTHERWISE), defaults)


def settings_on_graphs(agent: str, num_models: int = 1) -> tuple[Setting, ...]:
    """The fields that `--set` reaches when a policy gradient agent learns to rewrite graphs.

    Args:
      agent: "ppo" or "reinforce".
      num_models: that it learns on; of several it does not become as sure.
    """
    classes = {
        "loop": ("tfrl_systems.training.online", "Config"),
        "environment": ("tfrl_systems.cli.tensor_graphs.learning", "EnvironmentConfig"),
        "agent": (f"tfrl_systems.agents.{agent}", "Config"),
    }
    defaults = _POLICY_GRADIENT_ON_GRAPHS | (_OF_SEVERAL_MODELS if num_models > 1 else {})
    return with_defaults(read_settings(classes, _SET_OTHERWISE), defaults)


def _values(
    options: argparse.Namespace, settings: tuple[Setting, ...]
) -> Mapping[str, Mapping[str, Any]]:
    values = parse_settings(options.assignments, settings)
    if options.iterations is not None:
        values["loop"]["iterations"] = options.iterations
    return values


def _fields(settings: tuple[Setting, ...]) -> str:
    return f"fields for --set, with their defaults:\n{describe(settings)}"
