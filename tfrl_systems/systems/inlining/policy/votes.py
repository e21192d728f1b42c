"""The interface of decision models, and the arithmetic that makes their decisions exact.

A recorded compile can be replayed only if a policy always decides the same: in TensorFlow and in
NumPy, on one row and on a thousand, with any number of threads. Sums of floating-point numbers
depend on their order. A model therefore gives its logit in fixed point, as int64 multiples of
2^-FRACTION_BITS: sums of integers are the same in any order.

This module does not import TensorFlow. Its functions take tensors and arrays alike.
"""

from __future__ import annotations

from typing import Any

GRID_BITS = 16
"""Inputs, activations and weights of networks are multiples of 2^-GRID_BITS."""
MAX_ACTIVATION = 1 << 8

FRACTION_BITS = 24
ONE = 1 << FRACTION_BITS
"""The logit 1.0 of one member, in fixed point."""

MAX_LOGIT = 64
"""Logits are clipped to this magnitude. exp(-64) is as good as 0, and sums do not overflow."""
NEVER = 2.0 * MAX_LOGIT
"""A margin that no logit reaches: with it, a policy never departs from its baseline."""


def steps_of(margin: float) -> int:
    """Return a margin in fixed point, in which it is exact: as plugins read it."""
    return round(margin * ONE)


def half_steps(votes: Any, towards_baseline: Any, margin: float, num_models: int) -> Any:
    """Return the ensemble's logit with its margin, in halves of a fixed-point step.

    A half step is added to the margin to settle ties: a policy departs from the baseline only if
    its logit exceeds the margin, not if it equals it. With a baseline the result is never 0.

    Args:
      votes: int64 [B], sums of the members' logits.
      towards_baseline: int64 [B], -1 if the baseline takes action 0, 1 if it takes action 1, and 0
        for a policy without baseline.
      margin: logit added in favour of the baseline's action.
      num_models: number of members in the sum.

    Returns:
      int64 [B]; positive means action 1. Divide by `half_steps_per_logit` for the mean logit.
    """
    steps = steps_of(margin) * num_models
    return 2 * votes + towards_baseline * (2 * steps + 1)


def half_steps_per_logit(num_models: int) -> float:
    """Return the number of half steps in a mean logit of 1."""
    return float(2 * ONE * num_models)
