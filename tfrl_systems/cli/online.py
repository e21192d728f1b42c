"""What `tfrl train` does for PPO and REINFORCE in every environment."""

from __future__ import annotations

import dataclasses
import importlib
import pathlib
from collections.abc import Mapping
from typing import Any

from tf_agents.trajectories import time_step as ts

from tfrl_systems.cli.console import Progress
from tfrl_systems.drivers.in_process import InProcessPool
from tfrl_systems.drivers.jobs import Chunk, MakeRunner, Pool
from tfrl_systems.drivers.pool import DriverPool
from tfrl_systems.episodes import Experience
from tfrl_systems.policies.export import save_policy
from tfrl_systems.training.checkpoints import Workdir
from tfrl_systems.training.online import Config, EvaluateFn, OnIteration, OnlineLoop, run_online


def agent_config(agent: str, values: Mapping[str, Any], seed: int) -> Any:
    """The settings of an agent as the command line asks for them; `values` are those of --set."""
    config = importlib.import_module(f"tfrl_systems.agents.{agent}").Config
    return config(**{**values, "seed": seed})


def make_agent(agent: str, config: Any, time_step_spec: ts.TimeStep, action_spec: Any) -> Any:
    """The agent of that name, untrained.

    Raises:
      UserError: a setting is out of its range.
    """
    module = importlib.import_module(f"tfrl_systems.agents.{agent}")
    return module.make_agent(config, time_step_spec, action_spec)


def settings(agent: str, config: Any, loop_config: Config) -> dict[str, Any]:
    """All of agent and loop that decides the result, as JSON values."""
    loop = dataclasses.asdict(loop_config)
    del loop["checkpoint_every"]
    return {"agent": agent, **dataclasses.asdict(config), **loop}


def make_pool(
    make_runner: MakeRunner[Chunk, Experience], num_workers: int, timeout_s: float = 300.0
) -> Pool[Chunk, Experience]:
    """Collects in so many worker processes, or in this one.

    Args:
      make_runner: makes the runner.
      num_workers: processes; 0 for this one.
      timeout_s: of a worker for a chunk.
    """
    if not num_workers:
        return InProcessPool(make_runner)
    return DriverPool(make_runner, num_workers, timeout_s=timeout_s)


def train(
    agent: Any,
    config: Config,
    pool: Pool[Chunk, Experience],
    evaluate_fn: EvaluateFn,
    about: Mapping[str, Any],
    workdir: Workdir,
    on_iteration: OnIteration,
) -> dict[str, Any]:
    """Trains, or goes on with the run that `workdir` holds.

    Args:
      agent: what learns.
      config: of the loop.
      pool: collects.
      evaluate_fn: measures the policy.
      about: what policy.json says beside the model; "environment" and "agent" are there.
      workdir: where the run is kept.
      on_iteration: told of each iteration.

    Returns:
      What result.json holds.
    """

    def learn(iteration: int, experience: Experience) -> float:
        loss = float(agent.train(experience.with_usual_length().trajectory).loss)
        # The next experience is collected as it will be learned from.
        agent.set_progress((iteration + 1) / config.iterations)
        return loss

    def save(directory: pathlib.Path) -> None:
        described = {**about, "seed": config.seed, "run": dict(workdir.settings)}
        save_policy(directory, agent.policy, described)

    return run_online(
        OnlineLoop(agent, learn, pool, config),
        config,
        workdir,
        evaluate_fn,
        save,
        {name: about[name] for name in ("environment", "agent")},
        on_iteration,
    )


def make_teller(progress: Progress, config: Config) -> OnIteration:
    """Shows how many iterations are done, and what was left out of them."""
    advance = progress.task("iterations", config.iterations)
    told = 0

    def tell(record: Mapping[str, Any]) -> None:
        nonlocal told
        for message in record["failures"]:
            progress.say(f"left out: {message}")
        advance(record["iteration"] - told)
        told = record["iteration"]

    return tell


def describe_seconds(seconds: Mapping[str, float]) -> str:
    """Where a run's time went."""
    return ", ".join(f"{spent:.1f} s {name}" for name, spent in seconds.items())
