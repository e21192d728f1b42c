"""The benchmarks of acting, learning and dreaming on one model."""

from __future__ import annotations

import dataclasses
import functools
import time
import types
from collections.abc import Mapping
from typing import Any

import numpy as np

from tfrl_systems.cpu_time import timed_ms
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.episodes import Experience
from tfrl_systems.policies import variables
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.systems.tensor_graphs import learning
from tfrl_systems.systems.tensor_graphs.problem import Problem
from tfrl_systems.training import online
from tfrl_systems.training.system import System

NUM_GRAPHS = 32
NUM_DREAMS, DREAM_STEPS = 256, 20
# Updates that are timed; the first, which traces its function, is not.
_NUM_UPDATES = 3


def measure_learning(
    system: System,
    problem: Problem,
    model: str,
    seed: int,
    settings: Mapping[str, Any] = types.MappingProxyType({}),
) -> tuple[list[float], list[float], list[float]]:
    """Time the decisions of an untrained policy on a model, and PPO's updates from its graphs.

    Returns:
      CPU time in ms: of the policy's decision on each graph of one episode, of its decision on each
      when it has met all of them, and of each update from all of them, with the settings of `tfrl
      train` where `settings` has no others.
    """
    agent, actor, experience = _collected(system, "ppo", problem, model, seed, settings)
    seen = [
        {name: array[:, step] for name, array in experience.trajectory.observation.items()}
        for step in range(experience.num_steps)
    ]
    # The same actor has played the episode, and a local one remembers its graphs.
    actor.network.begin()
    policy_ms, again_ms = (
        [timed_ms(functools.partial(actor.network.parameters, graph))[0] for graph in seen]
        for _ in range(2)
    )
    update = functools.partial(agent.train, experience.with_usual_length().trajectory)
    update()
    return policy_ms, again_ms, [timed_ms(update)[0] for _ in range(_NUM_UPDATES)]


def measure_dreaming(system: System, problem: Problem, model: str, seed: int) -> float:
    """Return a world model's steps in a second of wall time, the best of three.

    `NUM_DREAMS` dreams of a model go side by side, and an untrained controller acts in them.
    """
    agent, _, experience = _collected(system, "world_model", problem, model, seed)
    agent.replay.add(experience.trajectory)
    starts, generator = agent.sleeper.starts(agent.replay), np.random.default_rng(seed)
    dream = functools.partial(agent.sleeper.dream, starts, NUM_DREAMS, DREAM_STEPS, generator)
    dream()  # traces its function
    spent_s = []
    for _ in range(_NUM_UPDATES):
        began_s = time.perf_counter()
        dream()
        spent_s.append(time.perf_counter() - began_s)
    return NUM_DREAMS * DREAM_STEPS / min(spent_s)


def _collected(
    system: System,
    name: str,
    problem: Problem,
    model: str,
    seed: int,
    settings: Mapping[str, Any] = types.MappingProxyType({}),
) -> tuple[Any, NumpyActor, Experience]:
    """Return an untrained agent, its actor, and an episode of at most `NUM_GRAPHS` steps."""
    # A request for benchmarks has fields of its own, which no plan takes.
    fields = {field.name: getattr(problem, field.name) for field in dataclasses.fields(Problem)}
    run = learning.with_room(
        system.plan(
            name,
            seed,
            {"max_steps": NUM_GRAPHS, "episodes_per_chunk": 1, **settings},
            {**fields, "models": (model,)},
        )
    )
    task = learning.online_task(run)
    agent = online.make_agent(run, task)
    actor = NumpyActor.from_policy(agent.collect_policy)
    runner = task.make_runner(actor)()
    data = variables.to_bytes(agent.collect_policy.variables(), 0)
    runner.load(data)
    actor.load(data)
    return agent, actor, runner.run(Chunk(0, 0))
