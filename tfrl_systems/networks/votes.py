"""What a decision model is, and the arithmetic that makes its decisions exact.

A recorded compile can be replayed only if a policy decides the same everywhere: in TensorFlow and
in NumPy, on one row and on a thousand, with any number of threads. Sums of floating-point numbers
depend on their order, so a model says its logit in fixed point, as int64 multiples of
2^-FRACTION_BITS: integers add up to the same in any order.

Nothing here imports TensorFlow; the functions take tensors and arrays alike.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

FRACTION_BITS = 24
ONE = 1 << FRACTION_BITS
"""The logit 1.0 of one member."""

MAX_LOGIT = 64
"""Logits are cut off here: exp(-64) is certainty, and sums stay far from overflow."""


class DecisionModel(Protocol):
    """An ensemble of binary classifiers over integer features.

    Attributes:
      kind: what it is made of, as `policies.numpy_models` knows it.
      num_models: members; the ensemble's logit is the mean of theirs.
      variables: all its TensorFlow variables.
    """

    kind: str
    num_models: int
    variables: Any

    def fit(
        self, features: np.ndarray, actions: np.ndarray, weights: np.ndarray, seed: int
    ) -> None:
        """Fits all members anew; what was learned before has no influence.

        Args:
          features: int64 [N, F].
          actions: 0 or 1 [N].
          weights: float64 [N], positive, with mean 1.
          seed: decides the members' randomness.
        """

    def votes(self, features: Any) -> Any:
        """Sum over the members of their logits of action 1, int64 [B]; features int64 [B, F]."""

    def arrays(self) -> dict[str, np.ndarray]:
        """All that a NumPy twin needs."""


def to_fixed(logits: np.ndarray) -> np.ndarray:
    """Logits as int64 in fixed point, rounded to nearest."""
    return np.rint(np.clip(logits, -MAX_LOGIT, MAX_LOGIT) * ONE).astype(np.int64)


def half_steps(votes: Any, towards_baseline: Any, margin: float, num_models: int) -> Any:
    """The ensemble's logit with its margin, in halves of a fixed-point step.

    The half step that is added to the margin settles a tie: a policy departs from the baseline only
    when it is surer than the margin, not when it is just as sure. With a baseline the result is
    therefore never 0.

    Args:
      votes: sums of the members' logits, int64 [B].
      towards_baseline: -1 where the baseline takes action 0, 1 where it takes action 1, and 0 for a
        policy that has no baseline; int64 [B].
      margin: logits that are added in favour of the baseline's action.
      num_models: members in the sum.

    Returns:
      int64 [B]; positive means action 1. Divide by `half_steps_per_logit` for the mean logit.
    """
    steps = round(margin * ONE) * num_models
    return 2 * votes + towards_baseline * (2 * steps + 1)


def certain_half_steps(towards_baseline: Any, num_models: int) -> Any:
    """What `half_steps` is for a policy that is certain of the baseline's action.

    Args:
      towards_baseline: -1 or 1, int64 [B].
      num_models: members in the sum.
    """
    return towards_baseline * (2 * MAX_LOGIT * ONE * num_models)


def half_steps_per_logit(num_models: int) -> float:
    """What `half_steps` must be divided by."""
    return float(2 * ONE * num_models)


def bag_weights(seed: int, num_models: int, num_rows: int) -> np.ndarray:
    """Row weights of each member, float64 [num_models, num_rows], with mean about 1.

    Members differ by the Bayesian bootstrap (Rubin, 1981: exponential weights), which unlike
    drawing rows leaves none out. A single member sees every row with weight 1.
    """
    if num_models == 1:
        return np.ones((1, num_rows))
    return np.random.default_rng(seed).exponential(size=(num_models, num_rows))
