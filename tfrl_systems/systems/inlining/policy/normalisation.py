"""Quantile normalisation: each feature becomes the share of the data that lies below it.

Counts and costs have heavy tails; their ranks do not. The map is piecewise linear between knots
learned from data. It is computed in integers, so TensorFlow and NumPy agree on every bit. It is
part of the policy: its knots are saved and sent with the weights.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from tfrl_systems.systems.inlining.policy import votes

UNIT = 1 << votes.GRID_BITS
"""The value 1.0 of a normalised feature."""

MAX_VALUE = 1 << 31
"""Features are clipped to this magnitude, so that no product in this module overflows."""


SEGMENTS = ("start", "base", "rise", "run")
"""The arrays of a map, int64 [F, K], one row for each of F features.

A value x between `start[f, k]` and the next start becomes
`base[f, k] + (x - start[f, k]) * rise[f, k] // run[f, k]`, in units of 2^-GRID_BITS. `run` is the
segment's length, at least 1. Unused segments repeat the last one, which is flat.
"""


def learn_knots(features: np.ndarray, num_knots: int) -> dict[str, np.ndarray]:
    """Learn knots at `num_knots` evenly spaced quantiles of each feature.

    If several quantiles have the same value, they make one knot, at their mean. The smallest knot
    maps to 0 and the largest to 1. A feature that is constant in the data maps to 0.

    Args:
      features: int64 [N, F], N >= 1.
      num_knots: K >= 2.

    Returns:
      The arrays named by `SEGMENTS`.
    """
    clipped = np.clip(features, -MAX_VALUE, MAX_VALUE)
    quantiles = np.linspace(0.0, 1.0, num_knots)
    samples = np.quantile(clipped, quantiles, axis=0, method="inverted_cdf").astype(np.int64)
    start, base = np.zeros((2, clipped.shape[1], num_knots), np.int64)
    for feature, column in enumerate(samples.T):
        values, place = np.unique(column, return_inverse=True)
        level = np.bincount(place, weights=quantiles) / np.bincount(place)
        scale = level[-1] - level[0] or 1.0
        padding = num_knots - len(values)
        start[feature] = np.pad(values, (0, padding), mode="edge")
        units = np.rint((level - level[0]) / scale * UNIT).astype(np.int64)
        base[feature] = np.pad(units, (0, padding), mode="edge")
    rise, run = (np.diff(knots, axis=1, append=knots[:, -1:]) for knots in (base, start))
    return {"start": start, "base": base, "rise": rise, "run": np.maximum(run, 1)}


class QuantileNormalisation(tf.Module):
    """The normalising map, with its knots in TensorFlow variables.

    Args:
      num_features: F.
      num_knots: K.
    """

    def __init__(self, num_features: int, num_knots: int) -> None:
        super().__init__(name="normalisation")
        for name in SEGMENTS:
            initial = np.full((num_features, num_knots), int(name == "run"), np.int64)
            setattr(self, name, tf.Variable(initial, trainable=False, name=name))

    def learn(self, features: np.ndarray) -> None:
        """Learn the knots from data, int64 [N, F]."""
        self.assign(learn_knots(features, self.start.shape[1]))

    def assign(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Set the knots to the arrays named by `SEGMENTS`; others are ignored."""
        for name in SEGMENTS:
            getattr(self, name).assign(arrays[name])

    def __call__(self, features: tf.Tensor) -> tf.Tensor:
        """Normalise features int64 [B, F]; return int64 [B, F] in units of 2^-GRID_BITS."""
        start = self.start.read_value()
        columns = tf.transpose(tf.clip_by_value(features, start[:, 0], start[:, -1]))
        place = tf.searchsorted(start, columns, side="right") - 1
        chosen = {name: tf.gather(getattr(self, name), place, batch_dims=1) for name in SEGMENTS}
        climbed = (columns - chosen["start"]) * chosen["rise"] // chosen["run"]
        return tf.transpose(chosen["base"] + climbed)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays named by `SEGMENTS`."""
        return {name: getattr(self, name).numpy() for name in SEGMENTS}
