"""Dreams: episodes that a world model makes up. The real environment is never asked.

`Dream` is the arithmetic: states, masks, rewards and ends are the model's own. `imagine` plays
whole dreams in one graph function, [B] side by side, to learn from. `DreamEnvironment` is the same
as a TF-Agents environment, to look at and to try other agents in.

A dream begins at a state of the replay, with the memory that led there, or at the first state of an
episode, with an empty memory. Each step of each dream takes the next latent from one member, drawn
anew (M. Janner et al.: When to Trust Your Model, 2019). Where the members disagree on the reward,
the dream pays less (T. Yu et al.: MOPO, 2020):

    r = mean_k r_k - λ std_k r_k
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import tensorflow as tf
import tree
from tf_agents.environments import py_environment
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from tfrl_systems.networks.array_function import ArrayFunction
from tfrl_systems.networks.controller import State, actor_spec, seen_by_actor
from tfrl_systems.world_models import mdn_rnn
from tfrl_systems.world_models.fitting import Sequences
from tfrl_systems.world_models.mdn_rnn import WorldModel

# The number of episodes that are read again together.
_EPISODES_AT_ONCE = 64


class DreamState(NamedTuple):
    """The states of N dreams.

    Attributes:
      latents: [N, L].
      memories: each member's memory, [N, H].
      permitted: what is allowed, [N, P].
    """

    latents: tf.Tensor
    memories: tuple[State, ...]
    permitted: tf.Tensor


class Imagined(NamedTuple):
    """N dreams of T steps.

    Attributes:
      observation: what the controller saw, [N, T, …] by name.
      action: [N, T, …].
      info: what `act_fn` told beside its actions, [N, T, …].
      reward: float32 [N, T].
      is_end: bool [N, T], whether the dream ended with this step.
      is_alive: bool [N, T], whether the dream had not ended before.
      final: what the controller would see next, [N, …] by name.
    """

    observation: dict[str, tf.Tensor]
    action: tf.Tensor
    info: Any
    reward: tf.Tensor
    is_end: tf.Tensor
    is_alive: tf.Tensor
    final: dict[str, tf.Tensor]


ActFn = Callable[[dict[str, tf.Tensor], tf.Tensor], tuple[tf.Tensor, Any]]
"""(observation [N, …] by name, seed int32 [2]) -> actions [N, …] and what else to keep of them."""


class Dream:
    """Steps through dreams; `temperature` is the τ of next latents, `disagreement` is λ."""

    def __init__(
        self, model: WorldModel, temperature: float = 1.0, disagreement: float = 0.0
    ) -> None:
        self.model = model
        self._temperature, self._disagreement = temperature, disagreement

    def observed(self, state: DreamState) -> dict[str, tf.Tensor]:
        """Return what a controller sees: latent, the first member's memory, and what is allowed."""
        hidden, name = state.memories[0].hidden, self.model.allowed.name
        return seen_by_actor(state.latents, hidden, state.permitted, name)

    def step(
        self, state: DreamState, actions: tf.Tensor, seed: tf.Tensor
    ) -> tuple[DreamState, tf.Tensor, tf.Tensor]:
        """Take one step of N dreams with actions [N, …]; `seed` is int32 [2].

        Returns:
          The dreams after it, rewards float32 [N], and whether the dreams ended, bool [N].
        """
        model, num_rows = self.model, tf.shape(actions)[0]
        memories, predicted = model.step(state.latents, actions, state.memories)
        seeds = tf.random.experimental.stateless_split(seed, 3)
        count = len(model.members)
        members = tf.random.stateless_uniform([num_rows], seeds[0], 0, count, tf.int32)
        latents = mdn_rnn.sample_latents(predicted, members, self._temperature, seeds[1])
        permitted = model.permitted(predicted)
        rewards = model.rewards(predicted)
        spread = tf.math.reduce_std(rewards, axis=0)
        reward = tf.reduce_mean(rewards, axis=0) - self._disagreement * spread
        chance = tf.reduce_mean(tf.sigmoid(predicted.end_logits), axis=0)
        is_end = tf.random.stateless_uniform([num_rows], seeds[2]) < chance
        if model.allowed.name:
            is_end |= ~tf.reduce_any(tf.cast(permitted, tf.bool), axis=1)
        return DreamState(latents, memories, permitted), reward, is_end


def imagine(
    dream: Dream, act_fn: ActFn, start: DreamState, num_steps: int, seed: tf.Tensor
) -> Imagined:
    """Play N dreams of T = `num_steps` steps that begin at `start`; `seed` is int32 [2]."""

    def play_step(state: DreamState, number: tf.Tensor) -> tuple[DreamState, tuple]:
        seeds = tf.random.experimental.stateless_split(
            tf.random.experimental.stateless_fold_in(seed, number), 2
        )
        seen = dream.observed(state)
        action, info = act_fn(seen, seeds[0])
        after, reward, is_end = dream.step(state, action, seeds[1])
        return after, (seen, action, info, reward, is_end)

    # tf.scan needs the structure of what a step returns; a tf.function is traced once for both.
    step_fn = tf.function(play_step, autograph=False)
    _, shaped = step_fn(start, tf.constant(0))
    nothing = tf.nest.map_structure(tf.zeros_like, shaped)
    final, played = tf.scan(
        lambda carried, number: step_fn(carried[0], number),
        tf.range(num_steps),
        initializer=(start, nothing),
        parallel_iterations=1,
    )
    seen, action, info, reward, is_end = tf.nest.map_structure(mdn_rnn.swapped, played)
    ended = tf.cumsum(tf.cast(is_end, tf.int32), axis=1, exclusive=True) > 0
    last = tf.nest.map_structure(lambda array: array[-1], final)
    return Imagined(seen, action, info, reward, is_end, ~ended, dream.observed(last))


class Starts(NamedTuple):
    """N states that dreams can begin at, arrays.

    Attributes:
      state: the states.
      is_first: bool [N], whether an episode begins here.
    """

    state: DreamState
    is_first: np.ndarray

    def drawn(self, number: int, only_first: bool, generator: np.random.Generator) -> DreamState:
        """Draw states with replacement."""
        rows = np.flatnonzero(self.is_first) if only_first else np.arange(len(self.is_first))
        taken = generator.choice(rows, number)
        state: DreamState = tree.map_structure(lambda array: array[taken], self.state)
        return state


def real_segments(
    dream: Dream, starts: Starts, episodes: Sequences, info: Any, num_steps: int
) -> Imagined:
    """Return real experience as if it had been dreamed.

    Args:
      dream: says what a controller sees.
      starts: the states at the N steps of the episodes.
      episodes: the episodes.
      info: what was kept of each action, arrays [N, …].
      num_steps: T; segments are shorter at the ends of episodes. Each step is in one segment.
    """
    lengths = episodes.is_real.sum(axis=1).astype(np.int64)
    firsts = episodes.place[:, 0]
    begins = [np.arange(f, f + n, num_steps) for f, n in zip(firsts, lengths, strict=True)]
    ends = np.repeat(firsts + lengths, list(map(len, begins)))[:, np.newaxis]
    rows = np.concatenate(begins)[:, np.newaxis] + np.arange(num_steps)
    is_alive = rows < ends
    within = np.minimum(rows, ends - 1)
    # The last step of an episode has no state after it, whether the environment ended it or not.
    is_end = is_alive & (rows == ends - 1)
    seen = tree.map_structure(lambda array: array[within], starts.state)
    steps = episodes.steps
    after = np.minimum(rows[:, -1] + 1, ends[:, 0] - 1)
    return Imagined(
        dream.observed(seen),
        steps.action[within],
        tree.map_structure(lambda array: array[within], info),
        steps.reward[within],
        is_end,
        is_alive,
        dream.observed(tree.map_structure(lambda array: array[after], starts.state)),
    )


class Remembering:
    """Finds the states of real episodes: their latents, and the memories that lead to them."""

    def __init__(self, model: WorldModel) -> None:
        self._model = model
        self._states_fn = ArrayFunction(self._states, [1, 1, 2])

    def __call__(self, episodes: Sequences) -> Starts:
        """Return the state at each real step."""
        parts = []
        for first in range(0, len(episodes.place), _EPISODES_AT_ONCE):
            rows = slice(first, first + _EPISODES_AT_ONCE)
            place = episodes.place[rows]
            low = int(place.min())
            taken = np.arange(low, int(place.max()) + 1)
            part = tree.map_structure(lambda array, taken=taken: array[taken], episodes.steps)
            state = self._states_fn(part.observation, part.action, place - low)
            is_real = episodes.is_real[rows] > 0
            there = np.flatnonzero(is_real)
            latents, memories = tree.map_structure(lambda array, there=there: array[there], state)
            is_first = np.broadcast_to(np.arange(is_real.shape[1]) == 0, is_real.shape)[is_real]
            permitted = part.permitted[place[is_real] - low]
            parts.append(Starts(DreamState(latents, memories, permitted), is_first))
        return Starts(*tree.map_structure(lambda *arrays: np.concatenate(arrays), *parts))

    def _states(
        self, observation: Any, action: Any, place: Any
    ) -> tuple[tf.Tensor, tuple[State, ...]]:
        """Return the latents [B T, L] and the memories before each step."""
        model = self._model
        latents = tf.gather(model.latents(observation), place)
        after, _ = model.unroll(latents, tf.gather(action, place))
        memories = tf.nest.map_structure(
            lambda memory: mdn_rnn.before(memory, tf.shape(place)), after
        )
        return tf.reshape(latents, [-1, model.latents.size]), memories


class DreamEnvironment(py_environment.PyEnvironment):
    """Dreams as a TF-Agents environment.

    Context: one of the `starts` at which a real episode began.

    Observation: a dict: `latent` float32 [L], `hidden` float32 [H], the first member's memory, and
      what is allowed (`networks.inputs`), if the real environment tells that.

    Action: as in the real environment.

    Reward: as the model predicts it, in the real environment's unit.

    End: where the model predicts it, where nothing is allowed, or after `num_steps` steps. The
      discount is 1 before the end and 0 at the end.
    """

    def __init__(
        self,
        dream: Dream,
        starts: Starts,
        action_spec: Any,
        num_steps: int,
        seed: int = 0,
    ) -> None:
        super().__init__(handle_auto_reset=True)
        self._dream, self._starts = dream, starts
        self._action_spec = tensor_spec.to_nest_array_spec(tensor_spec.from_spec(action_spec))
        self._num_steps = num_steps
        self._step_fn = ArrayFunction(dream.step)
        self._state: DreamState | None = None
        self._info: dict[str, Any] = {}
        self.seed(seed)

    def observation_spec(self) -> dict[str, Any]:
        """Return the spec of what a controller sees."""
        model = self._dream.model
        spec = actor_spec(model.latents.size, model.members[0].memory.size, model.allowed)
        return tensor_spec.to_nest_array_spec(spec)

    def action_spec(self) -> Any:
        """Return the real environment's action spec."""
        return self._action_spec

    def get_info(self) -> dict[str, Any]:
        """Return `predicted_return` and `steps` of the dream that ended last."""
        return dict(self._info)

    def seed(self, seed: int) -> None:
        """Start over, like a new environment with this seed."""
        self._generator = np.random.default_rng(seed)
        self._current_time_step = None

    def _reset(self) -> ts.TimeStep:
        self._state = self._starts.drawn(1, True, self._generator)
        self._return, self._length = 0.0, 0
        return ts.restart(self._observation())

    def _step(self, action: np.ndarray) -> ts.TimeStep:
        seed = self._generator.integers(1 << 31, size=2).astype(np.int32)
        acted = np.asarray(action, self._action_spec.dtype)[np.newaxis]
        self._state, (reward,), (is_end,) = self._step_fn(self._state, acted, seed)
        self._return += float(reward)
        self._length += 1
        if not is_end and self._length < self._num_steps:
            return ts.transition(self._observation(), reward)
        self._info = {
            "predicted_return": self._return,
            "steps": self._length,
            "context": "dream",
        }
        return ts.termination(self._observation(), reward)

    def _observation(self) -> dict[str, np.ndarray]:
        assert self._state is not None
        seen = self._dream.observed(self._state)
        return {name: np.array(rows[0]) for name, rows in seen.items()}
