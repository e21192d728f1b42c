"""Adam, against numbers worked by hand and against Keras's."""

from __future__ import annotations

import numpy as np
import tensorflow as tf

from tfrl_systems.networks.adam import Adam


def test_worked_by_hand():
    """The first step is the learning rate times the gradient's sign, nearly; norms are cut off."""
    variable, twin = tf.Variable([1.0, 2.0]), tf.Variable([1.0, 2.0])
    adam = Adam(0.1, [variable], max_norm=1.0)
    adam.apply_gradients([(tf.constant([3.0, -4.0]), variable)])
    np.testing.assert_allclose(variable.numpy(), [0.9, 2.1], atol=1e-4)
    keras = tf.keras.optimizers.Adam(0.1, epsilon=1e-5)
    keras.apply_gradients([(tf.constant([0.6, -0.8]), twin)])
    for gradient in ([0.1, 0.2], [-0.3, 0.1]):
        adam.apply_gradients([(tf.constant(gradient), variable)])
        keras.apply_gradients([(tf.constant(gradient), twin)])
    np.testing.assert_allclose(variable.numpy(), twin.numpy(), rtol=1e-5)
