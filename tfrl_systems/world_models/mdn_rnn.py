"""The world model: an LSTM whose heads predict the next latent, reward, end and what is allowed.

It is the thesis's MDN-RNN (Model-based Reinforcement Learning in Computer Systems, 3.4.1 and 4.3.3;
after D. Ha, J. Schmidhuber: World Models, 2018). For the latent z_t, the action a_t and the memory
h_t of each of K members,

    h_{t+1}          = LSTM([z_t, e(a_t)], h_t)                            `networks.controller`
    u, v             = relu(W' relu(W [h_{t+1}, z_t, e(a_t), waves]))       two of them
    p(z_{t+1})       = Σ_i π_i N(z_t + μ_i, σ_i²),   i = 1 … 8             from u
    reward, end, what is allowed next                                       from v

For float actions there are waves, sin and cos of 2^k π z_t and 2^k π a_t. With them a network can
learn narrow valleys from few points (M. Tancik et al.: Fourier Features Let Networks Learn High
Frequency Functions in Low Dimensional Domains, 2020).

Landscapes matter most near the action that a controller aims at. With `magnify`, heads also see
tanh(s (a_t - aim)) for s = 3, 10, 30, 100. The aim is the controller's choice for z_t and h_t at
the time of the last fit (`WorldModel.aim_fn`).

The thesis has one member. Several, which differ by their first weights, disagree where they saw
little (R. Kidambi et al.; T. Yu et al.: MOPO, 2020).

The temperature τ divides the logits of π, as the thesis prints it (3.4.1), and multiplies σ by √τ,
which it does not print. Its other settings are those of Ha and Schmidhuber, whose code does both.
With one Gaussian, or several that agree, π alone would change nothing. At τ = 1 nothing changes.

Rewards are numbers in units of `reward_scale`, or distributions over 255 values, two-hot (D. Hafner
et al.: Mastering Diverse Domains through World Models, 2023).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import sonnet as snt
import tensorflow as tf

from tfrl_systems.networks import actors
from tfrl_systems.networks.controller import Memory, State, make_latents
from tfrl_systems.networks.graph_encoder import linear
from tfrl_systems.networks.inputs import NUM_PLACES, Permits

# Latents are about as large as 1. A component is never narrower than this, so that no likelihood of
# a coordinate that is always right outweighs all others.
_LEAST_LOG_STD, _MOST_LOG_STD = math.log(0.002), math.log(2.0)
_NUM_BINS, _GREATEST_LOG = 255, 5.0
_MAGNIFICATIONS = (3.0, 10.0, 30.0, 100.0)

AimFn = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]
"""(latents [N, L], the first member's memory [N, H]) -> the actions that a controller aims at."""


class Predicted(NamedTuple):
    """What K members predict of a step, for N rows.

    Attributes:
      mixture_logits: [K, N, M].
      means: [K, N, M, L].
      log_stds: [K, N, M, L].
      rewards: [K, N, 1] in units of the scale, or logits [K, N, 255].
      end_logits: [K, N].
      allowed_logits: [K, N, P], of each action or rule; P is 0 if every action is always allowed.
      log_places: [K, N, P], log(1 + places) of each rule.
    """

    mixture_logits: tf.Tensor
    means: tf.Tensor
    log_stds: tf.Tensor
    rewards: tf.Tensor
    end_logits: tf.Tensor
    allowed_logits: tf.Tensor
    log_places: tf.Tensor


class _Tower(snt.Module):
    """Two layers, from sizes[0] numbers to sizes[1]."""

    def __init__(self, generator: np.random.Generator, sizes: tuple[int, int], name: str) -> None:
        super().__init__(name=name)
        gain = math.sqrt(2.0)
        self.first = linear(generator, sizes, "first", gain)
        self.second = linear(generator, (sizes[1], sizes[1]), "second", gain)

    def __call__(self, inputs: tf.Tensor) -> tf.Tensor:
        return tf.nn.relu(self.second(tf.nn.relu(self.first(inputs))))


class Member(snt.Module):
    """One member of the ensemble, for latents of size L and P permits."""

    def __init__(
        self,
        latent_size: int,
        action_spec: Any,
        num_permits: int,
        config: Any,
        generator: np.random.Generator,
        name: str,
    ) -> None:
        super().__init__(name=name)
        self._latent_size, self._num_gaussians = latent_size, config.num_gaussians
        self.memory = Memory(latent_size, action_spec, config.memory_size, generator)
        actions = actors.read_action_spec(action_spec)
        is_float = actions.kind == "normal"
        self._num_waves = config.num_waves if is_float else 0
        joined = config.memory_size + self.memory.num_inputs * (1 + 2 * self._num_waves)
        joined += actions.size * len(_MAGNIFICATIONS) if is_float and config.magnify else 0
        # In shared layers the mixture's large gradients would drown those of the other heads.
        self.towers = [
            _Tower(generator, (joined, config.head_size), name) for name in ("state", "outcome")
        ]
        mixture = config.num_gaussians
        num_rewards = _NUM_BINS if config.two_hot_rewards else 1
        self._sizes = (
            [mixture, mixture * latent_size, mixture * latent_size],
            [num_rewards, 1, num_permits, num_permits],
        )
        self.outs = [
            linear(generator, (config.head_size, sum(sizes)), name, 0.1)
            for sizes, name in zip(self._sizes, ("mixture", "others"), strict=True)
        ]
        # Components begin apart, else all of them would learn the same.
        apart = generator.normal(scale=0.3, size=mixture * latent_size)
        bias = np.zeros(sum(self._sizes[0]), np.float32)
        bias[mixture : mixture * (1 + latent_size)] = apart
        self.outs[0].b.assign(bias)

    def heads(
        self, hidden: tf.Tensor, inputs: tf.Tensor, latents: tf.Tensor, near: list[tf.Tensor]
    ) -> list[tf.Tensor]:
        """Return the fields of `Predicted` without K.

        Args:
          hidden: [N, H], the memory after the step.
          inputs: [N, I], what entered it.
          latents: [N, L].
          near: magnified distances from the aim, [N, A] each.
        """
        waves = [math.pi * 2**number * inputs for number in range(self._num_waves)]
        turned = [turn(wave) for wave in waves for turn in (tf.sin, tf.cos)]
        joined = tf.concat([hidden, inputs, *turned, *near], axis=1)
        (logits, means, stds), (rewards, ends, allowed, places) = (
            tf.split(out(tower(joined)), sizes, axis=1)
            for out, tower, sizes in zip(self.outs, self.towers, self._sizes, strict=True)
        )
        by_component = [-1, self._num_gaussians, self._latent_size]
        middle = (_LEAST_LOG_STD + _MOST_LOG_STD) / 2
        reach = (_MOST_LOG_STD - _LEAST_LOG_STD) / 2
        return [
            logits,
            latents[:, tf.newaxis] + tf.reshape(means, by_component),
            middle + reach * tf.tanh(tf.reshape(stds, by_component)),
            rewards,
            ends[:, 0],
            allowed,
            places,
        ]


class WorldModel(snt.Module):
    """The model; it knows an environment by its specs alone.

    Args:
      observation_spec: a nest of numbers, or graphs; it may say what is allowed (`Permits`).
      action_spec: a bounded float32 vector, an integer scalar from 0 on, or a pair (rule, place).
      config: its sizes (`agents.world_model.Config`).
      generator: draws the initial weights.

    Attributes:
      latents: makes latents from observations.
      allowed: how observations say what is allowed.
      members: the K members.
      reward_scale: the unit of predicted rewards, a variable.
      aim_fn: tells where the controller aims; None for the middle of all actions.
    """

    def __init__(
        self, observation_spec: Any, action_spec: Any, config: Any, generator: np.random.Generator
    ) -> None:
        super().__init__(name="world_model")
        self._config = config
        self.latents = make_latents(observation_spec, config, generator)
        self.allowed = Permits.read(observation_spec, action_spec)
        self.members = [
            Member(
                self.latents.size, action_spec, self.allowed.size, config, generator, f"member{k}"
            )
            for k in range(config.num_members)
        ]
        self.actions = actors.read_action_spec(action_spec)
        self.aim_fn: AimFn | None = None
        self.reward_scale = tf.Variable(1.0, trainable=False, name="reward_scale")
        self._bins = tf.constant(_symexp(np.linspace(-_GREATEST_LOG, _GREATEST_LOG, _NUM_BINS)))

    def empty(self, num_rows: tf.Tensor | int) -> tuple[State, ...]:
        """Return the members' memories of episodes that begin."""
        return tuple(member.memory.empty(num_rows) for member in self.members)

    def step(
        self, latents: tf.Tensor, actions: tf.Tensor, states: tuple[State, ...]
    ) -> tuple[tuple[State, ...], Predicted]:
        """Predict one step from latents [N, L], actions [N, …] and the members' memories."""
        following, outputs = [], []
        near = self._near(latents, states[0].hidden, actions)
        for member, state in zip(self.members, states, strict=True):
            inputs = member.memory.inputs(latents, actions)
            after = member.memory(inputs, state)
            following.append(after)
            outputs.append(member.heads(after.hidden, inputs, latents, near))
        return tuple(following), _stacked(outputs)

    def unroll(self, latents: tf.Tensor, actions: tf.Tensor) -> tuple[tuple[State, ...], Predicted]:
        """Predict each step of B episodes from what really happened before it.

        Args:
          latents: [B, T, L].
          actions: [B, T, …].

        Returns:
          The memories after each step, arrays [B T, H], and the predictions, N = B T.
        """
        num_rows = tf.shape(latents)[0]
        flat = tf.reshape(latents, [-1, self.latents.size])
        acted = tf.reshape(actions, tf.concat([[-1], tf.shape(actions)[2:]], axis=0))
        acted = tf.ensure_shape(acted, [None, *actions.shape[2:]])
        inputs = [member.memory.inputs(flat, acted) for member in self.members]

        def by_time(member: Member, rows: tf.Tensor) -> tf.Tensor:
            return swapped(tf.reshape(rows, [num_rows, -1, member.memory.num_inputs]))

        def step(states: tuple[State, ...], now: tuple[tf.Tensor, ...]) -> tuple[State, ...]:
            members = zip(self.members, now, states, strict=True)
            return tuple(member.memory(row, state) for member, row, state in members)

        # One loop for all members is faster to trace than one for each.
        every = tf.scan(
            step, tuple(map(by_time, self.members, inputs)), initializer=self.empty(num_rows)
        )
        states: tuple[State, ...] = tf.nest.map_structure(
            lambda memory: tf.reshape(swapped(memory), [-1, memory.shape[-1]]), every
        )
        near = self._near(flat, before(states[0].hidden, tf.shape(latents)[:2]), acted)
        outputs = [
            member.heads(state.hidden, rows, flat, near)
            for member, state, rows in zip(self.members, states, inputs, strict=True)
        ]
        return states, _stacked(outputs)

    def _near(self, latents: tf.Tensor, hidden: tf.Tensor, actions: tf.Tensor) -> list[tf.Tensor]:
        """Return the magnified distances of actions from the aim, [N, A] each."""
        if not (self._config.magnify and self.actions.kind == "normal"):
            return []
        low, high = (np.array(bound, np.float32) for bound in (self.actions.low, self.actions.high))
        middle, half_range = (low + high) / 2, (high - low) / 2
        aim = middle if self.aim_fn is None else tf.stop_gradient(self.aim_fn(latents, hidden))
        bounded = tf.clip_by_value(tf.cast(actions, tf.float32), low, high)
        return [tf.tanh(scale * (bounded - aim) / half_range) for scale in _MAGNIFICATIONS]

    def rewards(self, predicted: Predicted) -> tf.Tensor:
        """Return the expected rewards [K, N], in the environment's unit."""
        if not self._config.two_hot_rewards:
            return self.reward_scale * predicted.rewards[..., 0]
        shares = tf.nn.softmax(predicted.rewards)
        return self.reward_scale * tf.linalg.matvec(shares, self._bins)

    def reward_loss(self, predicted: Predicted, rewards: tf.Tensor) -> tf.Tensor:
        """Return the losses [K, N] of predictions of the rewards [N]."""
        scaled = rewards / self.reward_scale
        if not self._config.two_hot_rewards:
            return tf.square(predicted.rewards[..., 0] - scaled)
        logs = tf.nn.log_softmax(predicted.rewards)
        return -tf.reduce_sum(logs * self.two_hot(scaled), axis=-1)

    def two_hot(self, values: tf.Tensor) -> tf.Tensor:
        """Return shares [N, 255] of the two bins beside each value [N], whose mean is the value."""
        bins = self._bins
        inside = tf.clip_by_value(values, bins[0], bins[-1])
        right = tf.clip_by_value(tf.searchsorted(bins, inside, side="right"), 1, _NUM_BINS - 1)
        low, high = tf.gather(bins, right - 1), tf.gather(bins, right)
        share = ((inside - low) / (high - low))[:, tf.newaxis]
        return (1 - share) * tf.one_hot(right - 1, _NUM_BINS) + share * tf.one_hot(right, _NUM_BINS)

    def permitted(self, predicted: Predicted) -> tf.Tensor:
        """Return what will be allowed: bool [N, n], int32 [N, R], or bool [N, 0]."""
        is_allowed = tf.reduce_mean(tf.sigmoid(predicted.allowed_logits), axis=0) > 0.5
        if self.allowed.name != NUM_PLACES:
            return is_allowed
        places = tf.math.expm1(tf.reduce_mean(predicted.log_places, axis=0))
        counts = tf.clip_by_value(tf.round(places), 1.0, float(self.allowed.most))
        return tf.where(is_allowed, tf.cast(counts, tf.int32), 0)


def mixture_log_density(predicted: Predicted, latents: tf.Tensor) -> tf.Tensor:
    """Return log p(z) [K, N] of latents [N, L]."""
    spread = (latents[:, tf.newaxis] - predicted.means) * tf.exp(-predicted.log_stds)
    size = float(latents.shape[-1])
    logs = -0.5 * tf.reduce_sum(spread**2, -1) - tf.reduce_sum(predicted.log_stds, -1)
    logs += tf.nn.log_softmax(predicted.mixture_logits) - 0.5 * size * math.log(2 * math.pi)
    return tf.reduce_logsumexp(logs, axis=-1)


def sample_latents(
    predicted: Predicted, members: tf.Tensor, temperature: tf.Tensor | float, seed: tf.Tensor
) -> tf.Tensor:
    """Draw the next latents.

    Args:
      predicted: what the members predict.
      members: int32 [N], whose prediction each row takes.
      temperature: τ; at 0 the likeliest component's mean is taken.
      seed: int32 [2].

    Returns:
      [N, L].
    """
    rows = tf.range(tf.shape(members)[0])
    chosen = tf.stack([members, rows], axis=1)
    logits, means, log_stds = (
        tf.gather_nd(tensor, chosen)
        for tensor in (predicted.mixture_logits, predicted.means, predicted.log_stds)
    )
    seeds = tf.random.experimental.stateless_split(seed, 2)
    warm = tf.maximum(tf.cast(temperature, tf.float32), 1e-6)
    uniform = tf.random.stateless_uniform(tf.shape(logits), seeds[0], 1e-20, 1.0)
    component = tf.argmax(logits / warm - tf.math.log(-tf.math.log(uniform)), axis=1)
    mean, log_std = (tf.gather(tensor, component, batch_dims=1) for tensor in (means, log_stds))
    noise = tf.random.stateless_normal(tf.shape(mean), seeds[1])
    return mean + tf.sqrt(warm) * tf.exp(log_std) * noise


def mean_latents(predicted: Predicted) -> tf.Tensor:
    """Return the expected next latents [N, L], the mean over members and components."""
    shares = tf.nn.softmax(predicted.mixture_logits)[..., tf.newaxis]
    return tf.reduce_mean(tf.reduce_sum(shares * predicted.means, axis=2), axis=0)


def swapped(array: tf.Tensor) -> tf.Tensor:
    """Return an array [B, T, …] as [T, B, …], or the other way round."""
    return tf.transpose(array, [1, 0, *range(2, array.shape.rank)])


def before(memory: tf.Tensor, shape: tf.Tensor) -> tf.Tensor:
    """Return memories [B T, H] before each step from those after it; `shape` is [B, T]."""
    size = memory.shape[-1]
    by_time = tf.reshape(memory, [shape[0], shape[1], size])
    return tf.reshape(tf.pad(by_time, [[0, 0], [1, 0], [0, 0]])[:, :-1], [-1, size])


def _symexp(values: np.ndarray) -> np.ndarray:
    """Return sign(x) (exp |x| - 1) of each x, float32."""
    return (np.sign(values) * np.expm1(np.abs(values))).astype(np.float32)


def _stacked(outputs: list[list[tf.Tensor]]) -> Predicted:
    return Predicted(*[tf.stack(column) for column in zip(*outputs, strict=True)])
