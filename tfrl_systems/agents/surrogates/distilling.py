"""The policy's network learns from a model: first its answers, then by its values.

Where values ripple, the answers of neighbouring contexts lie in different valleys that are about as
deep, and no smooth network follows them. So the network's weights descend at last on the values
that the model expects of the network's own answers. That is the policy gradient of a problem of one
step, and exact, because the model can be differentiated. Where that is not enough either, the
network learns answers that lie in one valley for all contexts (`Search.in_one_valley`), and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf
from scipy import optimize

# What L-BFGS sees is so many times larger: a loss of 1e-12 would be within its tolerances.
_MAGNIFICATION = 1e6

Values = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Gives for actions [M, m] values [M] and their gradients by the actions [M, m]."""


class Pupil:
    """An actor network that learns what to do in some contexts.

    Args:
      network: an `ActorNetwork` with float actions.
      contexts: [M, k], the last columns of observations.
      num_ignored: how many columns of observations come before the context. The network shall not
        depend on them, so their weights become 0.
    """

    def __init__(self, network: Any, contexts: np.ndarray, num_ignored: int) -> None:
        self._variables = list(network.trainable_variables)
        first = self._variables[0]
        first.assign(
            tf.concat([tf.zeros([num_ignored, first.shape[1]]), first[num_ignored:]], axis=0)
        )
        observations = np.zeros((len(contexts), num_ignored + contexts.shape[1]), np.float32)
        observations[:, num_ignored:] = contexts

        @tf.function(autograph=False)
        def answers() -> tf.Tensor:
            return network.call(tf.constant(observations))[0].mode()

        @tf.function(autograph=False)
        def pull(gradients: tf.Tensor) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                loss = tf.reduce_sum(gradients * answers())
            return tape.gradient(loss, self._variables)

        self._answers, self._pull = answers, pull

    @property
    def weights(self) -> np.ndarray:
        """Return the network's weights as one vector."""
        return _joined(self._variables)

    @weights.setter
    def weights(self, weights: np.ndarray) -> None:
        start = 0
        for variable in self._variables:
            shape = variable.shape.as_list()
            end = start + int(np.prod(shape))
            variable.assign(weights[start:end].reshape(shape).astype(np.float32))
            start = end

    def mean(self, values: Values) -> float:
        """Return the mean of the values of the network's likeliest actions."""
        return float(values(self._answers().numpy().astype(np.float64))[0].mean())

    def descend(self, values: Values, steps: int) -> float:
        """Change the network's likeliest actions, so that the mean of their values falls.

        Args:
          values: of actions in their own units.
          steps: the most steps of L-BFGS.

        Returns:
          The mean of the values in the end.
        """

        def loss_and_gradient(weights: np.ndarray) -> tuple[float, np.ndarray]:
            self.weights = weights
            heights, gradients = values(self._answers().numpy().astype(np.float64))
            share = _MAGNIFICATION / len(heights)
            pulls = self._pull(tf.constant((share * gradients).astype(np.float32)))
            return share * float(heights.sum()), _joined(pulls)

        options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-12, "gtol": 1e-9, "maxcor": 30}
        fit = optimize.minimize(
            loss_and_gradient, self.weights, jac=True, method="L-BFGS-B", options=options
        )
        self.weights = fit.x
        return float(fit.fun) / _MAGNIFICATION


def misses(actions: np.ndarray, weights: np.ndarray) -> Values:
    """Return what values imitation descends on: the weighted squares of what is missed.

    Actions, in their own units, and weights are [M, m].
    """

    def values(answers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        missed = answers - actions
        return np.sum(weights * missed**2, axis=1), 2 * weights * missed

    return values


def _joined(tensors: list[Any]) -> np.ndarray:
    return np.concatenate([tensor.numpy().ravel() for tensor in tensors]).astype(np.float64)
