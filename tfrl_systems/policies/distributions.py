"""Distributions over the actions of a batch, in NumPy.

A distribution is the dict of its parameters, named as in TensorFlow Probability and as PPO needs
them in its policy info. A normal distribution with independent components has "loc" and
"scale_diag", [B, n] each. A categorical one has "logits", [B, num_actions]. If there is "actions",
[B, num_actions, n], beside the logits, actions are rows of that list instead of numbers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

Parameters = Mapping[str, np.ndarray]

_HALF_LOG_2_PI_E = 0.5 * math.log(2 * math.pi * math.e)


def draw(parameters: Parameters, generator: np.random.Generator) -> np.ndarray:
    """Draw one action for each row.

    Args:
      parameters: parameters of the distributions.
      generator: decides the draws.

    Returns:
      float32 [B, n] if normal, int64 [B] if categorical, or rows [B, n] of the list of actions.
    """
    if "logits" not in parameters:
        loc = parameters["loc"]
        noise: np.ndarray = generator.standard_normal(loc.shape, np.float32)
        noise *= parameters["scale_diag"]
        noise += loc
        return noise
    shares = _shares(parameters["logits"])
    np.cumsum(shares, axis=1, out=shares)
    # An action of probability 0 is never drawn: its interval is empty.
    below = shares <= generator.random((len(shares), 1)) * shares[:, -1:]
    return _at(below.sum(axis=1), parameters)


def mode(parameters: Parameters) -> np.ndarray:
    """Return the likeliest action of each row, shaped as by `draw`; ties go to the first."""
    if "logits" not in parameters:
        return parameters["loc"]
    return _at(parameters["logits"].argmax(axis=1), parameters)


def entropy(parameters: Parameters) -> np.ndarray:
    """Return the entropy of each row's distribution in nats, float64 [B]."""
    if "logits" not in parameters:
        scale = parameters["scale_diag"].astype(np.float64)
        return np.log(scale).sum(axis=1) + scale.shape[1] * _HALF_LOG_2_PI_E
    shares = _shares(parameters["logits"])
    shares /= shares.sum(axis=1, keepdims=True)
    # 0 log 0 is 0.
    logs = np.log(shares, out=np.zeros_like(shares), where=shares > 0)
    return -np.einsum("bn,bn->b", shares, logs)


def _at(places: np.ndarray, parameters: Parameters) -> np.ndarray:
    """Return the actions with these numbers: the numbers, or rows of the list if there is one."""
    if "actions" not in parameters:
        return places
    return parameters["actions"][np.arange(len(places)), places]


def _shares(logits: Any) -> np.ndarray:
    """Return values proportional to the probabilities, float64 [B, n]; each row's maximum is 1."""
    return np.exp(logits.astype(np.float64) - logits.max(axis=1, keepdims=True))
