"""The policy's network learns the answers of a model, by L-BFGS."""

from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf
from scipy import optimize


def distil(
    network: Any,
    contexts: np.ndarray,
    actions: np.ndarray,
    weights: np.ndarray,
    num_ignored: int,
    steps: int,
) -> float:
    """Fit an actor network's likeliest actions to given ones.

    Args:
      network: an `ActorNetwork` with float actions.
      contexts: [M, k], the last columns of observations.
      actions: [M, m], in the action's own units.
      weights: [M, m], of the squares of what is missed.
      num_ignored: how many columns of observations come before the context. The network shall not
        depend on them, so their weights become 0.
      steps: the most steps of L-BFGS.

    Returns:
      The root of the mean squared error that is left.
    """
    variables = list(network.trainable_variables)
    shapes = [variable.shape.as_list() for variable in variables]
    sizes = [int(np.prod(shape)) for shape in shapes]
    observations = np.zeros((len(contexts), num_ignored + contexts.shape[1]), np.float32)
    observations[:, num_ignored:] = contexts
    seen, wanted = tf.constant(observations), tf.constant(actions.astype(np.float32))
    weighed = tf.constant(weights.astype(np.float32))

    @tf.function(autograph=False)
    def loss_and_gradient(flat: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        for variable, part, shape in zip(variables, tf.split(flat, sizes), shapes, strict=True):
            variable.assign(tf.reshape(part, shape))
        with tf.GradientTape() as tape:
            distribution, _ = network.call(seen)
            loss = tf.reduce_mean(
                tf.reduce_sum(weighed * (distribution.mode() - wanted) ** 2, axis=-1)
            )
        gradients = tape.gradient(loss, variables)
        return loss, tf.concat([tf.reshape(part, [-1]) for part in gradients], axis=0)

    def numbers(flat: np.ndarray) -> tuple[float, np.ndarray]:
        loss, gradient = loss_and_gradient(tf.constant(flat.astype(np.float32)))
        # A loss of 1e-12 would be within the tolerances of L-BFGS.
        return 1e6 * float(loss), 1e6 * gradient.numpy().astype(np.float64)

    first = variables[0]
    first.assign(tf.concat([tf.zeros([num_ignored, first.shape[1]]), first[num_ignored:]], axis=0))
    start = np.concatenate([variable.numpy().ravel() for variable in variables]).astype(np.float64)
    options = {"maxiter": steps, "maxfun": 2 * steps, "ftol": 1e-12, "gtol": 1e-9, "maxcor": 30}
    fitted = optimize.minimize(numbers, start, jac=True, method="L-BFGS-B", options=options)
    return float(np.sqrt(numbers(fitted.x)[0] / 1e6))
