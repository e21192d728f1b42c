"""`tfrl train learn_to_optimize`, once the command line is read."""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from environments.learn_to_optimize import references
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import Progress, say, show, show_json
from tfrl_systems.cli.learn_to_optimize.evaluate import truth_cache
from tfrl_systems.cli.learn_to_optimize.problem import EnvironmentConfig, MakeRunner, Problem
from tfrl_systems.drivers.in_process import InProcessPool
from tfrl_systems.drivers.jobs import Chunk, Pool
from tfrl_systems.drivers.pool import DriverPool
from tfrl_systems.episodes import Experience
from tfrl_systems.policies.export import save_policy
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.policies.optimizer_policy import OptimizerPolicy
from tfrl_systems.training.checkpoints import Workdir, open_workdir
from tfrl_systems.training.online import Config, OnIteration, OnlineLoop, run_online

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
        agents = importlib.import_module(f"tfrl_systems.agents.{options.agent}")
        return cls(
            Problem.of(options, EnvironmentConfig(**values["environment"])),
            Config(**{**values["loop"], "seed": options.seed}),
            options.agent,
            agents.Config(**{**values["agent"], "seed": options.seed}),
        )

    def make_agent(self) -> Any:
        """The agent, untrained.

        Raises:
          UserError: a setting is out of its range.
        """
        agents = importlib.import_module(f"tfrl_systems.agents.{self.agent}")
        environment = dataclasses.replace(self.problem, sampler="random").make_environments()[0]
        specs = environment.time_step_spec(), environment.action_spec()
        return agents.make_agent(self.agent_config, *specs)

    def settings(self) -> dict[str, Any]:
        """All that decides the result, as JSON values."""
        loop = dataclasses.asdict(self.config)
        del loop["checkpoint_every"]
        return {
            "environment": "learn_to_optimize",
            "agent": self.agent,
            **self.problem.describe(),
            "sampler": self.problem.sampler,
            **dataclasses.asdict(self.problem.config),
            **dataclasses.asdict(self.agent_config),
            **loop,
        }


def run(options: argparse.Namespace, values: Values) -> int:
    """Trains as the command line says; `values` are those of --set, by group."""
    training = Training.of(options, values)
    with open_workdir(options.workdir, training.settings(), resume=options.resume) as workdir:
        result = workdir.result()
        if result is not None:
            say(f"{options.workdir}: already finished")
        else:
            collect = options.collect or ("pipes" if options.workers else "inprocess")
            num_workers = options.workers or shared.default_workers()
            with Progress() as progress:
                tell = _teller(progress, training.config)
                result = train(training, workdir, collect, num_workers, tell)
    _show(options, result)
    return 0


def train(
    training: Training,
    workdir: Workdir,
    collect: str = "inprocess",
    num_workers: int = 1,
    on_iteration: OnIteration = lambda record: None,
) -> dict[str, Any]:
    """Trains, or goes on with the run that `workdir` holds.

    Args:
      training: what to train.
      workdir: where it is kept.
      collect: "inprocess" or "pipes".
      num_workers: processes, with pipes.
      on_iteration: told of each iteration.

    Returns:
      What result.json holds.
    """
    agent = training.make_agent()
    actor = NumpyActor.from_policy(agent.collect_policy)
    config = training.config

    def learn(iteration: int, experience: Experience) -> float:
        agent.set_progress(iteration / config.iterations)
        return float(agent.train(experience.trajectory).loss)

    def save(directory: pathlib.Path) -> None:
        about = {
            **training.problem.describe(),
            "environment": "learn_to_optimize",
            "agent": training.agent,
            "seed": config.seed,
            "run": dict(workdir.settings),
            "use": [
                "tfrl evaluate learn_to_optimize --policy DIR --function "
                f"{training.problem.function}",
                "tfrl_systems.policies.optimizer_policy.OptimizerPolicy.load(DIR)(c)",
                "tf.saved_model.load(DIR)",
            ],
        }
        save_policy(directory, agent.policy, about)

    make_runner = MakeRunner(training.problem, actor, config.episodes_per_chunk)
    with _make_pool(make_runner, collect, num_workers) as pool:
        loop = OnlineLoop(agent, learn, pool, config)
        return run_online(
            loop,
            config,
            workdir,
            _evaluator(training.problem, agent),
            save,
            {"environment": "learn_to_optimize", "agent": training.agent},
            on_iteration,
        )


def _make_pool(make_runner: MakeRunner, collect: str, num_workers: int) -> Pool[Chunk, Experience]:
    if collect == "inprocess":
        return InProcessPool(make_runner, stop_on_failure=True)
    return DriverPool(make_runner, num_workers, stop_on_failure=True)


def _evaluator(problem: Problem, agent: Any) -> Callable[[bytes], Mapping[str, float]]:
    """Measures the greedy policy at the c of DESIGN, {-1, -0.9, …, 1}."""
    free = references.reference_points(problem.free)
    actor = NumpyActor.from_policy(agent.collect_policy)

    def evaluate(variables: bytes) -> Mapping[str, float]:
        actor.load(variables)
        x = OptimizerPolicy(actor.network, problem.objective.num_tuned)(free)
        return references.errors(problem.objective, x, free, truth_cache())._asdict()

    return evaluate


def _teller(progress: Progress, config: Config) -> OnIteration:
    advance = progress.task("iterations", config.iterations)
    told = 0

    def tell(record: Mapping[str, Any]) -> None:
        nonlocal told
        advance(record["iteration"] - told)
        told = record["iteration"]

    return tell


def _show(options: argparse.Namespace, result: Mapping[str, Any]) -> None:
    if options.json:
        show_json(result)
        return
    seconds = result["seconds"]
    late = result["evaluation"]["last_tenth"]
    show(
        f"policy       {options.workdir}/policy\n"
        f"curves       tensorboard --logdir {options.workdir}/tensorboard\n"
        f"errors       mse {late['mse']:.3g}, msle {late['msle']:.3g} "
        "(mean over the last tenth of the iterations)\n"
        f"time         {seconds['collecting']:.1f} s collecting, {seconds['broadcasting']:.1f} s "
        f"broadcasting, {seconds['waiting']:.1f} s waiting, {seconds['training']:.1f} s training\n"
        f"next         tfrl evaluate learn_to_optimize --policy {options.workdir}/policy "
        "--policy scipy --policy random"
    )
