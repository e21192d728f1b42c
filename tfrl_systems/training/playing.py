"""Online learning and evaluation that need nothing from a system but its environment.

A `system` is a `system.System`, whose defaults these functions are.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from environments.files import is_directory
from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.policies.numpy_actor import NumpyActor, load_network
from tfrl_systems.policies.policy_files import load_policy_json
from tfrl_systems.reporting import Reporter
from tfrl_systems.training.loop import EvaluateFn
from tfrl_systems.training.online import OnlineTask
from tfrl_systems.training.training_run import TrainingRun

NUM_EPISODES = 200
_NUM_EPISODES_IN_TRAINING = 20

ActFn = Callable[[ts.TimeStep], Any]
"""(time step without a batch axis) -> action; a first time step begins a new episode."""


def make_runner(run: TrainingRun, system: Any, actor: NumpyActor) -> EpisodeRunner:
    """Make a worker's runner; the actor comes without variables, which the pool broadcasts."""
    environment = system.make_environment(run.problem, run.settings)
    return EpisodeRunner([environment], actor, run.settings["loop"].episodes_per_chunk)


def online_task(system: Any, run: TrainingRun) -> OnlineTask:
    """Make a task that learns from whole episodes and evaluates policies by their mean return."""
    environment = system.make_environment(run.problem, run.settings)

    def make_evaluate_fn(agent: Any) -> EvaluateFn:
        actor = NumpyActor.from_policy(agent.collect_policy)

        def evaluate_fn(variables: bytes) -> Mapping[str, float]:
            actor.load(variables)
            environment.seed(run.seed)
            return play(environment, _greedy(actor.network), _NUM_EPISODES_IN_TRAINING)

        return evaluate_fn

    return OnlineTask(
        environment.time_step_spec(),
        environment.action_spec(),
        lambda actor: functools.partial(make_runner, run, system, actor),
        make_evaluate_fn,
        about={
            **system.describe(run),
            "use": [f"tfrl evaluate {system.name} --policy DIR", "tf.saved_model.load(DIR)"],
        },
        describe=lambda evaluation: f"mean return {evaluation['mean_return']:.4g}",
    )


def evaluate(
    system: Any, policies: Sequence[str], settings: Any, seed: int, reporter: Reporter
) -> dict[str, Any]:
    """Play the same episodes with each policy; see `System.evaluate`."""
    advance = reporter.task("evaluating", len(policies))
    evaluated = []
    for name in policies:
        began_s = time.monotonic()
        environment = system.make_environment(settings, {})
        environment.seed(seed)
        evaluation = play(environment, _load(system, name, environment, seed), NUM_EPISODES)
        evaluated.append({"policy": name, **evaluation, "seconds": time.monotonic() - began_s})
        advance(1)
    return {"episodes": NUM_EPISODES, "policies": evaluated}


def play(
    environment: py_environment.PyEnvironment, act_fn: ActFn, num_episodes: int
) -> dict[str, float]:
    """Play episodes of an environment that is not batched.

    Returns:
      Means over the episodes: "mean_return", and each number in the environment's `get_info()`.
    """
    returns: list[float] = []
    figures: dict[str, list[float]] = {}
    for _ in range(num_episodes):
        time_step, total = environment.reset(), 0.0
        while not time_step.is_last():
            time_step = environment.step(act_fn(time_step))
            total += float(time_step.reward)
        returns.append(total)
        for name, value in environment.get_info().items():
            if isinstance(value, float | int):
                figures.setdefault(name, []).append(float(value))
    means = {name: statistics.fmean(values) for name, values in figures.items()}
    return {"mean_return": statistics.fmean(returns), **means}


def _greedy(network: Any) -> ActFn:
    episode: Any = None

    def act(time_step: ts.TimeStep) -> Any:
        nonlocal episode
        observation = time_step.observation
        if isinstance(observation, Mapping):
            observation = {name: value[np.newaxis] for name, value in observation.items()}
        else:
            observation = observation[np.newaxis]
        if time_step.is_first():
            episode = network.new_episode()
        action = episode.mode(observation)
        episode.remember(action)
        return action[0]

    return act


def _load(system: Any, name: str, environment: py_environment.PyEnvironment, seed: int) -> ActFn:
    if name == "random":
        generator = np.random.RandomState(seed)
        spec = environment.action_spec()
        return lambda time_step: array_spec.sample_spec_nest(spec, generator)
    if not is_directory(name):
        raise UserError(
            f"policy: expected a policy directory or one of {', '.join(system.policies)}; found "
            f"{name!r}"
        )
    described = load_policy_json(name)
    if described.get("environment") != system.name:
        raise UserError(
            f"{name}: expected a policy of {system.name}, found one of "
            f"{described.get('environment')}; name another"
        )
    return _greedy(load_network(name))
