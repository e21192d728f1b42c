"""The runner that plays the episodes of a `Chunk`, in a worker or in this process.

It is the driver of Mayer's thesis (Algorithm 5.2), whose rows it returns as a trajectory. Episodes
may be played side by side, and end when their environment says so.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.trajectories import policy_step, trajectory
from tf_agents.trajectories import time_step as ts

from environments.credit import Credit
from environments.errors import UserError
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.episodes import Experience, end_episodes, split_episodes

_LAST = int(ts.StepType.LAST)


class Actor(Protocol):
    """A policy as workers hold it, such as `policies.numpy_actor.NumpyActor`."""

    def load(self, data: bytes) -> int:
        """Load all variables of the collect policy; return their version."""

    def act(self, time_step: ts.TimeStep, generator: np.random.Generator) -> policy_step.PolicyStep:
        """Return actions for a batch, arrays [B, ...]; all randomness is the generator's."""


class EpisodeRunner:
    """Plays the episodes of a chunk (`jobs.Runner`).

    Chunk k of the run is played in `environments[k % len(environments)]`. If the environments draw
    their contexts by different samplers, each sampler thus gets the same share of the run, and of
    every iteration whose chunks it divides. Mayer's thesis gives each driver its own sampler
    (5.3.4); here chunks have them, because a driver plays whatever chunk comes next.

    The chunk decides everything random: it seeds the environment and the generator that the actor
    draws from. An environment's contexts may therefore depend on nothing but its seed and the
    policy. With a sampler that continues where it stopped (`environments.contexts.sequential`), the
    result would depend on the worker.

    A batched environment plays its episodes side by side, and the actor is called once for each
    time step of the batch. Episodes that have ended go on until the last one has ended, so that the
    batch keeps its size; these further steps are dropped. An environment that is not batched plays
    one episode after another.

    Args:
      environments: at least one. Each has `seed(int)`, after which it behaves like a new
        environment with that seed, and `get_info()`, which returns `context` and costs of the
        episode that ended last, as arrays [B] if the environment is batched. It may have
        `evaluations`, how often its function was evaluated so far.
      actor: chooses the actions.
      num_episodes: number of episodes of each chunk, and the batch size of batched environments.

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
        sizes = {environment.batch_size for environment in environments if environment.batched} - {
            num_episodes
        }
        if sizes:
            raise UserError(
                f"collection: expected environments with batches of {num_episodes}, as many as a "
                f"chunk has episodes, found {', '.join(map(str, sizes))}; make them of that size"
            )
        self._environments = list(environments)
        self._actor = actor
        self._num_episodes = num_episodes

    def load(self, data: bytes) -> None:
        """Load new variables into the actor."""
        self._actor.load(data)

    def run(self, job: Chunk, attempt: int = 0, credits: list[Credit] | None = None) -> Experience:
        """Play the chunk's episodes with the variables that were loaded last.

        Args:
          job: the chunk.
          attempt: another number gives the same contexts, and other draws of actions.
          credits: an empty list that receives what the actions of each episode answer for: what the
            environment's `get_credit()` returns, if it has one, else the episode's return.
        """
        environment = self._environments[job.number % len(self._environments)]
        generator = np.random.default_rng(job.seed_sequence())
        # The seed has 32 bits, because the generators of some environments take no more.
        _seed(environment, int(generator.integers(1 << 32)))
        if attempt:
            generator = np.random.default_rng([attempt, job.seed, job.iteration, job.index])
        before = getattr(environment, "evaluations", 0)
        if environment.batched:
            played = _play_batch(environment, self._actor, generator)
        else:
            played = _play_in_turn(environment, self._actor, generator, self._num_episodes, credits)
        if credits is not None and not credits:
            credits += _credits_of_returns(played)
        evaluations = getattr(environment, "evaluations", 0) - before
        return dataclasses.replace(played, evaluations=evaluations)

    def close(self) -> None:
        """Close the environments."""
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
    """Records steps one by one, and joins them once at the end."""

    def __init__(self) -> None:
        self._steps: list[tuple[Any, ...]] = []

    def __len__(self) -> int:
        return len(self._steps)

    def add(self, time_step: ts.TimeStep, acted: policy_step.PolicyStep, then: ts.TimeStep) -> None:
        """Record one step of a batch: its time step, the action, and the next time step."""
        begun = (time_step.step_type, time_step.observation, acted.action, acted.info)
        self._steps.append((*begun, then.step_type, then.reward, then.discount))

    def trajectory(self, join_fn: Callable[..., np.ndarray]) -> trajectory.Trajectory:
        """Return all steps; `join_fn` joins the arrays [B, ...] of all steps, leaf by leaf."""
        return trajectory.Trajectory(*_map(join_fn, *self._steps))


def _map(function: Callable[..., Any], *nests: Any) -> Any:
    """Do the same as `tree.map_structure`, several times as fast for few leaves."""
    first = nests[0]
    if isinstance(first, np.ndarray | np.generic):  # first: most are, and the check is fast
        return function(*nests)
    if isinstance(first, list | tuple):
        parts = [_map(function, *column) for column in zip(*nests, strict=True)]
        return type(first)(*parts) if hasattr(first, "_fields") else type(first)(parts)
    if isinstance(first, Mapping):
        return {key: _map(function, *[nest[key] for nest in nests]) for key in first}
    return function(*nests)


def _side_by_side(*columns: np.ndarray) -> np.ndarray:
    """Do the same as np.stack(columns, axis=1), faster; in C order, as if it had been pickled."""
    return np.array(columns).swapaxes(0, 1).copy()


def _credits_of_returns(experience: Experience) -> list[Credit]:
    """Return the credit of episodes [B, T] whose actions answer for the whole return."""
    returns = experience.trajectory.reward.sum(axis=1, dtype=np.float64)
    num_steps = np.count_nonzero(experience.trajectory.step_type != _LAST, axis=1)
    return [Credit.of_return(*pair) for pair in zip(returns, num_steps, strict=True)]


def _as_batch(value: Any) -> np.ndarray:
    """Return a batch of one."""
    return np.asarray(value)[np.newaxis]


def _play_batch(
    environment: py_environment.PyEnvironment, actor: Actor, generator: np.random.Generator
) -> Experience:
    """Play one episode in each row of a batched environment."""
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
    """Copy into `info` the rows of the episodes that have just ended."""
    for name, values in now.items():
        array = np.asarray(values)
        rows = have_ended.reshape(-1, *[1] * (array.ndim - 1))
        info[name] = np.where(rows, array, info.get(name, array))


def _play_in_turn(
    environment: py_environment.PyEnvironment,
    actor: Actor,
    generator: np.random.Generator,
    num_episodes: int,
    credits: list[Credit] | None,
) -> Experience:
    """Play episodes of an environment that is not batched; the actor gets batches of 1."""
    recorder = _Recorder()
    lengths: list[int] = []
    contexts, infos = [], []
    for _ in range(num_episodes):
        time_step = _map(_as_batch, environment.reset())
        # `is_last()` would be slower, because it first checks for tensors.
        while time_step.step_type != _LAST:
            acted = actor.act(time_step, generator)
            then = _map(_as_batch, environment.step(_map(lambda batch: batch[0], acted.action)))
            recorder.add(time_step, acted, then)
            time_step = then
        if credits is not None and hasattr(environment, "get_credit"):
            credits.append(environment.get_credit())
        lengths.append(len(recorder) - sum(lengths))
        info = dict(environment.get_info())
        contexts.append(str(info.pop("context", "")))
        infos.append(info)
        if not lengths[-1]:
            raise ValueError(f"episode of {contexts[-1]!r}: expected steps, found none; drop it")
    steps = split_episodes(recorder.trajectory(lambda *rows: np.concatenate(rows)), lengths)
    return Experience.of(steps, contexts, infos)
