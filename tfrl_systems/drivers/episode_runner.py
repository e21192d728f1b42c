"""Plays the episodes of a `Chunk`, in a worker or in this process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.trajectories import policy_step, trajectory
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.episodes import Experience, end_episodes, split_episodes

_LAST = int(ts.StepType.LAST)


class Actor(Protocol):
    """A policy as workers hold it, such as `policies.numpy_actor.NumpyActor`."""

    def load(self, data: bytes) -> int:
        """Takes all variables of the collect policy; returns their version."""

    def act(self, time_step: ts.TimeStep, generator: np.random.Generator) -> policy_step.PolicyStep:
        """Actions for a batch: arrays [B, ...], all chance from the generator."""


class EpisodeRunner:
    """Plays the episodes of a chunk (`jobs.Runner`).

    Chunk k is played in `environments[k % len(environments)]`: with environments that start their
    episodes differently, each sampler has its share of every iteration. The chunk decides all
    chance: the environment is seeded for it, and the actor draws from a generator of its own. So
    what an environment's contexts depend on, beside its seed, is the policy at most: a sampler that
    goes on where it was (`environments.contexts.sequential`) would tell workers apart.

    A batched environment plays its episodes side by side, with one call of the actor for each time
    step of all; those that have ended go on until the last one has, so that the batch stays what it
    was, and what they do then is dropped. Any other plays one episode after another.

    Args:
      environments: at least one. They have `seed(int)`, after which all is as in a new environment
        with that seed, and `get_info()`: `context` and costs of the episode that ended last, with
        arrays [B] where the environment is batched.
      actor: chooses the actions.
      num_episodes: of each chunk; the batch size of batched environments.

    Raises:
      UserError: there is no environment, or one has another batch size.
    """

    def __init__(
        self,
        environments: Sequence[py_environment.PyEnvironment],
        actor: Actor,
        num_episodes: int,
    ) -> None:
        if not environments:
            raise UserError("collection: expected an environment, found none; give at least one")
        sizes = {one.batch_size for one in environments if one.batched} - {num_episodes}
        if sizes:
            raise UserError(
                f"collection: expected environments with batches of {num_episodes}, as many as a "
                f"chunk has episodes, found {', '.join(map(str, sizes))}; make them of that size"
            )
        self._environments = list(environments)
        self._actor = actor
        self._num_episodes = num_episodes

    def load(self, data: bytes) -> None:
        """Has the actor take new variables."""
        self._actor.load(data)

    def run(self, job: Chunk) -> Experience:
        """Plays the chunk's episodes with the variables that were loaded last."""
        environment = self._environments[job.index % len(self._environments)]
        generator = np.random.default_rng(job.seed_sequence())
        # 32 bits: some generators of other people's environments take no more.
        _seed(environment, int(generator.integers(1 << 32)))
        if environment.batched:
            return _play_batch(environment, self._actor, generator)
        return _play_in_turn(environment, self._actor, generator, self._num_episodes)

    def close(self) -> None:
        """Closes the environments."""
        for environment in self._environments:
            environment.close()


def _seed(environment: py_environment.PyEnvironment, seed: int) -> None:
    try:
        environment.seed(seed)
    except NotImplementedError as error:
        raise UserError(
            f"{type(environment).__name__}: expected a method seed(int), which a chunk's chance "
            "comes from, found none; give it one"
        ) from error


class _Recorder:
    """Steps as they are taken, joined once at the end."""

    def __init__(self) -> None:
        self._steps: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, time_step: ts.TimeStep, acted: policy_step.PolicyStep, then: ts.TimeStep) -> None:
        """Records one step of a batch: where it began, what was done, and what came of it."""
        begun = (time_step.step_type, time_step.observation, acted.action, acted.info)
        self._steps.append((*begun, then.step_type, then.reward, then.discount))

    def trajectory(self, join_fn: Callable[..., np.ndarray]) -> trajectory.Trajectory:
        """All steps: what `join_fn` makes of the [B, ...] of each, leaf by leaf."""
        return trajectory.Trajectory(*_map(join_fn, *self._steps))


def _map(function: Callable[..., Any], *nests: Any) -> Any:
    """As `tree.map_structure`, and several times as fast for few leaves."""
    first = nests[0]
    if isinstance(first, np.ndarray | np.generic):  # most are, and it is the quickest to ask
        return function(*nests)
    if isinstance(first, list | tuple):
        parts = [_map(function, *column) for column in zip(*nests, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    if isinstance(first, Mapping):
        return {key: _map(function, *[nest[key] for nest in nests]) for key in first}
    return function(*nests)


def _side_by_side(*columns: np.ndarray) -> np.ndarray:
    """As np.stack(columns, axis=1), in a third of its time; in C order, as if it had been sent."""
    return np.array(columns).swapaxes(0, 1).copy()


def _one_after_another(*rows: np.ndarray) -> np.ndarray:
    return np.concatenate(rows)


def _as_batch(value: Any) -> np.ndarray:
    """A batch of one."""
    return np.asarray(value)[np.newaxis]


def _only_row(batch: np.ndarray) -> Any:
    """What is in a batch of one."""
    return batch[0]


def _play_batch(
    environment: py_environment.PyEnvironment, actor: Actor, generator: np.random.Generator
) -> Experience:
    """One episode in each row of a batched environment."""
    recorder = _Recorder()
    time_step = environment.reset()
    lengths = np.zeros(len(time_step.step_type), np.int64)
    info: dict[str, np.ndarray] = {}
    while True:
        acted = actor.act(time_step, generator)
        then = environment.step(acted.action)
        recorder.add(time_step, acted, then)
        time_step = then
        have_ended = then.step_type == _LAST
        if not info and have_ended.all():
            info = dict(environment.get_info())
            steps = recorder.trajectory(_side_by_side)
            break
        have_ended &= lengths == 0
        if have_ended.any():
            lengths[have_ended] = len(recorder)
            _note(info, environment.get_info(), have_ended)
            if lengths.all():
                steps = end_episodes(recorder.trajectory(_side_by_side), lengths)
                break
    contexts = np.asarray(info.pop("context", [""] * len(lengths)))
    return Experience(steps, contexts, {name: np.asarray(info[name]) for name in info})


def _note(info: dict[str, np.ndarray], now: Mapping[str, Any], have_ended: np.ndarray) -> None:
    """Takes the rows of the episodes that have ended now."""
    for name, values in now.items():
        array = np.asarray(values)
        rows = have_ended.reshape(-1, *[1] * (array.ndim - 1))
        info[name] = np.where(rows, array, info.get(name, array))


def _play_in_turn(
    environment: py_environment.PyEnvironment,
    actor: Actor,
    generator: np.random.Generator,
    num_episodes: int,
) -> Experience:
    """Episodes of an environment that is not batched, with a batch of 1 for the actor."""
    recorder = _Recorder()
    lengths: list[int] = []
    contexts, infos = [], []
    for _ in range(num_episodes):
        time_step = _map(_as_batch, environment.reset())
        # Not `is_last()`, which asks at some length whether it is TensorFlow's.
        while time_step.step_type != _LAST:
            acted = actor.act(time_step, generator)
            then = _map(_as_batch, environment.step(_map(_only_row, acted.action)))
            recorder.add(time_step, acted, then)
            time_step = then
        lengths.append(len(recorder) - sum(lengths))
        info = dict(environment.get_info())
        contexts.append(str(info.pop("context", "")))
        infos.append(info)
        if not lengths[-1]:
            raise ValueError(f"episode of {contexts[-1]!r}: expected steps, found none; drop it")
    steps = split_episodes(recorder.trajectory(_one_after_another), lengths)
    return Experience.of(steps, contexts, infos)
