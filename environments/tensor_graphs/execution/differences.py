"""How the outputs of two models differ.

The relative error of an output is the largest difference of its elements, divided by the largest
absolute value that the output should have. It is not taken element by element, because a sum of
many products has errors in proportion to its largest terms, even where the sum is near 0. Integers
of 8 bits are quantised numbers: they may differ by one unit, where a rounding falls to the other
side, and their error is relative to the range of their type. Other integers, truth values and texts
must be equal, and so must NaNs and infinities.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

# Largest relative error by type. Merging weights rounds them once more, so some hundred times the
# distance between neighbouring numbers is allowed.
TOLERANCES: Mapping[str, float] = {
    "float64": 1e-8,
    "float32": 1e-4,
    "float16": 2e-2,
    "bfloat16": 1e-1,
    "int8": 1 / 255,
    "uint8": 1 / 255,
}
_RANGE_OF_BYTES = 255


@dataclasses.dataclass(frozen=True)
class Difference:
    """How one output differs between two models.

    Attributes:
      relative_error: its relative error, as the module defines it; inf if the two are not
        comparable.
      tolerance: largest relative error that its type allows.
      trial: index of the inputs on which it was found.
      reason: why the two are not comparable; "" if they are.
      is_exact: whether rounding cannot explain a difference.
    """

    output: str
    relative_error: float
    tolerance: float
    trial: int = 0
    reason: str = ""
    is_exact: bool = True

    @property
    def is_equal(self) -> bool:
        """Whether the error is within the tolerance."""
        return self.relative_error <= self.tolerance

    @property
    def share_of_tolerance(self) -> float:
        """The error relative to what is allowed."""
        return self.relative_error / self.tolerance

    def allowing(self, errors: Mapping[str, float]) -> Difference:
        """Return the difference with more tolerance: the relative error given for its output.

        Outputs that are compared exactly, and integers, keep their tolerance.
        """
        if self.is_exact:
            return self
        return dataclasses.replace(self, tolerance=max(self.tolerance, errors[self.output]))

    def __str__(self) -> str:
        if self.reason:
            return f"output {self.output!r}: {self.reason}"
        return (
            f"output {self.output!r}: relative error {self.relative_error:.1e}, "
            f"{self.tolerance:.0e} is allowed"
        )


def compare_outputs(
    expected: Mapping[str, Any], actual: Mapping[str, Any], trial: int = 0
) -> list[Difference]:
    """Compare the outputs of two runs by name; the differences keep the index of the trial.

    Returns:
      A difference for each expected output, then one for each output that is not expected.
    """
    differences = [
        dataclasses.replace(_difference(name, value, actual[name]), trial=trial)
        if name in actual
        else unlike(name, "it is missing")
        for name, value in expected.items()
    ]
    surplus = actual.keys() - expected.keys()
    return differences + [unlike(name, "the first model has none") for name in sorted(surplus)]


def unlike(name: str, reason: str) -> Difference:
    """Return the difference of outputs that are not comparable."""
    return Difference(name, np.inf, 1.0, reason=reason)


def _difference(name: str, expected: Any, actual: Any) -> Difference:
    if isinstance(expected, list | tuple) and isinstance(actual, list | tuple):
        if len(expected) != len(actual):
            return unlike(name, f"{len(expected)} elements became {len(actual)}")
        parts = [_difference(name, *pair) for pair in zip(expected, actual, strict=True)]
        same = Difference(name, 0.0, 1.0)
        return max(parts, key=lambda part: part.relative_error, default=same)
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if list(expected) != list(actual):
            return unlike(name, "its keys differ")
        return _difference(name, list(expected.values()), list(actual.values()))
    return _array_difference(name, np.asarray(expected), np.asarray(actual))


def _array_difference(name: str, expected: np.ndarray, actual: np.ndarray) -> Difference:
    expected_type, actual_type = (
        f"{array.dtype}{list(array.shape)}" for array in (expected, actual)
    )
    if expected_type != actual_type:
        return unlike(name, f"{expected_type} became {actual_type}")
    tolerance = TOLERANCES.get(expected.dtype.name)
    if tolerance is None:
        equal = bool(np.array_equal(expected, actual))
        same = Difference(name, 0.0, 1.0)
        return same if equal else unlike(name, f"its {expected_type} is not equal")
    exact, rounded = expected.astype(np.float64), actual.astype(np.float64)
    if expected.dtype.kind in "iu":
        error = np.abs(exact - rounded).max(initial=0.0)
        return Difference(name, float(error / _RANGE_OF_BYTES), tolerance)
    finite = np.isfinite(exact)
    if not np.array_equal(exact[~finite], rounded[~finite], equal_nan=True):
        return unlike(name, "its NaNs or infinities differ")
    exact, rounded = exact[finite], rounded[finite]
    largest = np.abs(exact).max(initial=0.0)
    error = np.abs(exact - rounded).max(initial=0.0)
    if not np.isfinite(error):
        return unlike(name, "it is not finite everywhere, as it should be")
    # If all of an output should be 0, the error is absolute.
    error = float(error / largest if largest else error)
    return Difference(name, error, tolerance, is_exact=False)
