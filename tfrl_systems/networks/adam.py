"""Adam with one operation for each variable.

D. P. Kingma, J. Ba: Adam, a Method for Stochastic Optimization (2015). Networks are small here, so
the number of operations decides how long a step takes. Keras's Adam has twenty for each variable.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl_systems.networks.array_function import ArrayFunction

_DECAYS = (0.9, 0.999)
_EPSILON = 1e-5


class Adam(tf.keras.optimizers.Adam):
    """Keras's Adam, computed with fewer operations.

    Its learning rate is a variable, because TF-Agents' PPO cannot report a Keras schedule.

    Args:
      learning_rate: learning rate at the start.
      variables: all variables to train. The optimizer's own variables exist from the start, so that
        a checkpoint made before the first step holds them.
      max_norm: greatest norm of all gradients together, which are scaled down to it; 0 for none.
    """

    def __init__(
        self, learning_rate: float, variables: Sequence[tf.Variable], max_norm: float = 0.0
    ) -> None:
        super().__init__(learning_rate, *_DECAYS, epsilon=_EPSILON)
        self.build(variables)
        self._places = {variable.ref(): place for place, variable in enumerate(variables)}
        self._max_norm = max_norm
        self._set_fn = ArrayFunction(self._set)

    def set_learning_rate(self, rate: float | tf.Tensor) -> None:
        """Set the learning rate of the steps to come."""
        self._set_fn(rate if tf.is_tensor(rate) else np.float32(rate))

    def _set(self, rate: tf.Tensor) -> tf.Tensor:
        self.learning_rate = rate
        return rate

    def apply_gradients(
        self, grads_and_vars: Iterable[tuple[tf.Tensor, tf.Variable]], *_: Any, **__: Any
    ) -> tf.Tensor:
        """Do one step; return how many steps were done so far."""
        gradients, variables = zip(*grads_and_vars, strict=True)
        if self._max_norm:
            gradients, _ = tf.clip_by_global_norm(gradients, self._max_norm)
        num_steps = self.iterations.assign_add(1)
        powers = [tf.pow(decay, tf.cast(num_steps, tf.float32)) for decay in _DECAYS]
        rate = tf.identity(self.learning_rate)
        for gradient, variable in zip(gradients, variables, strict=True):
            place = self._places[variable.ref()]
            tf.raw_ops.ResourceApplyAdam(
                var=variable.handle,
                m=self._momentums[place].handle,
                v=self._velocities[place].handle,
                beta1_power=powers[0],
                beta2_power=powers[1],
                lr=rate,
                beta1=_DECAYS[0],
                beta2=_DECAYS[1],
                epsilon=_EPSILON,
                grad=gradient,
            )
        return num_steps
