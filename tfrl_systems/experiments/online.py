"""Training with PPO, REINFORCE and their kind, for every system: collect, learn, again."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable, Mapping
from typing import Any

from tf_agents.agents import tf_agent
from tf_agents.trajectories import time_step as ts

from tfrl_systems.drivers.collect import Collect, Supervision, make_pool
from tfrl_systems.drivers.jobs import Chunk, MakeRunner
from tfrl_systems.episodes import Experience
from tfrl_systems.experiments.agents import find_agent
from tfrl_systems.experiments.reporting import Reporter
from tfrl_systems.experiments.training_run import TrainingRun
from tfrl_systems.policies.export import save_policy
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.training.checkpoints import Workdir
from tfrl_systems.training.online import EvaluateFn, OnIteration, OnlineLoop, run_online


@dataclasses.dataclass(frozen=True)
class OnlineTask:
    """What a system says of itself so that a policy can be learned in it online.

    Attributes:
      time_step_spec: of its environments.
      action_spec: likewise.
      make_runner: actor without variables -> what each worker makes its runner with; it travels to
        workers.
      make_evaluate_fn: agent -> what measures its policy.
      about: what policy.json says beside the model, environment and agent.
      begin: agent -> None: what the first policy is to know.
      describe: evaluation -> one line for people, or "".
      timeout_s: that a worker may take for a chunk.
    """

    time_step_spec: ts.TimeStep
    action_spec: Any
    make_runner: Callable[[NumpyActor], MakeRunner[Chunk, Experience]]
    make_evaluate_fn: Callable[[Any], EvaluateFn]
    about: Mapping[str, Any]
    begin: Callable[[Any], None] = lambda agent: None
    describe: Callable[[Mapping[str, Any]], str] = lambda evaluation: ""
    timeout_s: float = 300.0


def make_agent(run: TrainingRun, task: OnlineTask) -> Any:
    """The run's agent, as it is before it has learned anything.

    Raises:
      UserError: a setting is out of its range, or the agent does not fit the system's specs.
    """
    agent = find_agent(run.agent).make_agent(
        run.settings["agent"], task.time_step_spec, task.action_spec
    )
    task.begin(agent)
    return agent


def train(
    run: TrainingRun, task: OnlineTask, workdir: Workdir, collect: Collect, reporter: Reporter
) -> dict[str, Any]:
    """Trains, or goes on with the run that `workdir` holds.

    Args:
      run: what is trained, and how.
      task: the system.
      workdir: where the run is kept.
      collect: where experience is collected.
      reporter: told of the iterations.

    Returns:
      What result.json holds.
    """
    config = run.settings["loop"]
    agent = make_agent(run, task)
    about = {**task.about, "environment": run.system, "agent": run.agent}

    def learn(iteration: int, experience: Experience) -> tf_agent.LossInfo:
        loss_info = agent.train(experience.with_usual_length().trajectory)
        # The next experience is collected as it will be learned from.
        agent.set_progress((iteration + 1) / config.iterations)
        return loss_info

    def save(directory: pathlib.Path) -> None:
        described = {**about, "seed": config.seed, "run": dict(workdir.settings)}
        save_policy(directory, agent.policy, described)

    make_runner = task.make_runner(NumpyActor.from_policy(agent.collect_policy))
    with make_pool(collect, make_runner, Supervision(timeout_s=task.timeout_s)) as pool:
        return run_online(
            OnlineLoop(agent, learn, pool, config),
            config,
            workdir,
            task.make_evaluate_fn(agent),
            save,
            {name: about[name] for name in ("environment", "agent")},
            _teller(task, reporter, config.iterations),
        )


def _teller(task: OnlineTask, reporter: Reporter, iterations: int) -> OnIteration:
    """Tells how many iterations are done, what was left out, and what evaluations came to."""
    advance = reporter.task("iterations", iterations)
    told = 0

    def tell(record: Mapping[str, Any]) -> None:
        nonlocal told
        for message in record["failures"]:
            reporter.say(f"left out: {message}")
        line = task.describe(record["evaluation"]) if "evaluation" in record else ""
        if line:
            reporter.say(f"iteration {record['iteration']}: {line}")
        advance(record["iteration"] - told)
        told = record["iteration"]

    return tell
