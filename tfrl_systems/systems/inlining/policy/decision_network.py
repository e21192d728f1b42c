"""An ensemble of small multilayer perceptrons on quantile-normalised features.

Training uses ordinary float32. Decisions use a copy of the weights, rounded to a grid: activations
and weights are integers held in float64, so small that every product and partial sum stays below
2^53. Matrix products are then exact: neither the batch, the library nor the number of threads
changes a bit. Grid and limits:

    activation  multiple of 2^-16, 0 .. 2^8     weight  multiple of 2^-16, |w| <= 2^4
    sum of at most 2^8 products: below 2^(8+4+8) = 2^20, multiple of 2^-32: 52 bits
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf

from tfrl_systems.systems.inlining.policy import normalisation, votes

MAX_WEIGHT = 1 << 4
MAX_HIDDEN_UNITS = 1 << 8

_ADAM_DECAYS = (0.9, 0.999)
_ADAM_EPSILON = 1e-8

Parameters = list[tf.Tensor]
"""Weights [num_models, inputs, outputs] and biases [num_models, 1, outputs], layer by layer."""


class DecisionNetworks(tf.Module):
    """An ensemble of networks, whose logits are averaged.

    Args:
      num_features: F.
      num_models: number of networks.
      hidden_sizes: units of the hidden layers, at most 256 each.
      num_knots: quantiles of the normalisation.
    """

    kind = "networks"

    def __init__(
        self, num_features: int, num_models: int, hidden_sizes: Sequence[int], num_knots: int
    ) -> None:
        super().__init__(name="decision_networks")
        self.num_models = num_models
        self.normalise = normalisation.QuantileNormalisation(num_features, num_knots)
        sizes = itertools.pairwise((num_features, *hidden_sizes, 1))
        self.grid = [
            tf.Variable(tf.zeros(shape, tf.float64), trainable=False, name=f"{name}_{layer}")
            for layer, (inputs, outputs) in enumerate(sizes)
            for name, shape in (
                ("weights", (num_models, inputs, outputs)),
                ("biases", (num_models, 1, outputs)),
            )
        ]

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> DecisionNetworks:
        """Make trained networks from the arrays that `arrays` returned."""
        num_layers = sum(name.startswith("weights_") for name in arrays)
        hidden = tuple(arrays[f"biases_{layer}"].shape[-1] for layer in range(num_layers - 1))
        num_features, num_knots = arrays["start"].shape
        networks = cls(num_features, len(arrays["weights_0"]), hidden, num_knots)
        networks.normalise.assign(arrays)
        for variable in networks.grid:
            variable.assign(arrays[_name(variable)])
        return networks

    def fit(
        self,
        features: np.ndarray,
        actions: np.ndarray,
        weights: np.ndarray,
        seed: int,
        *,
        epochs: int,
        batch_size: int,
        learning_rate: float,
        weight_decay: float,
    ) -> None:
        """Train all networks anew by minibatch Adam; nothing of earlier fits stays.

        Args:
          features: int64 [N, F].
          actions: [N], 0 or 1.
          weights: float64 [N], positive, with mean 1.
          seed: decides the members' randomness.
          epochs: passes over the rows.
          batch_size: rows of a minibatch.
          learning_rate: Adam's learning rate at the start; it falls linearly to 0.
          weight_decay: decoupled weight decay; each step multiplies it by the learning rate.
        """
        self.normalise.learn(features)
        rng = np.random.default_rng(seed)
        bags = _bag_weights(seed, self.num_models, len(actions)) * weights
        batch_size = min(batch_size, len(actions))
        num_steps = len(actions) // batch_size
        rows = (
            tf.cast(self.normalise(tf.constant(features, tf.int64)), tf.float32)
            / normalisation.UNIT,
            tf.constant(actions, tf.float32),
            tf.constant(bags, tf.float32),
        )
        parameters = self._initial(rng)
        state = [parameters, *([tf.zeros_like(each) for each in parameters] for _ in range(2))]
        rates = np.linspace(learning_rate, 0, epochs * num_steps, endpoint=False)
        for epoch in range(epochs):
            orders = rng.permuted(
                np.tile(np.arange(len(actions), dtype=np.int32), (self.num_models, 1)), axis=1
            )
            batches = orders[:, : num_steps * batch_size].reshape(self.num_models, num_steps, -1)
            first = epoch * num_steps
            state = _run_epoch(
                state,
                rows,
                tf.constant(batches.swapaxes(0, 1)),
                tf.constant(rates[first : first + num_steps], tf.float32),
                tf.constant(first, tf.float32),
                tf.constant(weight_decay, tf.float32),
            )
        self._round(state[0])

    def votes(self, features: tf.Tensor) -> tf.Tensor:
        """Return sums of the members' logits of action 1, int64 [B]; features int64 [B, F]."""
        unit = float(normalisation.UNIT)
        hidden = tf.cast(self.normalise(features), tf.float64)[tf.newaxis]
        for layer in range(0, len(self.grid), 2):
            weights, biases = self.grid[layer : layer + 2]
            sums = tf.matmul(hidden, weights) + biases * unit
            hidden = tf.clip_by_value(tf.math.rint(sums / unit), 0.0, votes.MAX_ACTIVATION * unit)
        scale = float(1 << (2 * votes.GRID_BITS - votes.FRACTION_BITS))
        limit = float(votes.MAX_LOGIT * votes.ONE)
        logits = tf.clip_by_value(tf.math.rint(sums / scale), -limit, limit)
        return tf.cast(tf.reduce_sum(logits, axis=[0, 2]), tf.int64)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the knots, and weights_i and biases_i of each layer i, as on the grid."""
        layers = {_name(variable): variable.numpy() for variable in self.grid}
        return self.normalise.arrays() | layers

    def _initial(self, rng: np.random.Generator) -> Parameters:
        """Draw He's initial weights; biases are 0."""
        parameters = []
        for weights, biases in zip(self.grid[::2], self.grid[1::2], strict=True):
            shape = tuple(weights.shape)
            draw = rng.normal(scale=np.sqrt(2 / shape[1]), size=shape)
            parameters += [tf.constant(draw, tf.float32), tf.zeros(biases.shape)]
        return parameters

    def _round(self, parameters: Parameters) -> None:
        for variable, value in zip(self.grid, parameters, strict=True):
            clipped = np.clip(value.numpy().astype(np.float64), -MAX_WEIGHT, MAX_WEIGHT)
            variable.assign(np.rint(clipped * normalisation.UNIT))


def _bag_weights(seed: int, num_models: int, num_rows: int) -> np.ndarray:
    """Draw the row weights of each member, float64 [num_models, num_rows], with mean about 1.

    Members differ by the Bayesian bootstrap (Rubin, 1981): exponential weights, which leave no row
    out. A single member gets weight 1 for every row.
    """
    if num_models == 1:
        return np.ones((1, num_rows))
    return np.random.default_rng(seed).exponential(size=(num_models, num_rows))


def _name(variable: tf.Variable) -> str:
    """Return the name that the variable was made with."""
    return variable.name.partition(":")[0]


def _logits(parameters: Parameters, inputs: tf.Tensor) -> tf.Tensor:
    """Return logits float32 [num_models, B] of inputs [num_models, B, F]."""
    hidden = inputs
    for layer in range(0, len(parameters), 2):
        sums = tf.matmul(hidden, parameters[layer]) + parameters[layer + 1]
        hidden = tf.clip_by_value(sums, 0.0, float(votes.MAX_ACTIVATION))
    return sums[..., 0]


# AutoGraph would write files, and could not where the disk is full.
@tf.function(autograph=False, reduce_retracing=True)
def _run_epoch(
    state: list[Parameters],
    rows: tuple[tf.Tensor, tf.Tensor, tf.Tensor],
    batches: tf.Tensor,
    rates: tf.Tensor,
    first_step: tf.Tensor,
    weight_decay: tf.Tensor,
) -> list[Parameters]:
    """Run one epoch of Adam with decoupled weight decay (Loshchilov and Hutter, 2019, Algorithm 2).

    Args:
      state: the parameters, and Adam's first and second moments.
      rows: inputs float32 [N, F], labels [N] and weights [num_models, N].
      batches: int32 [steps, num_models, batch], the rows of each step and member.
      rates: float32 [steps], the learning rate of each step.
      first_step: float32 scalar, the number of steps taken before.
      weight_decay: float32 scalar.

    Returns:
      The new state.
    """
    num_steps = tf.shape(batches)[0]

    def take_step(step: tf.Tensor, state: list[Parameters]) -> tuple[tf.Tensor, list[Parameters]]:
        gradients = _gradients(state[0], rows, batches[step])
        count = first_step + tf.cast(step, tf.float32) + 1.0
        return step + 1, _updated(state, gradients, count, rates[step], weight_decay)

    _, state = tf.while_loop(
        lambda step, _: step < num_steps, take_step, [tf.constant(0), state], parallel_iterations=1
    )
    return state


def _gradients(
    parameters: Parameters, rows: tuple[tf.Tensor, tf.Tensor, tf.Tensor], chosen: tf.Tensor
) -> Parameters:
    """Return the gradients of the loss of the rows that each member has chosen."""
    inputs, labels, weights = rows
    with tf.GradientTape() as tape:
        tape.watch(parameters)
        losses = tf.nn.sigmoid_cross_entropy_with_logits(
            tf.gather(labels, chosen), _logits(parameters, tf.gather(inputs, chosen))
        )
        # The loss is a sum over members, and each member's gradients come from its own term.
        loss = tf.reduce_sum(
            tf.reduce_mean(losses * tf.gather(weights, chosen, batch_dims=1), axis=1)
        )
    return tape.gradient(loss, parameters)


def _updated(
    state: list[Parameters],
    gradients: Parameters,
    count: tf.Tensor,
    rate: tf.Tensor,
    weight_decay: tf.Tensor,
) -> list[Parameters]:
    """Return the state after a step of Adam, the `count`-th."""
    corrections = [1.0 - tf.pow(decay, count) for decay in _ADAM_DECAYS]
    new: list[Parameters] = [[], [], []]
    for value, gradient, first, second in zip(state[0], gradients, *state[1:], strict=True):
        first = _ADAM_DECAYS[0] * first + (1 - _ADAM_DECAYS[0]) * gradient
        second = _ADAM_DECAYS[1] * second + (1 - _ADAM_DECAYS[1]) * gradient**2
        size = tf.sqrt(second / corrections[1]) + _ADAM_EPSILON
        change = first / corrections[0] / size + weight_decay * value
        for place, updated in enumerate((value - rate * change, first, second)):
            new[place].append(updated)
    return new
