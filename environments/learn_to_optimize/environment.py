"""Learning to optimise as a decision process, eq. 3.1 and 3.2 of Mayer's thesis (`functions`).

The process is the thesis's, with these names and choices: k counts the free coordinates, there the
tuned ones; the box is [-1, 1]^n, which functions are normalised to (4.2.1); a reward is
f(s) - f(s'), that of both equations, where the text of 3.1 has -f(s'). Other rewards are settings.

An episode is also the thesis's Algorithm 3.1, the structure of optimizers: with x_{i-1} in the
state, the action x_{i-1} + Δx is their step, and the length is their stopping condition. (For π
the thesis prints arg max and +γ ∇f, though f is minimised, and with momentum one gradient for
all j.)
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from environments import contexts
from environments.errors import UserError
from environments.learn_to_optimize.functions import Objective, make_objective
from environments.learn_to_optimize.levels import Levels, check_levels, measure_levels
from environments.learn_to_optimize.samplers import EntropyFn, Sampler, make_samplers
from environments.learn_to_optimize.settings import Settings
from environments.views import Views

_DEFAULTS = Settings()

# The limits of an action. NumPy clips to arrays in half the time that it needs for numbers.
_LEAST, _GREATEST = np.array(-1, np.float32), np.array(1, np.float32)


class LearnToOptimizeEnvironment(py_environment.PyEnvironment):
    """One episode starts at a point s = (x, c) of [-1, 1]^n; one step chooses another x.

    Context: the start point, with its free parameters c.

    Observation: float32 [n], the point s: x first, c last.

    Action: float32 [n - k] in [-1, 1], the next x. Values outside are clipped. The next state is
      (x, c): c stays for the whole episode, and the old x is forgotten.

    Reward: how much better the new point s' is than the old one. The setting `reward` says how to
      compare them:
      "difference"  f(s) - f(s'), the thesis's, in units of f.
      "log1p"       L(f(s)) - L(f(s')), L(v) = sign(v) log(1 + |v|), the scale of the MSLE. For
                    functions that span orders of magnitude, such as Rosenbrock.
      "scaled"      (f(s) - f(s')) / d, where d is the standard deviation of f over 256 fixed points
                    of the box. One learning rate then suits functions of any size.

      With `reference` "mean", the mean of f (or of L(f)) over the 256 points replaces f(s) (or
      L(f(s))), which a value network could only see as noise. The thesis uses "old".

    End: after `episode_length` steps. The discount is `discount` until then and 0 at the end.

    Take gamma = 0 in the agent. The next step replaces x anyway, so no step can prepare a later
    one; and as rewards telescope, with a gamma above 0 only the share 1 - gamma of an action's
    value would count. The length then only decides how experience is collected: after the first
    step, an episode keeps its c and goes on from where the policy went. A step costs one evaluation
    of f, and an episode one more, in the same call as its first step.

    Batched, with `batch_size` B, all leaves of time steps and actions have a leading axis [B]. The
    B episodes run side by side and end together. They equal B episodes played one after another, up
    to the rounding of matrix products in f.

    If the user's own function fails, `step` raises `UserError`, which names the point. The next
    call of `step` may try another action, and `reset` starts the next episode.

    Args:
      function: a name for `functions.make_objective`, or an objective that it returned.
      dimensions: n, if `function` is a name.
      free: k, the number of free parameters, if `function` is a name.
      settings: length, rewards and samplers of the episodes.
      sampler: draws the start points: a name for `samplers.make_samplers`, or a sampler. Not
        "heterogeneous", which stands for several samplers, each with its own environment.
      batch_size: B, the number of episodes side by side; None for an environment without batches.
      seed: seed of the sampler's random generator.
      entropy_fn: the policy's entropy, needed if `sampler` is "uncertainty".
      bounds: domain of the user's own function, for `functions.make_objective`.
      levels: the function's, if they were measured before; None to measure them now.

    Raises:
      UserError: a setting, the function's name or the sampler's name is not valid.
    """

    def __init__(
        self,
        function: str | Objective = "ackley",
        dimensions: int = 2,
        free: int = 1,
        settings: Settings = _DEFAULTS,
        *,
        sampler: str | Sampler = "random",
        batch_size: int | None = None,
        seed: int = 0,
        entropy_fn: EntropyFn | None = None,
        bounds: Any = None,
        levels: Levels | None = None,
    ) -> None:
        super().__init__(handle_auto_reset=True)
        _check(settings, batch_size)
        if isinstance(function, str):
            function = make_objective(function, dimensions, free, bounds)
        self._objective = function
        self._batch_size = batch_size
        self._episode_length = settings.episode_length
        self._sampler = _make_sampler(
            sampler, function.dimensions, settings, batch_size, entropy_fn
        )
        self._level = measure_levels(function, settings) if levels is None else levels
        self._generator = np.random.default_rng(seed)
        rows = 1 if batch_size is None else batch_size
        self._num_rows = rows
        self._action_shape = (rows, function.num_tuned)
        # These are the same for all rows and episodes, so they are made once and cannot be written.
        self._first, self._middle, self._last = (
            (_constant(batch_size, kind, np.int32), _constant(batch_size, discount, np.float32))
            for kind, discount in (
                (ts.StepType.FIRST, 1),
                (ts.StepType.MID, settings.discount),
                (ts.StepType.LAST, 0),
            )
        )
        self._no_reward = _constant(batch_size, 0, np.float32)
        self._num_steps = settings.episode_length
        self._start = self._state = np.empty((rows, function.dimensions), np.float32)
        self._start_values = self._values = self._levels = np.empty(rows)
        self._ended: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    @property
    def batched(self) -> bool:
        """Return whether the environment has a batch size."""
        return self._batch_size is not None

    @property
    def batch_size(self) -> int | None:
        """Return the number of episodes that run side by side, or None."""
        return self._batch_size

    @property
    def objective(self) -> Objective:
        """Return the function that is minimised."""
        return self._objective

    @property
    def evaluations(self) -> int:
        """Return how often the function was evaluated in this process."""
        return self._objective.evaluations.count

    def observation_spec(self) -> array_spec.BoundedArraySpec:
        """Return the spec of the point (x, c)."""
        return array_spec.BoundedArraySpec(
            (self._objective.dimensions,), np.float32, -1.0, 1.0, "s"
        )

    def action_spec(self) -> array_spec.BoundedArraySpec:
        """Return the spec of the next x."""
        return array_spec.BoundedArraySpec((self._objective.num_tuned,), np.float32, -1.0, 1.0, "x")

    def get_info(self) -> dict[str, Any]:
        """Return the results of the episodes that ended last.

        Returns:
          `cost`, f at the last point, and `start_cost`, f at the first one, in units of f. Without
          batches both are floats, and `context` is the start point as a string. With batches both
          are float64 [B], and `context` is float64 [B, n]. Empty until an episode has ended.
        """
        if self._ended is None:
            return {}
        start, start_values, values = self._ended
        if self.batched:
            return {
                "context": start.astype(np.float64),
                "cost": values.copy(),
                "start_cost": start_values.copy(),
            }
        return {
            "context": " ".join(str(coordinate) for coordinate in start[0]),
            "cost": float(values[0]),
            "start_cost": float(start_values[0]),
        }

    def seed(self, seed: int) -> None:
        """Start over, like a new environment with this seed.

        `get_info` still describes the episodes that ended last.
        """
        self._generator = np.random.default_rng(seed)
        self._current_time_step = None

    def reset_at(self, context: Sequence[float] | str) -> ts.TimeStep:
        """Start an episode at a point (x, c), or one as `get_info` writes it; not for batches.

        Raises:
          UserError: it is no point of the box.
        """
        assert not self.batched, "reset_at starts one episode, not a batch"
        self._current_time_step = None
        self._current_time_step = self._begin(_read_point(context, self._state.shape[1]))
        return self._current_time_step

    def fork(self) -> LearnToOptimizeEnvironment:
        """Return a copy of the environment in the middle of the same episode.

        From now on each goes its own way; both draw the same start points.
        """
        twin = copy.copy(self)
        twin._generator = contexts.copy_generator(self._generator)
        return twin

    def describe(self) -> str:
        """Return in words where the last step led."""
        if self._current_time_step is None:
            return "no episode has begun"
        num_tuned = self._action_shape[1]
        lines = [
            f"x = {_numbers(point[:num_tuned])} at c = {_numbers(point[num_tuned:])}"
            for point in self._state
        ]
        if self._num_steps:
            lines = [
                f"{line}: f = {value:.6g}" for line, value in zip(lines, self._values, strict=True)
            ]
        return "\n".join(lines)

    def views(self) -> Views:
        """Return what else can be seen of the episode.

        Returns:
          By name: context, the start point as `get_info` writes it and the digest of one's own
          function; point, float64 [n] or [B, n]; value, f there in units of f, which costs an
          evaluation.
        """
        start = " ".join(str(number) for number in self._start[0])
        return Views(
            {
                "context": lambda: {"name": start, "digest": self._objective.source_sha256 or ""},
                "point": lambda: self._unbatch(self._state.astype(np.float64)),
                "value": lambda: self._unbatch(self._objective(self._state)),
            }
        )

    def should_reset(self, current_time_step: ts.TimeStep) -> bool:
        """Return whether the episodes have ended; all episodes of a batch end together."""
        return self._num_steps >= self._episode_length

    def _reset(self) -> ts.TimeStep:
        self._current_time_step = None
        points = self._sampler(self._generator, self._num_rows)
        expected = self._state.shape
        if points.shape != expected:
            raise ValueError(
                f"sampler: expected points {expected}, found {points.shape}; correct the sampler"
            )
        return self._begin(points.astype(np.float32))

    def _begin(self, state: np.ndarray) -> ts.TimeStep:
        self._start = self._state = state
        self._num_steps = 0
        step_type, discount = self._first
        return ts.TimeStep(step_type, self._no_reward, discount, self._unbatch(state))

    def _step(self, action: np.ndarray) -> ts.TimeStep:
        chosen = np.asarray(action, np.float32)
        if self._batch_size is None:
            chosen = chosen[np.newaxis]
        if chosen.shape != self._action_shape:
            raise ValueError(
                f"action: expected shape {self._action_shape} with the batch first, found "
                f"{chosen.shape}; give one number for each tuned coordinate"
            )
        state = self._state.copy()
        tuned = state[:, : self._action_shape[1]]
        np.minimum(chosen, _GREATEST, out=tuned)
        np.maximum(tuned, _LEAST, out=tuned)
        values = self._evaluate(state)
        levels = self._level(values)
        before = self._levels if self._level.mean is None else self._level.mean
        reward = (before - levels).astype(np.float32)
        self._state, self._values, self._levels = state, values, levels
        self._num_steps += 1
        step_type, discount = self._middle
        if self._num_steps >= self._episode_length:
            step_type, discount = self._last
            self._ended = (self._start, self._start_values, values)
        return ts.TimeStep(step_type, self._unbatch(reward), discount, self._unbatch(state))

    def _evaluate(self, state: np.ndarray) -> np.ndarray:
        """Return f [B] at the next points; the first step evaluates the start points, too."""
        if self._num_steps:
            return self._objective(state)
        both = self._objective(np.concatenate((self._state, state)))
        self._start_values, values = both[: self._num_rows], both[self._num_rows :]
        self._levels = self._level(self._start_values)
        return values

    def _unbatch(self, rows: np.ndarray) -> Any:
        return rows[0] if self._batch_size is None else rows


def _read_point(context: Sequence[float] | str, dimensions: int) -> np.ndarray:
    """Return a start point, float32 [1, n]."""
    try:
        numbers = context.split() if isinstance(context, str) else context
        point = np.array([float(number) for number in numbers], np.float32)
    except (TypeError, ValueError):
        point = np.empty(0, np.float32)
    if point.shape != (dimensions,) or not np.all(np.abs(point) <= 1):
        raise UserError(
            f"context: expected {dimensions} numbers from -1 to 1, found {context!r}; give x and c"
        )
    return point[np.newaxis]


def _numbers(values: np.ndarray) -> str:
    return "(" + ", ".join(f"{value:.4g}" for value in values) + ")"


def _check(settings: Settings, batch_size: int | None) -> None:
    if batch_size is not None and batch_size < 1:
        raise UserError(f"batch_size: expected 1 or more, or None, found {batch_size}; correct it")
    check_levels(settings)
    length, discount = settings.episode_length, settings.discount
    if length < 1:
        raise UserError(f"episode_length: expected 1 step or more, found {length}; correct it")
    if not 0 <= discount <= 1:
        raise UserError(f"discount: expected 0 to 1, found {discount}; correct it")


def _make_sampler(
    sampler: str | Sampler,
    dimensions: int,
    settings: Settings,
    batch_size: int | None,
    entropy_fn: EntropyFn | None,
) -> Sampler:
    if not isinstance(sampler, str):
        return sampler
    if sampler == "heterogeneous":
        raise UserError(
            "sampler: expected one sampler, found heterogeneous, which is several; make an "
            "environment for each of samplers.make_samplers('heterogeneous', ...)"
        )
    num_strata = settings.num_strata if batch_size is None else batch_size
    (drawing,) = make_samplers(
        sampler,
        dimensions,
        num_strata=num_strata,
        num_candidates=settings.num_candidates,
        entropy_fn=entropy_fn,
    )
    return drawing


def _constant(batch_size: int | None, value: Any, dtype: type) -> np.ndarray:
    array: np.ndarray = np.full(() if batch_size is None else (batch_size,), value, dtype)
    array.setflags(write=False)
    return array
