"""Quantile normalisation: each feature becomes the share of the data that lies below it.

Counts and costs have heavy tails; their ranks do not. The map is piecewise linear between knots
learned from data. It is computed in integers, so TensorFlow and NumPy agree on every bit. It is
part of the policy: its knots are saved and sent with the weights.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tfrl_systems.systems.inlining.policy import votes

UNIT = 1 << votes.GRID_BITS
"""The value 1.0 of a normalised feature."""

MAX_VALUE = 1 << 31
"""Features are clipped to this magnitude, so that no product in this module overflows."""


@dataclasses.dataclass(frozen=True)
class Knots:
    """The segments of each feature's map.

    A value x between `start[f, k]` and the next start becomes
    `base[f, k] + (x - start[f, k]) * rise[f, k] // run[f, k]`, in units of 2^-GRID_BITS. Unused
    segments repeat the last one, which is flat.

    Attributes:
      start: int64 [F, K], the feature's value at which each segment begins.
      base: int64 [F, K], the normalised value there.
      rise: int64 [F, K], the increase of the normalised value over the segment.
      run: int64 [F, K], the segment's length, at least 1.
    """

    start: np.ndarray
    base: np.ndarray
    rise: np.ndarray
    run: np.ndarray

    @classmethod
    def constant(cls, num_features: int, num_knots: int) -> Knots:
        """Return knots of a map that maps everything to 0."""
        zeros = np.zeros((num_features, num_knots), np.int64)
        return cls(zeros, zeros, zeros, np.ones_like(zeros))


def learn_knots(features: np.ndarray, num_knots: int) -> Knots:
    """Learn knots at `num_knots` evenly spaced quantiles of each feature.

    If several quantiles have the same value, they make one knot, at their mean. The smallest knot
    maps to 0 and the largest to 1. A feature that is constant in the data maps to 0.

    Args:
      features: int64 [N, F], N >= 1.
      num_knots: K >= 2.

    Returns:
      The knots, arrays [F, K].
    """
    clipped = np.clip(features, -MAX_VALUE, MAX_VALUE)
    quantiles = np.linspace(0.0, 1.0, num_knots)
    samples = np.quantile(clipped, quantiles, axis=0, method="inverted_cdf").astype(np.int64)
    knots = Knots.constant(clipped.shape[1], num_knots)
    start, base = knots.start.copy(), knots.base.copy()
    for feature, column in enumerate(samples.T):
        values, place = np.unique(column, return_inverse=True)
        level = np.bincount(place, weights=quantiles) / np.bincount(place)
        scale = level[-1] - level[0] or 1.0
        padding = num_knots - len(values)
        start[feature] = np.pad(values, (0, padding), mode="edge")
        units = np.rint((level - level[0]) / scale * UNIT).astype(np.int64)
        base[feature] = np.pad(units, (0, padding), mode="edge")
    last = np.zeros((len(start), 1), np.int64)
    run = np.hstack([np.diff(start, axis=1), last])
    return Knots(start, base, np.hstack([np.diff(base, axis=1), last]), np.maximum(run, 1))


class QuantileNormalisation(tf.Module):
    """The normalising map, with its knots in TensorFlow variables.

    Args:
      num_features: F.
      num_knots: K.
    """

    def __init__(self, num_features: int, num_knots: int) -> None:
        super().__init__(name="normalisation")
        for name, value in vars(Knots.constant(num_features, num_knots)).items():
            setattr(self, name, tf.Variable(value, trainable=False, name=name))

    def learn(self, features: np.ndarray) -> None:
        """Learn the knots from data, int64 [N, F]."""
        self.assign(vars(learn_knots(features, self.start.shape[1])))

    def assign(self, knots: Mapping[str, np.ndarray]) -> None:
        """Set the knots to arrays named as in `Knots`; others are ignored."""
        for field in dataclasses.fields(Knots):
            getattr(self, field.name).assign(knots[field.name])

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Normalise features int64 [B, F]; return int64 [B, F] in units of 2^-GRID_BITS."""
        start = self.start.read_value()
        columns = tf.transpose(tf.clip_by_value(features, start[:, 0], start[:, -1]))
        place = tf.searchsorted(start, columns, side="right") - 1
        chosen = {
            name: tf.gather(getattr(self, name), place, batch_dims=1)
            for name in ("start", "base", "rise", "run")
        }
        climbed = (columns - chosen["start"]) * chosen["rise"] // chosen["run"]
        return tf.transpose(chosen["base"] + climbed)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the knots, named as in `Knots`."""
        return {
            field.name: getattr(self, field.name).numpy() for field in dataclasses.fields(Knots)
        }
