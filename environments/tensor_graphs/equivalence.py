"""Do two models compute the same? Found out by running both.

The error of an output is its largest difference, over the largest absolute value that the output
should have: a sum of a thousand products has errors of the size of its largest terms, so a result
near 0 among large ones cannot be better than they are. Integers, truth values and texts have to be
equal, as do NaNs and infinities.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx

from environments.tensor_graphs.backends import Arrays, Backend, Model, Program, backend

# Largest relative error by type. Weights that are merged are rounded once more; these are some
# hundred times the distance of neighbouring numbers.
TOLERANCES: Mapping[str, float] = {
    "float64": 1e-8,
    "float32": 1e-4,
    "float16": 2e-2,
    "bfloat16": 1e-1,
}


@dataclasses.dataclass(frozen=True)
class Difference:
    """What became of one output, at worst.

    Attributes:
      output: its name.
      relative_error: inf where outputs are not comparable.
      tolerance: that its type allows.
      trial: number of the inputs it was found on.
      reason: in words, if it is not about numbers; else "".
    """

    output: str
    relative_error: float
    tolerance: float
    trial: int = 0
    reason: str = ""

    @property
    def is_equal(self) -> bool:
        """Whether the error is one that is allowed."""
        return self.relative_error <= self.tolerance

    def __str__(self) -> str:
        if self.reason:
            return f"output {self.output!r}: {self.reason}"
        return (
            f"output {self.output!r}: relative error {self.relative_error:.1e}, "
            f"{self.tolerance:.0e} is allowed"
        )


@dataclasses.dataclass(frozen=True)
class Equivalence:
    """What a check came to.

    Attributes:
      differences: the worst of each output, in the model's order.
      num_trials: inputs that were tried.
    """

    differences: tuple[Difference, ...]
    num_trials: int

    @property
    def worst(self) -> Difference:
        """The output that differs most, measured by what is allowed."""
        return max(self.differences, key=lambda one: one.relative_error / one.tolerance)

    @property
    def is_equal(self) -> bool:
        """Whether no output has an error that is not allowed."""
        return all(one.is_equal for one in self.differences)

    @property
    def max_relative_error(self) -> float:
        """Of all outputs."""
        return max(one.relative_error for one in self.differences)


def check(
    first: Model | Program, other: Model, trials: Iterable[Arrays], *, on: Backend | None = None
) -> Equivalence:
    """Whether the other model computes what the first does.

    Args:
      first: is right by definition; it may be open already.
      other: has the same inputs.
      trials: inputs to run both on; at least one.
      on: runs both; onnxruntime if not given.

    Raises:
      UserError: a model cannot be run.
    """
    on = on or backend()
    opened = on.open(first) if isinstance(first, pathlib.Path | onnx.ModelProto) else first
    programs = opened, on.open(other)
    worst: dict[str, Difference] = {}
    num_trials = 0
    for trial, inputs in enumerate(trials):
        expected, found = (program.run(inputs) for program in programs)
        num_trials += 1
        for difference in compare_outputs(expected, found, trial):
            known = worst.setdefault(difference.output, difference)
            if difference.relative_error > known.relative_error:
                worst[difference.output] = difference
    return Equivalence(tuple(worst.values()), num_trials)


def compare_outputs(
    expected: Mapping[str, Any], found: Mapping[str, Any], trial: int = 0
) -> list[Difference]:
    """The difference of each output."""
    differences = [
        dataclasses.replace(_difference(name, value, found[name]), trial=trial)
        if name in found
        else _unlike(name, "it is missing")
        for name, value in expected.items()
    ]
    surplus = found.keys() - expected.keys()
    return differences + [_unlike(name, "the first model has none") for name in sorted(surplus)]


def _unlike(name: str, reason: str) -> Difference:
    return Difference(name, np.inf, 1.0, reason=reason)


def _difference(name: str, expected: Any, found: Any) -> Difference:
    if isinstance(expected, list | tuple) and isinstance(found, list | tuple):
        if len(expected) != len(found):
            return _unlike(name, f"{len(expected)} elements became {len(found)}")
        parts = [_difference(name, *pair) for pair in zip(expected, found, strict=True)]
        return max(parts, key=lambda one: one.relative_error, default=Difference(name, 0.0, 1.0))
    if isinstance(expected, Mapping) and isinstance(found, Mapping):
        if list(expected) != list(found):
            return _unlike(name, "its keys differ")
        return _difference(name, list(expected.values()), list(found.values()))
    return _array_difference(name, np.asarray(expected), np.asarray(found))


def _array_difference(name: str, expected: np.ndarray, found: np.ndarray) -> Difference:
    one, other = (f"{array.dtype}{list(array.shape)}" for array in (expected, found))
    if one != other:
        return _unlike(name, f"{one} became {other}")
    tolerance = TOLERANCES.get(expected.dtype.name)
    if tolerance is None:
        equal = bool(np.array_equal(expected, found))
        return Difference(name, 0.0, 1.0) if equal else _unlike(name, f"its {one} is not equal")
    exact, actual = expected.astype(np.float64), found.astype(np.float64)
    finite = np.isfinite(exact)
    if not np.array_equal(exact[~finite], actual[~finite], equal_nan=True):
        return _unlike(name, "its NaNs or infinities differ")
    exact, actual = exact[finite], actual[finite]
    largest = np.abs(exact).max(initial=0.0)
    error = np.abs(exact - actual).max(initial=0.0)
    if not np.isfinite(error):
        return _unlike(name, "it is not finite everywhere, as it should be")
    # Where all of an output is 0 there is nothing to be relative to.
    return Difference(name, float(error / largest if largest else error), tolerance)
