"""What the members of a world model predict of a step, and the mixture of the next latent."""

from __future__ import annotations

import math
from typing import NamedTuple

import tensorflow as tf


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
