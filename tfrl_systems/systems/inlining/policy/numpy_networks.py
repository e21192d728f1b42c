"""The decision networks in NumPy, fast for single rows and equal to TensorFlow's bit for bit."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tfrl_systems.systems.inlining.policy import votes

# The knots of all features are put on one line, 2^42 apart, so that one search finds the segments
# of all features of a row. Knots lie within 2^31.
_SPAN = np.int64(1 << 42)

# The grid in whole numbers that float64 holds exactly.
_UNIT = float(1 << votes.GRID_BITS)
_MAX_ACTIVATION = votes.MAX_ACTIVATION * _UNIT
_LOGIT_SCALE = float(1 << (2 * votes.GRID_BITS - votes.FRACTION_BITS))
_MAX_LOGIT = float(votes.MAX_LOGIT * votes.ONE)


class NumpyNetworks:
    """The networks of `decision_network.DecisionNetworks`.

    Args:
      arrays: the knots, and `weights_i` and `biases_i` of each layer.
      num_features: F.

    Raises:
      KeyError, ValueError: the arrays are no networks of these features.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], num_features: int) -> None:
        num_layers = sum(name.startswith("weights_") for name in arrays)
        _check(arrays, num_features, num_layers)
        start = arrays["start"]
        self._low, self._high = start[:, 0], start[:, -1]
        self._offsets = np.arange(num_features) * _SPAN
        self._keys = (start + self._offsets[:, np.newaxis]).reshape(-1)
        self._start, self._base, self._rise, self._run = (
            arrays[name].reshape(-1) for name in ("start", "base", "rise", "run")
        )
        self._layers = [
            (arrays[f"weights_{i}"], arrays[f"biases_{i}"] * _UNIT) for i in range(num_layers)
        ]

    def votes(self, features: np.ndarray) -> np.ndarray:
        """Return sums of the members' logits, int64 [N]; features int64 [N, F]."""
        hidden = self._normalise(features).astype(np.float64)[np.newaxis]
        for weights, biases in self._layers:
            sums = np.matmul(hidden, weights)
            sums += biases
            hidden = np.minimum(np.maximum(np.rint(sums / _UNIT), 0.0), _MAX_ACTIVATION)
        logits = np.minimum(np.maximum(np.rint(sums / _LOGIT_SCALE), -_MAX_LOGIT), _MAX_LOGIT)
        return logits.sum(axis=(0, 2)).astype(np.int64)

    def _normalise(self, features: np.ndarray) -> np.ndarray:
        """Normalise as `normalisation.QuantileNormalisation` does, int64 [N, F]."""
        clipped = np.minimum(np.maximum(features, self._low), self._high)
        place = self._keys.searchsorted(clipped + self._offsets, side="right") - 1
        climbed = (clipped - self._start.take(place)) * self._rise.take(place)
        return self._base.take(place) + climbed // self._run.take(place)


def _check(arrays: Mapping[str, np.ndarray], num_features: int, num_layers: int) -> None:
    """Refuse arrays that do not fit each other, because a stranger may have written them."""
    segments = [arrays[name] for name in ("start", "base", "rise", "run")]
    if {array.shape[:1] for array in segments} != {(num_features,)} or any(
        array.ndim != 2 or array.shape != segments[0].shape or array.dtype.kind not in "iu"
        for array in segments
    ):
        raise ValueError(f"knots of the shapes {[array.shape for array in segments]}")
    num_models, num_inputs = len(arrays["weights_0"]), num_features
    for layer in range(num_layers):
        weights, biases = arrays[f"weights_{layer}"], arrays[f"biases_{layer}"]
        num_units = weights.shape[-1] if layer < num_layers - 1 else 1
        expected = (num_models, num_inputs, num_units), (num_models, 1, num_units)
        if not num_models or (weights.shape, biases.shape) != expected:
            raise ValueError(f"a layer of the shapes {weights.shape} and {biases.shape}")
        num_inputs = num_units
