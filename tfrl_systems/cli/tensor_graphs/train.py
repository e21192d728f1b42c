"""`tfrl train tensor_graphs`, once the command line is read."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import statistics
from collections.abc import Mapping
from typing import Any

from environments.tensor_graphs.observation import VOCABULARY
from tfrl_systems.cli import online
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import Progress, percent, say, show, show_json
from tfrl_systems.cli.tensor_graphs.learning import EnvironmentConfig, LearningProblem, MakeRunner
from tfrl_systems.cli.tensor_graphs.policy import GraphPolicy
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.training.checkpoints import Workdir, open_workdir
from tfrl_systems.training.heatmap import Heatmap
from tfrl_systems.training.online import Config, EvaluateFn, OnIteration

Values = Mapping[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Training:
    """What is trained, and how.

    Attributes:
      problem: models, rules and environment.
      config: of the loop.
      agent: name of the agent.
      agent_config: its settings.
    """

    problem: LearningProblem
    config: Config
    agent: str
    agent_config: Any

    @classmethod
    def of(cls, options: argparse.Namespace, values: Values) -> Training:
        """What the command line asks for; `values` are those of --set, by group."""
        return cls(
            LearningProblem.of(options, EnvironmentConfig(**values["environment"])),
            Config(**{**values["loop"], "seed": options.seed}),
            options.agent,
            online.agent_config(options.agent, values["agent"], options.seed),
        )

    def settings(self) -> dict[str, Any]:
        """All that decides the result, as JSON values."""
        return {
            "environment": "tensor_graphs",
            **self.problem.describe(),
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
                tell = _teller(progress, training.config)
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
    environment = training.problem.make_environment()
    specs = environment.time_step_spec(), environment.action_spec()
    agent = online.make_agent(training.agent, training.agent_config, *specs)
    actor = NumpyActor.from_policy(agent.collect_policy)
    about = {
        **training.problem.describe(),
        "environment": "tensor_graphs",
        "agent": training.agent,
        "vocabulary": VOCABULARY,
        "use": [
            "tfrl optimize model.onnx -o fast.onnx --method policy --policy DIR",
            "tfrl evaluate tensor_graphs --model model.onnx --policy DIR --policy regions",
        ],
    }
    make_runner = MakeRunner(training.problem, actor, training.config.episodes_per_chunk)
    with online.make_pool(make_runner, num_workers) as pool:
        evaluate_fn = _evaluator(training.problem, agent)
        return online.train(agent, training.config, pool, evaluate_fn, about, workdir, on_iteration)


def _evaluator(problem: LearningProblem, agent: Any) -> EvaluateFn:
    """Has the likeliest actions rewrite each model, and counts the rules that they apply."""
    environments = {name: problem.make_environment(only=name) for name in problem.models}
    actor = NumpyActor.from_policy(agent.collect_policy)

    def evaluate(variables: bytes) -> Mapping[str, float | Heatmap]:
        actor.load(variables)
        policy = GraphPolicy(actor.network)
        found: dict[str, float] = {}
        counts: dict[str, collections.Counter[str]] = {}
        for name, environment in environments.items():
            counts[name] = collections.Counter(step.xfer for step, _ in policy.play(environment))
            info = environment.get_info()
            found[f"cost/{name}"] = info["best_cost_ms"] / info["start_cost_ms"]
            found[f"steps/{name}"] = float(info["steps"])
        costs = [value for name, value in found.items() if name.startswith("cost/")]
        rules = Heatmap.of("applications of rules", counts)
        return {"cost": statistics.fmean(costs), **found, "rules": rules}

    return evaluate


def _teller(progress: Progress, config: Config) -> OnIteration:
    count = online.make_teller(progress, config)

    def tell(record: Mapping[str, Any]) -> None:
        if "evaluation" in record:
            progress.say(
                f"iteration {record['iteration']}: {percent(record['evaluation']['cost'], 1.0)} "
                "of estimated cost, mean of the models"
            )
        count(record)

    return tell


def _show(options: argparse.Namespace, result: Mapping[str, Any]) -> None:
    if options.json:
        show_json(result)
        return
    late = result["evaluation"]["last_tenth"]
    show(
        f"policy       {options.workdir}/policy\n"
        f"curves       tensorboard --logdir {options.workdir}/tensorboard\n"
        f"costs        {percent(late['cost'], 1.0)} of estimated cost "
        "(mean of the models and of the last tenth of the iterations)\n"
        f"time         {online.describe_seconds(result['seconds'])}\n"
        f"next         tfrl optimize {options.models[0]} -o fast.onnx --method policy "
        f"--policy {options.workdir}/policy"
    )
