"""Problems that a policy gradient agent solves in seconds, and experience made by hand."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import tensorflow as tf
import tree
from tf_agents.agents import tf_agent
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from tfrl_systems import episodes
from tfrl_systems.agents import ppo, reinforce
from tfrl_systems.policies import variables
from tfrl_systems.policies.numpy_actor import NumpyActor

AGENTS = {"ppo": ppo, "reinforce": reinforce}
# Without a hidden layer, and after `set_value(agent, 1)`, V(s) = s.
PLAIN = {"hidden_sizes": (), "gamma": 0.5}

NAMES = ("bit", "cost", "users")


def float_specs(num_inputs: int = 1, num_actions: int = 1, bound: float = 1.0) -> tuple[Any, Any]:
    observation = tf.TensorSpec([num_inputs], tf.float32, "observation")
    action = tensor_spec.BoundedTensorSpec([num_actions], tf.float32, -bound, bound, "action")
    return ts.time_step_spec(observation), action


def integer_specs(num_actions: int = 2) -> tuple[Any, Any]:
    observation = {name: tf.TensorSpec([], tf.int64, name) for name in NAMES}
    action = tensor_spec.BoundedTensorSpec([], tf.int64, 0, num_actions - 1, "action")
    return ts.time_step_spec(observation), action


SPECS = {"float": float_specs, "integer": integer_specs}


def make_agent(module: ModuleType, kind: str = "float", **settings: Any) -> tf_agent.TFAgent:
    return module.make_agent(module.Config(**settings), *SPECS[kind]())


def observations(kind: str, num_rows: int, generator: np.random.Generator) -> Any:
    """Numbers from -1 to 1, [N, 1], or a bit beside heavy-tailed counts."""
    if kind == "float":
        return generator.uniform(-1, 1, (num_rows, 1)).astype(np.float32)
    noise = np.rint(generator.standard_cauchy((2, num_rows)) * 50).astype(np.int64)
    return {"bit": generator.integers(0, 2, num_rows), "cost": noise[0], "users": noise[1]}


def rewards(observation: Any, action: np.ndarray) -> np.ndarray:
    """The greater, the nearer the action is to the observation."""
    if isinstance(observation, dict):
        return (action == observation["bit"]).astype(np.float32)
    return -np.square(np.clip(action, -1, 1) - observation).sum(axis=1)


def bandit_episodes(
    kind: str,
    actor: NumpyActor,
    num_rows: int,
    generator: np.random.Generator,
    observation: Any = None,
) -> trajectory.Trajectory:
    """Episodes of one step, [N, 1], with these observations, or with others."""
    if observation is None:
        observation = observations(kind, num_rows, generator)
    step = actor.act(ts.restart(observation, num_rows), generator)
    full = np.ones(num_rows, np.int32)
    steps = trajectory.Trajectory(
        step_type=full * ts.StepType.FIRST,
        observation=observation,
        action=step.action,
        policy_info=step.info,
        next_step_type=full * ts.StepType.LAST,
        reward=rewards(observation, step.action),
        discount=np.zeros(num_rows, np.float32),
    )
    return tree.map_structure(lambda array: array[:, np.newaxis], steps)


def groups_of_two(
    actor: NumpyActor, num_rows: int, generator: np.random.Generator
) -> trajectory.Trajectory:
    """Episodes of one step, two with each of N observations, [2 N, 1], with their advantages."""
    seen = observations("integer", num_rows, generator)
    first, second = (bandit_episodes("integer", actor, num_rows, generator, seen) for _ in range(2))
    difference = first.reward - second.reward
    worth = 1000 * generator.standard_normal((num_rows, 1)).astype(np.float32)
    rows = [
        steps.replace(
            reward=steps.reward + worth,
            policy_info={**(steps.policy_info or {}), "advantage": sign},
        )
        for steps, sign in ((first, difference), (second, -difference))
    ]
    return tree.map_structure(lambda *arrays: np.concatenate(arrays), *rows)


def learn(
    agent: tf_agent.TFAgent,
    kind: str,
    iterations: int,
    num_rows: int = 64,
    train_fn: Callable[..., tf_agent.LossInfo] = tf_agent.TFAgent.train,
) -> NumpyActor:
    """Trains an agent to repeat what it observes; the learned policy."""
    generator = np.random.default_rng(0)
    packer = variables.Packer(agent.collect_policy.variables())
    actor = NumpyActor.from_policy(agent.collect_policy)
    for iteration in range(iterations):
        actor.load(packer.to_bytes(iteration))
        agent.set_progress(iteration / iterations)
        train_fn(agent, bandit_episodes(kind, actor, num_rows, generator))
    actor.load(packer.to_bytes(iterations))
    return actor


def episode(
    observation: list[float], action: list[float], reward: list[float], has_info: bool
) -> trajectory.Trajectory:
    """One whole episode, [T]; its actions were drawn from the standard normal distribution."""
    length = len(reward)
    step_types = np.array([0] + [1] * (length - 1) + [2], np.int32)

    def column(values: list[float]) -> np.ndarray:
        return np.array(values, np.float32)[:, np.newaxis]

    zeros = np.zeros((length, 1), np.float32)
    info = {"dist_params": {"loc": zeros, "scale_diag": zeros + 1}} if has_info else ()
    return trajectory.Trajectory(
        step_type=step_types[:-1],
        observation=column(observation),
        action=column(action),
        policy_info=info,
        next_step_type=step_types[1:],
        reward=np.array(reward, np.float32),
        discount=(step_types[1:] != ts.StepType.LAST).astype(np.float32),
    )


def two_episodes(has_info: bool, num_paddings: int = 0) -> trajectory.Trajectory:
    """An episode of three steps and one of one, [2, 3 + num_paddings]."""
    long = episode([1, 2, 4], [0.5, -0.5, 0], [1, 0, 3], has_info)
    short = episode([2], [1], [5], has_info)
    together = tree.map_structure(lambda *arrays: np.concatenate(arrays), long, short)
    stacked = episodes.split_episodes(together, [3, 1])
    padding = tree.map_structure(lambda array: np.repeat(array[1:, -1:], 2, axis=0), stacked)
    assert (padding.step_type == ts.StepType.LAST).all()
    return tree.map_structure(
        lambda array, last: np.concatenate([array, *[last] * num_paddings], axis=1),
        stacked,
        padding,
    )


def set_value(agent: tf_agent.TFAgent, *slopes: float) -> None:
    """V(s) = slope · s, and so for a second output."""
    names = ("value/output/kernel:0", "value/output/bias:0")
    values = {variable.name: variable for variable in agent.trainable_variables}
    kernel, bias = (values[name] for name in names)
    kernel.assign([slopes])
    bias.assign([0.0] * len(slopes))


def train_eagerly(agent: tf_agent.TFAgent, experience: trajectory.Trajectory) -> tf_agent.LossInfo:
    """Trains once, without the time that tracing takes."""
    tf.config.run_functions_eagerly(True)
    try:
        return agent.train(tree.map_structure(tf.constant, experience))
    finally:
        tf.config.run_functions_eagerly(False)


def updates_of(agent: tf_agent.TFAgent, monkeypatch: Any) -> list[tuple]:
    """What each update to come learns from: the arguments of `get_loss`."""
    updates, get_loss = [], agent.get_loss
    monkeypatch.setattr(
        agent, "get_loss", lambda *args, **more: updates.append(args) or get_loss(*args, **more)
    )
    return updates


def state(agent: tf_agent.TFAgent) -> list[tf.Variable]:
    """All that learning changes: networks, normalisers, the optimizer's state, and the counter."""
    return [*agent.collect_policy.trainable_variables, *agent.variables, *agent.optimizer.variables]


def snapshot(agent: tf_agent.TFAgent) -> list[np.ndarray]:
    """The values of `state`."""
    return [variable.numpy() for variable in state(agent)]


def assert_same(mine: list[np.ndarray], theirs: list[np.ndarray]) -> None:
    """To the last bit."""
    for left, right in zip(mine, theirs, strict=True):
        np.testing.assert_array_equal(left, right)
