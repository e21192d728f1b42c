"""Judge how exact outputs are: by their distance from float64, beside that of the model itself.

A rewritten model may add in another order, or round its weights once more. That costs about as
many digits as the model itself loses. It must not cost more: a rewrite that moves a large constant
past a product gives numbers that are right for small inputs, and noise for large ones.

The errors of single elements are random, so they are compared by their largest along an axis. For
each index of each axis of an output, the largest error of the candidate there may be

  _FACTOR times the largest error of the model itself there, plus some units in the last place of
  the largest number there.

So neither a row nor a column of an output can hide behind larger ones. Where an index has few
elements that count, the error of the model may be small by chance. It then counts as what is
usual among the indices whose numbers are about as large, and in an output of few elements as what
is usual among all trials; and _FACTOR is larger.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

_FACTOR, _FACTOR_OF_FEW = 10.0, 100.0
# Relative to the largest number. A float64 has no better type to compare it with.
_ROUNDINGS = {"float16": 8e-3, "float32": 1e-6, "float64": 1e-12}
_MANY = 64
_FEW = 8
_USUAL = 0.75
_ALIKE = 4.0


def usual_error(exact: np.ndarray, own: np.ndarray) -> float:
    """Return the largest error of an output of the model itself, relative to its largest number."""
    error, size = _error(exact, own), _size(exact)
    return float(np.max(error, initial=0.0) / max(float(np.max(size, initial=0.0)), 1e-300))


def excess(exact: np.ndarray, own: np.ndarray, actual: np.ndarray, usual: float = 0.0) -> float:
    """Return the largest error of an output, relative to what is allowed; above 1 is too much.

    Args:
      exact: the output in float64.
      own: the output of the model itself, of the same shape and of floating-point type.
      actual: the output of the candidate.
      usual: the usual of `usual_error` on several inputs.
    """
    if own.dtype.name not in _ROUNDINGS or exact.shape != own.shape or not own.size:
        return 0.0
    where = np.isfinite(exact) & np.isfinite(own) & np.isfinite(actual)
    own_errors, errors = (np.where(where, _error(exact, outputs), 0.0) for outputs in (own, actual))
    size = np.where(where, _size(exact), 0.0)
    most = float(size.max(initial=0.0))
    smallest = usual * most if own.size < _FEW else 0.0
    rounding = _ROUNDINGS[own.dtype.name]
    worst = 0.0
    for own_error, found_error, largest, count in _along_axes(own_errors, errors, size):
        usual_error_there = np.maximum(own_error, _usual_among_alike(own_error, largest))
        own_error = np.where(count < _MANY, usual_error_there, own_error)
        factor = np.where(count < _FEW, _FACTOR_OF_FEW, _FACTOR)
        # Where everything should be 0, rounding is relative to the other numbers.
        ulps = rounding * np.where(largest > 0, largest, most)
        allowed = factor * np.maximum(own_error, smallest) + ulps
        with np.errstate(divide="ignore", over="ignore"):
            over = np.divide(found_error, allowed, np.zeros_like(allowed), where=found_error > 0)
        worst = max(worst, float(over.max(initial=0.0)))
    return worst


def _error(exact: np.ndarray, actual: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.abs(exact - actual.astype(np.float64))


def _size(exact: np.ndarray) -> np.ndarray:
    return np.abs(np.where(np.isfinite(exact), exact, 0.0))


def _along_axes(
    own: np.ndarray, actual: np.ndarray, size: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
    """Yield the largest numbers at each index of each axis, and how many sizes make them up.

    Of sizes that are all alike, each counts; beside a large one, small ones hardly do. Axes of one
    index tell nothing of their own, unless there are no others.
    """
    shape = size.shape
    axes: list[int | None] = [axis for axis, length in enumerate(shape) if length > 1]
    for axis in axes or [None]:
        others = tuple(dimension for dimension in range(len(shape)) if dimension != axis)
        largest = (array.max(axis=others) for array in (own, actual, size))
        relative = size / np.maximum(size.max(axis=others, keepdims=True), 1e-300)
        square = np.maximum(np.square(relative).sum(axis=others), 1e-300)
        count = np.square(relative.sum(axis=others)) / square
        yield *map(np.atleast_1d, largest), np.atleast_1d(count)


def _usual_among_alike(errors: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """Return for each index the upper quartile of errors where numbers are about as large."""
    with np.errstate(divide="ignore"):
        places = np.floor(np.log(sizes) / np.log(_ALIKE))
    usual = np.empty_like(errors)
    for place in np.unique(places):
        is_alike = (places >= place - 1) & (places <= place + 1) | (places == place)
        usual[places == place] = np.quantile(errors[is_alike], _USUAL)
    return usual
