"""The domain of a user's function, in each of the forms that people write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from environments.errors import UserError

Domain = tuple[np.ndarray, np.ndarray]
"""low and high, float64 [n] each."""


def read_bounds(name: str, dimensions: int, bounds: Any) -> Domain:
    """Return the bounds of a function's domain.

    Args:
      name: the function, for messages.
      dimensions: n.
      bounds: (low, high), each a number or n numbers; or scipy's forms: n pairs (low, high), or
        `scipy.optimize.Bounds`; or {"low": …, "high": …}.

    Returns:
      low and high, float64 [n] each.

    Raises:
      UserError: they are not bounds of n dimensions, or could be meant in two ways.
    """
    if isinstance(bounds, Mapping):
        readings = [_domain(bounds.get("low"), bounds.get("high"), dimensions)]
    elif hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        readings = [_domain(bounds.lb, bounds.ub, dimensions)]
    else:
        readings = [_sides(bounds, dimensions), _pairs(bounds, dimensions)]
    domains = [domain for domain in readings if domain is not None]
    if not domains:
        raise UserError(
            f"{name}: expected bounds (low, high), each a finite number or {dimensions} of them, "
            f"low below high, or {dimensions} pairs of them, found {bounds!r}; correct them"
        )
    if len(domains) == 2 and not np.array_equal(domains[0], domains[1]):
        raise UserError(
            f"{name}: expected bounds that can be read in one way, found {bounds!r}, which may be "
            "(low, high) or two pairs; write scipy.optimize.Bounds(low, high)"
        )
    return domains[0]


def _sides(bounds: Any, dimensions: int) -> Domain | None:
    try:
        low, high = bounds
    except (TypeError, ValueError):
        return None
    return _domain(low, high, dimensions)


def _pairs(bounds: Any, dimensions: int) -> Domain | None:
    try:
        pairs = np.array(bounds, np.float64)
    except (TypeError, ValueError):
        return None
    return _domain(pairs[:, 0], pairs[:, 1], dimensions) if pairs.shape == (dimensions, 2) else None


def _domain(low: Any, high: Any, dimensions: int) -> Domain | None:
    """Return low and high for each coordinate; None if they are no bounds."""
    try:
        sides = [np.array(side, np.float64) for side in (low, high)]
        low, high = (np.broadcast_to(side, (dimensions,)).copy() for side in sides)
    except (TypeError, ValueError):
        return None
    is_valid = np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()
    return (low, high) if is_valid else None
