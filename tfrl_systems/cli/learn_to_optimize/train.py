"""`tfrl train learn_to_optimize`, once the command line is read."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from environments.learn_to_optimize import references
from tfrl_systems.cli import online
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import Progress, say, show, show_json
from tfrl_systems.cli.learn_to_optimize.evaluate import truth_cache
from tfrl_systems.cli.learn_to_optimize.problem import EnvironmentConfig, MakeRunner, Problem
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.policies.optimizer_policy import OptimizerPolicy
from tfrl_systems.training.checkpoints import Workdir, open_workdir
from tfrl_systems.training.online import Config, OnIteration

Values = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Training:
    """What is trained, and how.

    Attributes:
      problem: function, sampler and environment.
      config: of the loop.
      agent: name of the agent.
      agent_config: its settings.
    """

    problem: Problem
    config: Config
    agent: str
    agent_config: Any

    @classmethod
    def of(cls, options: argparse.Namespace, values: Values) -> Training:
        """What the command line asks for; `values` are those of --set, by group."""
        return cls(
            Problem.of(options, EnvironmentConfig(**values["environment"])),
            Config(**{**values["loop"], "seed": options.seed}),
            options.agent,
            online.agent_config(options.agent, values["agent"], options.seed),
        )

    def make_agent(self) -> Any:
        """The agent, untrained.

        Raises:
          UserError: a setting is out of its range.
        """
        environment = dataclasses.replace(self.problem, sampler="random").make_environments()[0]
        specs = environment.time_step_spec(), environment.action_spec()
        return online.make_agent(self.agent, self.agent_config, *specs)

    def settings(self) -> dict[str, Any]:
        """All that decides the result, as JSON values."""
        return {
            "environment": "learn_to_optimize",
            **self.problem.describe(),
            "sampler": self.problem.sampler,
            **dataclasses.asdict(self.problem.config),
            **online.settings(self.agent, self.agent_config, self.config),
        }


def run(options: argparse.Namespace, values: Values) -> int:
    """Trains as the command line says; `values` are those of --set, by group."""
    training = Training.of(options, values)
    with open_workdir(options.workdir, training.settings(), resume=options.resume) as workdir:
        result = workdir.result()
        if result is not None:
            say(f"{options.workdir}: already finished")
        else:
            with Progress() as progress:
                tell = online.make_teller(progress, training.config)
                result = train(training, workdir, shared.num_collecting(options), tell)
    _show(options, result)
    return 0


def train(
    training: Training,
    workdir: Workdir,
    num_workers: int = 0,
    on_iteration: OnIteration = lambda record: None,
) -> dict[str, Any]:
    """Trains, or goes on with the run that `workdir` holds.

    Args:
      training: what to train.
      workdir: where it is kept.
      num_workers: processes that collect; 0 for this one.
      on_iteration: told of each iteration.

    Returns:
      What result.json holds.
    """
    agent = training.make_agent()
    actor = NumpyActor.from_policy(agent.collect_policy)
    about = {
        **training.problem.describe(),
        "environment": "learn_to_optimize",
        "agent": training.agent,
        "use": [
            f"tfrl evaluate learn_to_optimize --policy DIR --function {training.problem.function}",
            "tfrl_systems.policies.optimizer_policy.OptimizerPolicy.load(DIR)(c)",
            "tf.saved_model.load(DIR)",
        ],
    }
    make_runner = MakeRunner(training.problem, actor, training.config.episodes_per_chunk)
    with online.make_pool(make_runner, num_workers) as pool:
        evaluate_fn = _evaluator(training.problem, agent)
        return online.train(agent, training.config, pool, evaluate_fn, about, workdir, on_iteration)


def _evaluator(problem: Problem, agent: Any) -> Callable[[bytes], Mapping[str, float]]:
    """Measures the greedy policy at the c of DESIGN, {-1, -0.9, …, 1}."""
    free = references.reference_points(problem.free)
    actor = NumpyActor.from_policy(agent.collect_policy)

    def evaluate(variables: bytes) -> Mapping[str, float]:
        actor.load(variables)
        x = OptimizerPolicy(actor.network, problem.objective.num_tuned)(free)
        return references.errors(problem.objective, x, free, truth_cache())._asdict()

    return evaluate


def _show(options: argparse.Namespace, result: Mapping[str, Any]) -> None:
    if options.json:
        show_json(result)
        return
    late = result["evaluation"]["last_tenth"]
    show(
        f"policy       {options.workdir}/policy\n"
        f"curves       tensorboard --logdir {options.workdir}/tensorboard\n"
        f"errors       mse {late['mse']:.3g}, msle {late['msle']:.3g} "
        "(mean over the last tenth of the iterations)\n"
        f"time         {online.describe_seconds(result['seconds'])}\n"
        f"next         tfrl evaluate learn_to_optimize --policy {options.workdir}/policy "
        "--policy scipy --policy random"
    )
