"""The model that is right by definition, and what it returns: in its own types, and in float64."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from environments.tensor_graphs.execution import accuracy
from environments.tensor_graphs.execution.backends import Arrays, Program
from environments.tensor_graphs.execution.differences import compare_outputs
from environments.tensor_graphs.execution.precise import ImpreciseError, Precise

# Values in float64 take some 30 times as long as a run; so long are they computed for more inputs.
_EXACT_S = 8.0


class Reference:
    """A program that is right by definition, and what it returned; it runs once on each inputs.

    Attributes:
      program: the program.
    """

    def __init__(self, program: Program, precise: Precise | None = None) -> None:
        """Remember a program, and the same model in float64; without it digits do not count."""
        self.program = program
        self._precise = precise
        # The inputs are kept too, so that no others can get their id.
        self._outputs: dict[int, tuple[Arrays, dict[str, Any]]] = {}
        self._roundings: dict[int, dict[str, float]] = {}
        self._exact: dict[int, dict[str, np.ndarray] | None] = {}
        self._errors: dict[int, dict[str, float]] = {}
        self._exact_s = 0.0

    @classmethod
    def of(cls, program: Program | Reference) -> Reference:
        """Return a reference for what may be one already."""
        return program if isinstance(program, Reference) else cls(program)

    def run(self, inputs: Arrays) -> dict[str, Any]:
        """Return the outputs; see `Program.run`."""
        if id(inputs) not in self._outputs:
            self._outputs[id(inputs)] = inputs, self.program.run(inputs)
        return self._outputs[id(inputs)][1]

    def rounding(self, inputs: Arrays) -> dict[str, float]:
        """Return the change of each output with the last digits of the inputs; see `rounding`."""
        if id(inputs) not in self._roundings:
            self._roundings[id(inputs)] = rounding(self.program, inputs, self.run(inputs))
        return self._roundings[id(inputs)]

    def exact(self, inputs: Arrays) -> dict[str, np.ndarray] | None:
        """Return the outputs in float64; None if they cannot be computed, or not in time."""
        if id(inputs) not in self._exact:
            self.run(inputs)
            began_s = time.monotonic()
            self._exact[id(inputs)] = self._computed(inputs, began_s)
            self._exact_s += time.monotonic() - began_s
        return self._exact[id(inputs)]

    def _computed(self, inputs: Arrays, began_s: float) -> dict[str, np.ndarray] | None:
        if self._precise is None or self._exact_s > _EXACT_S:
            return None
        try:
            return self._precise.run(inputs, began_s + 2 * _EXACT_S)
        except ImpreciseError:
            return None

    def usual_errors(self, trials: Iterable[Arrays]) -> dict[str, float]:
        """Return how far outputs usually are from float64; see `accuracy.usual_error`."""
        errors_by_name: dict[str, list[float]] = {}
        for inputs in trials:
            for name, error in self._own_errors(inputs).items():
                errors_by_name.setdefault(name, []).append(error)
        return {name: statistics.median(errors) for name, errors in errors_by_name.items()}

    def _own_errors(self, inputs: Arrays) -> dict[str, float]:
        """Return how far the program's own outputs are from float64, by name."""
        if id(inputs) not in self._errors:
            exact, own = self.exact(inputs) or {}, self.run(inputs)
            self._errors[id(inputs)] = {
                name: accuracy.usual_error(value, own[name])
                for name, value in exact.items()
                if _is_judged(own[name], value)
            }
        return self._errors[id(inputs)]

    def digits_lost(
        self, inputs: Arrays, outputs: Mapping[str, Any], usual: Mapping[str, float]
    ) -> dict[str, str]:
        """Return what is wrong with outputs that are less exact than they may be, by name.

        `outputs` are those of another program; `usual` is the result of `usual_errors`.
        """
        reasons = {}
        exact = self.exact(inputs) or {}
        for name, own_error in self._own_errors(inputs).items():
            value, own, actual = exact[name], self.run(inputs)[name], outputs.get(name)
            if not isinstance(actual, np.ndarray) or actual.shape != own.shape:
                continue
            if accuracy.excess(value, own, actual, usual[name]) > 1:
                error = accuracy.usual_error(value, actual)
                reasons[name] = (
                    f"its error in float64 is {error:.1e}, the model's own {own_error:.1e}"
                )
        return reasons


def _is_judged(own: Any, exact: np.ndarray) -> bool:
    return isinstance(own, np.ndarray) and own.dtype.kind == "f" and own.shape == exact.shape


def rounding(program: Program, inputs: Arrays, outputs: Mapping[str, Any]) -> dict[str, float]:
    """Return how much a program's outputs change with the last digits of its inputs.

    Each number of the inputs that is no integer is replaced by a neighbour; `outputs` is what the
    program returned before that.

    Returns:
      The relative error by name of the output; inf where the two are not comparable.
    """
    random = np.random.default_rng(0)
    nudged = {
        name: _neighbours(array, random) if array.dtype.kind == "f" else array
        for name, array in inputs.items()
    }
    differences = compare_outputs(outputs, program.run(nudged))
    return {difference.output: difference.relative_error for difference in differences}


def _neighbours(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    side = random.choice([-np.inf, np.inf], array.shape)
    # Without axes, `nextafter` returns a number, which is no input.
    return np.asarray(np.nextafter(array, np.asarray(side, array.dtype)))
