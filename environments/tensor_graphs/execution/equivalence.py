"""Check that two models compute the same, by running both on the same inputs.

The relative error of an output is the largest difference of its elements, divided by the largest
absolute value that the output should have. It is not taken element by element, because a sum of
many products has errors in proportion to its largest terms, even where the sum is near 0. Integers
of 8 bits are quantised numbers: they may differ by one unit, where a rounding falls to the other
side, and their error is relative to the range of their type. Other integers, truth values and texts
must be equal, and so must NaNs and infinities.

A model may make much of the last digit of its inputs: it rounds to 8 bits inside, or its outputs
are near 0 behind a Sigmoid. So where an error is larger than its type allows, the model that is
right is run once more with other last digits. Some times the change that this makes is allowed.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import onnx

from environments.tensor_graphs.execution.backends import Arrays, Backend, Model, Program, backend
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.operators.operator import FLOAT_TYPES

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
# An error may be this many times the change that other last digits of the inputs make, up to the
# second number. A larger change says that the inputs tell nothing about the model.
_ROUNDINGS, _MOST_ROUNDING = 10.0, 2e-2


@dataclasses.dataclass(frozen=True)
class Difference:
    """How one output differs between two models.

    Attributes:
      output: name of the output.
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


@dataclasses.dataclass(frozen=True)
class Equivalence:
    """How the outputs of two models compare.

    Attributes:
      differences: the largest difference of each output, in the model's order.
      num_trials: number of inputs that both were run on.
    """

    differences: tuple[Difference, ...]
    num_trials: int

    @property
    def worst(self) -> Difference:
        """The difference that is largest relative to its tolerance."""
        return max(self.differences, key=lambda one: one.share_of_tolerance)

    @property
    def is_equal(self) -> bool:
        """Whether all errors are within their tolerances."""
        return all(one.is_equal for one in self.differences)

    @property
    def max_relative_error(self) -> float:
        """The largest relative error of all outputs."""
        return max(one.relative_error for one in self.differences)


class Reference:
    """A program that is right by definition, and what it returned; it runs once on each inputs.

    Args:
      program: the program.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        # The inputs are kept too, so that no others can get their id.
        self._outputs: dict[int, tuple[Arrays, dict[str, Any]]] = {}
        self._roundings: dict[int, dict[str, float]] = {}

    def run(self, inputs: Arrays) -> dict[str, Any]:
        """Return the outputs; see `Program.run`."""
        if id(inputs) not in self._outputs:
            self._outputs[id(inputs)] = inputs, self._program.run(inputs)
        return self._outputs[id(inputs)][1]

    def rounding(self, inputs: Arrays) -> dict[str, float]:
        """Return the change of each output with the last digits of the inputs; see `rounding`."""
        if id(inputs) not in self._roundings:
            self._roundings[id(inputs)] = rounding(self._program, inputs, self.run(inputs))
        return self._roundings[id(inputs)]


def rounding(program: Program, inputs: Arrays, outputs: Mapping[str, Any]) -> dict[str, float]:
    """Return how much a program's outputs change with the last digits of its inputs.

    Args:
      program: the program.
      inputs: its inputs; each number that is no integer is replaced by a neighbour.
      outputs: what it returns for them.

    Returns:
      The relative error by name of the output; inf where the two are not comparable.
    """
    random = np.random.default_rng(0)
    nudged = {
        name: _neighbours(array, random) if array.dtype.kind == "f" else array
        for name, array in inputs.items()
    }
    found = compare_outputs(outputs, program.run(nudged))
    return {one.output: one.relative_error for one in found}


def _neighbours(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    side = random.choice([-np.inf, np.inf], array.shape)
    # Without axes, `nextafter` returns a number, which is no input.
    return np.asarray(np.nextafter(array, np.asarray(side, array.dtype)))


def least_exact_type(graph: Graph) -> str:
    """Return the least exact type of floating-point numbers in a graph; "" without any."""
    found = {kind.dtype for node in graph.nodes.values() for kind in node.types if kind}
    return max(found & FLOAT_TYPES, key=lambda one: TOLERANCES[one], default="")


def check(
    first: Model | Program | Reference,
    other: Model,
    trials: Iterable[Arrays],
    *,
    on: Backend | None = None,
    computed_in: str = "",
) -> Equivalence:
    """Compare the outputs of two models.

    Args:
      first: the model that is right by definition, or what runs it.
      other: the model to check; it has the same inputs.
      trials: the inputs to run both on, at least one.
      on: the backend that runs both; onnxruntime by default.
      computed_in: the least exact type that the models compute in, if that is less exact than an
        output's own: its tolerance is allowed then.

    Returns:
      The difference of each output that is largest relative to its tolerance, over all trials.

    Raises:
      UserError: a model cannot be run.
    """
    on = on or backend()
    opened = on.open(first) if isinstance(first, pathlib.Path | onnx.ModelProto) else first
    reference = opened if isinstance(opened, Reference) else Reference(opened)
    program = on.open(other)
    worst: dict[str, Difference] = {}
    num_trials = 0
    for trial, inputs in enumerate(trials):
        num_trials += 1
        expected = reference.run(inputs)
        differences = compare_outputs(expected, program.run(inputs), trial)
        allowed = dict.fromkeys(expected, TOLERANCES.get(computed_in, 0.0))
        if not all(one.allowing(allowed).is_equal for one in differences):
            for name, change in reference.rounding(inputs).items():
                allowed[name] = max(allowed[name], min(_ROUNDINGS * change, _MOST_ROUNDING))
        for difference in differences:
            _keep_worst(worst, difference.allowing(allowed))
    return Equivalence(tuple(worst.values()), num_trials)


def _keep_worst(worst: dict[str, Difference], found: Difference) -> None:
    known = worst.setdefault(found.output, found)
    if found.share_of_tolerance > known.share_of_tolerance:
        worst[found.output] = found


def joined(one: Equivalence, other: Equivalence) -> Equivalence:
    """Return how outputs compare on the trials of both: the larger difference of each output."""
    found = {difference.output: difference for difference in one.differences}
    for difference in other.differences:
        _keep_worst(found, difference)
    return Equivalence(tuple(found.values()), one.num_trials + other.num_trials)


def compare_outputs(
    expected: Mapping[str, Any], found: Mapping[str, Any], trial: int = 0
) -> list[Difference]:
    """Compare the outputs of two runs by name.

    Args:
      expected: what the outputs should be.
      found: what they are.
      trial: index of the inputs, to be kept in the differences.

    Returns:
      A difference for each expected output, then one for each output that is not expected.
    """
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
    if expected.dtype.kind in "iu":
        error = np.abs(exact - actual).max(initial=0.0)
        return Difference(name, float(error / _RANGE_OF_BYTES), tolerance)
    finite = np.isfinite(exact)
    if not np.array_equal(exact[~finite], actual[~finite], equal_nan=True):
        return _unlike(name, "its NaNs or infinities differ")
    exact, actual = exact[finite], actual[finite]
    largest = np.abs(exact).max(initial=0.0)
    error = np.abs(exact - actual).max(initial=0.0)
    if not np.isfinite(error):
        return _unlike(name, "it is not finite everywhere, as it should be")
    # If all of an output should be 0, the error is absolute.
    error = float(error / largest if largest else error)
    return Difference(name, error, tolerance, is_exact=False)
