"""Learning to optimise as a TF-Agents environment (thesis, eq. 3.2)."""

from __future__ import annotations

from typing import Any

import numpy as np
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from environments.errors import UserError
from environments.learn_to_optimize.functions import Objective, make_objective, signed_log1p
from environments.learn_to_optimize.samplers import EntropyFn, Sampler, make_samplers

REWARDS = ("difference", "log1p", "scaled")
REFERENCES = ("old", "mean")

# Of an action. Arrays, because NumPy takes half as long for them as for numbers.
_LEAST, _GREATEST = np.array(-1, np.float32), np.array(1, np.float32)
# Points at which a function's mean and spread are measured.
_NUM_FIXED_POINTS = 256


class LearnToOptimizeEnvironment(py_environment.PyEnvironment):
    """One episode starts at a point s = (x, c) of [-1, 1]^n; one step chooses another x.

    Context: the point that the episode starts from, its free parameters c among it.

    Observation: float32 [n], the point s: x first, c last.

    Action: float32 [n - k] in [-1, 1], the next x. What lies outside is clipped. The next state is
      (x, c): c stays for the whole episode, and the old x is forgotten.

    Reward: how much better the new point s' is than the old one, by `reward`:
      "difference"  f(s) - f(s'), the thesis's, in units of f.
      "log1p"       L(f(s)) - L(f(s')), L(v) = sign(v) log(1 + |v|). For functions of several orders
                    of magnitude, such as Rosenbrock, whose large values would drown the small ones;
                    it is the scale of the MSLE.
      "scaled"      (f(s) - f(s')) / d, with d the standard deviation of f over 256 fixed points of
                    the box: one learning rate then suits functions of any size.

      With `reference` "mean", the mean of f (or of L(f)) over the 256 points stands for that of the
      old point. No action can change f(s), so with gamma = 0 both teach the same; but f(s) is noise
      to a learner whose value network does not know all waves of f, and more of it than what an
      action is worth. The thesis's is "old".

    End: after `episode_length` steps. The discount is `discount` until then and 0 at the end.

    What episode length and discount do, where rewards compare with the old point. Those of an
    episode telescope: without discounting they add up to f(first s) - f(last s), which only the
    last action decides. With gamma the agent's discount times this one, an action that moves to s'
    is paid f(s) - f(s') now and gamma f(s') with the next step: of its own value only the part
    1 - gamma counts. At gamma 0.99 all actions but the last learn from 1% of their signal, and the
    longer the episode, the more of them there are. Nothing is gained for it, since the next state's
    x is forgotten anyway: no step can prepare a later one. So take gamma = 0 in the agent, where
    every step of every episode tells the whole value of its action, or episodes of 1 step, which is
    the same with any gamma. With gamma = 0 the length only says how the experience is made: a step
    costs one evaluation of f and an episode one more for its start; but the steps of an episode
    share their c, and after the first they start where the policy sent them, as a policy that is
    asked again would. The default of 2 is the thesis's: three evaluations for two steps, and half
    of the starts are the sampler's.

    Batched, with `batch_size` B, all leaves of time steps and actions have a leading axis [B]; its
    B episodes run side by side and end together. They are what B episodes one after another would
    be: the same start points, and for the same actions the same states; rewards agree but for the
    rounding of matrix products in f.

    The environment is deterministic: its seed and the actions decide everything. A function of the
    user's that fails raises `UserError`, which names the point; the next call of `step` may try
    again with another action, and `reset` starts the next episode. Each step is one call of f: the
    first one has the starts in it.

    Args:
      function: a name for `functions.make_objective`, or what that returned.
      dimensions: n, where `function` is a name.
      free: k, the number of free parameters, where `function` is a name.
      sampler: draws the start points: a name for `samplers.make_samplers`, or a sampler. Not
        "heterogeneous", which is several samplers, with an environment for each.
      batch_size: episodes side by side, B; None for an environment that is not batched.
      episode_length: steps of an episode.
      reward: one of `REWARDS`.
      discount: gamma of the environment, in [0, 1]; agents multiply it by their own.
      seed: of the sampler's random generator.
      entropy_fn: of the policy, where `sampler` is "uncertainty".
      bounds: of the user's own function, for `functions.make_objective`.
      reference: what the reward compares with, one of `REFERENCES`.
    """

    def __init__(
        self,
        function: str | Objective = "ackley",
        dimensions: int = 2,
        free: int = 1,
        sampler: str | Sampler = "random",
        batch_size: int | None = None,
        episode_length: int = 2,
        reward: str = "difference",
        discount: float = 1.0,
        seed: int = 0,
        entropy_fn: EntropyFn | None = None,
        bounds: tuple[Any, Any] | None = None,
        reference: str = "old",
    ) -> None:
        super().__init__(handle_auto_reset=True)
        _check_settings(batch_size, episode_length, reward, reference, discount)
        if isinstance(function, str):
            function = make_objective(function, dimensions, free, bounds)
        self._objective = function
        self._batch_size = batch_size
        self._episode_length = episode_length
        self._sampler = _make_sampler(sampler, function.dimensions, batch_size, entropy_fn)
        self._reward = reward
        self._scale = 1.0
        self._mean_level: float | None = None
        if reward == "scaled" or reference == "mean":
            self._measure(reference)
        self._generator = np.random.default_rng(seed)
        rows = 1 if batch_size is None else batch_size
        self._num_rows = rows
        self._action_shape = (rows, function.num_tuned)
        # The same for all rows and episodes, so made once; nobody is to write into them.
        self._first = _constants(batch_size, ts.StepType.FIRST, 1)
        self._middle = _constants(batch_size, ts.StepType.MID, discount)
        self._last = _constants(batch_size, ts.StepType.LAST, 0)
        self._no_reward = _constant(batch_size, 0, np.float32)
        self._num_steps = episode_length
        self._start = self._state = np.empty((rows, function.dimensions), np.float32)
        self._start_values = self._levels = np.empty(rows)
        self._ended: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None

    @property
    def batched(self) -> bool:
        """Whether it has a batch size."""
        return self._batch_size is not None

    @property
    def batch_size(self) -> int | None:
        """Episodes that run side by side, or None."""
        return self._batch_size

    @property
    def objective(self) -> Objective:
        """The function that is minimised."""
        return self._objective

    def observation_spec(self) -> array_spec.BoundedArraySpec:
        """The point (x, c)."""
        return array_spec.BoundedArraySpec((self._objective.dimensions,), np.float32, -1, 1, "s")

    def action_spec(self) -> array_spec.BoundedArraySpec:
        """The next x."""
        return array_spec.BoundedArraySpec((self._objective.num_tuned,), np.float32, -1, 1, "x")

    def get_info(self) -> dict[str, Any]:
        """What came of the episodes that ended last.

        Returns:
          `cost`, f at the last point, and `start_cost`, f at the first one, in units of f. Not
          batched: floats, and `context` is the start point as a string. Batched: float64 [B], and
          `context` is float64 [B, n]. Empty until an episode has ended.
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

    def seed(self, seed: int | np.random.Generator) -> None:
        """Starts anew: what follows, info aside, is as in a new environment with this seed.

        Args:
          seed: an integer, or a generator to draw from; making one costs as much as a step.
        """
        self._generator = np.random.default_rng(seed)
        self._current_time_step = None

    def should_reset(self, current_time_step: ts.TimeStep) -> bool:
        """Whether the episodes have ended; all of a batch end together."""
        return self._num_steps >= self._episode_length

    def _reset(self) -> ts.TimeStep:
        self._current_time_step = None
        points = self._sampler(self._generator, self._num_rows)
        expected = self._state.shape
        if points.shape != expected:
            raise ValueError(
                f"sampler: expected points {expected}, found {points.shape}; correct the sampler"
            )
        state = points.astype(np.float32)
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
        before = self._levels if self._mean_level is None else self._mean_level
        reward = (before - levels).astype(np.float32)
        self._state, self._levels = state, levels
        self._num_steps += 1
        step_type, discount = self._middle
        if self._num_steps >= self._episode_length:
            step_type, discount = self._last
            self._ended = (self._start, self._start_values, values)
        return ts.TimeStep(step_type, self._unbatch(reward), discount, self._unbatch(state))

    def _evaluate(self, state: np.ndarray) -> np.ndarray:
        """Values at the next points; with the first of them at the start too, in the same call."""
        if self._num_steps:
            return self._objective(state)
        both = self._objective(np.concatenate((self._state, state)))
        self._start_values, values = both[: self._num_rows], both[self._num_rows :]
        self._levels = self._level(self._start_values)
        return values

    def _measure(self, reference: str) -> None:
        """Sets scale and mean, where they are wanted, from fixed points of the box."""
        shape = (_NUM_FIXED_POINTS, self._objective.dimensions)
        values = self._objective(np.random.default_rng(0).uniform(-1, 1, shape))
        if self._reward == "scaled":
            self._scale = float(np.std(values)) or 1.0
        if reference == "mean":
            self._mean_level = float(np.mean(self._level(values)))

    def _level(self, values: np.ndarray) -> np.ndarray:
        """What rewards are differences of."""
        if self._reward == "difference":
            return values
        return signed_log1p(values) if self._reward == "log1p" else values / self._scale

    def _unbatch(self, rows: np.ndarray) -> Any:
        return rows[0] if self._batch_size is None else rows


def _check_settings(
    batch_size: int | None, episode_length: int, reward: str, reference: str, discount: float
) -> None:
    if batch_size is not None and batch_size < 1:
        raise UserError(f"batch_size: expected 1 or more, or None, found {batch_size}; correct it")
    if episode_length < 1:
        raise UserError(
            f"episode_length: expected 1 step or more, found {episode_length}; correct it"
        )
    if reward not in REWARDS:
        raise UserError(
            f"reward: expected one of {', '.join(REWARDS)}, found {reward!r}; correct the name"
        )
    if reference not in REFERENCES:
        raise UserError(
            f"reference: expected one of {', '.join(REFERENCES)}, found {reference!r}; correct the "
            "name"
        )
    if not 0 <= discount <= 1:
        raise UserError(f"discount: expected 0 to 1, found {discount}; correct it")


def _make_sampler(
    sampler: str | Sampler,
    dimensions: int,
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
    num_strata = 64 if batch_size is None else batch_size
    (made,) = make_samplers(sampler, dimensions, num_strata=num_strata, entropy_fn=entropy_fn)
    return made


def _constants(
    batch_size: int | None, step_type: np.ndarray, discount: float
) -> tuple[np.ndarray, np.ndarray]:
    return _constant(batch_size, step_type, np.int32), _constant(batch_size, discount, np.float32)


def _constant(batch_size: int | None, value: Any, dtype: type) -> np.ndarray:
    made: np.ndarray = np.full(() if batch_size is None else (batch_size,), value, dtype)
    made.setflags(write=False)
    return made
