"""Distributions over the actions of a batch, in NumPy.

A distribution is the dict of its parameters, as TensorFlow Probability names them and PPO wants
them in its policy info: {"loc", "scale_diag"}, [B, n] each, of a normal distribution with
independent components, or {"logits"}, [B, num_actions], of a categorical one. With {"actions"},
[B, num_actions, n], beside the logits the actions are rows of that list instead of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

Parameters = Mapping[str, np.ndarray]

_HALF_LOG_2_PI_E = 0.5 * math.log(2 * math.pi * math.e)


def draw(parameters: Parameters, generator: np.random.Generator) -> np.ndarray:
    """One action for each row: float32 [B, n], int64 [B], or of a list."""
    if "logits" not in parameters:
        loc = parameters["loc"]
        noise: np.ndarray = generator.standard_normal(loc.shape, np.float32)
        noise *= parameters["scale_diag"]
        noise += loc
        return noise
    shares = _shares(parameters["logits"])
    np.cumsum(shares, axis=1, out=shares)
    # An action that has no share is never drawn: it ends where the one before it does.
    below = shares <= generator.random((len(shares), 1)) * shares[:, -1:]
    return _at(below.sum(axis=1), parameters)


def mode(parameters: Parameters) -> np.ndarray:
    """The likeliest action of each row, as `draw` has it; of equal ones the first."""
    if "logits" not in parameters:
        return parameters["loc"]
    return _at(parameters["logits"].argmax(axis=1), parameters)


def entropy(parameters: Parameters) -> np.ndarray:
    """Entropy of each row in nats, float64 [B]: the more, the less sure the policy is."""
    if "logits" not in parameters:
        scale = parameters["scale_diag"].astype(np.float64)
        return np.log(scale).sum(axis=1) + scale.shape[1] * _HALF_LOG_2_PI_E
    shares = _shares(parameters["logits"])
    shares /= shares.sum(axis=1, keepdims=True)
    # 0 log 0 is 0.
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return -np.einsum("bn,bn->b", shares, logs)


def _at(places: np.ndarray, parameters: Parameters) -> np.ndarray:
    """The numbers of actions, or the actions of a list that have these numbers."""
    if "actions" not in parameters:
        return places
    return parameters["actions"][np.arange(len(places)), places]


def _shares(logits: Any) -> np.ndarray:
    """Numbers in proportion to the probabilities, float64 [B, n], the greatest of a row 1."""
    return np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
