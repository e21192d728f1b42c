"""The model that is right by definition, and what it returns: in its own types, and in float64.

How exact other outputs are is judged by their distance from float64, beside the model's own.
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

import contextlib
import statistics
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from environments.errors import UserError
from environments.isolation.process import Process
from environments.tensor_graphs.execution.backends import Arrays, Model, Program
from environments.tensor_graphs.execution.differences import compare_outputs
from environments.tensor_graphs.execution.isolation.remote import content_of, model_process
from environments.tensor_graphs.execution.precise import Budgeted, Precise

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
      usual: the median of `usual_error` on several inputs.
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


EXACT_S = 8.0
"""Values in float64 take some 30 times as long as a run, so they are not computed for more inputs
once that has taken so many seconds."""


class Reference:
    """A program that is right by definition, and what it returned; it runs once on each inputs."""

    def __init__(
        self, program: Program, precise: Precise | None = None, exact_s: float = EXACT_S
    ) -> None:
        """Remember a program, and the same model in float64; without it digits do not count.

        `exact_s` is as `EXACT_S`.
        """
        self.program = program
        self._precise = None if precise is None else Budgeted(precise, exact_s)
        self._ahead: tuple[Sequence[Arrays], Process, threading.Thread] | None = None
        # The inputs are kept too, so that no others can get their id.
        self._outputs: dict[int, tuple[Arrays, dict[str, Any]]] = {}
        self._runs_s: dict[int, float] = {}
        self._roundings: dict[int, dict[str, float]] = {}
        self._exact: dict[int, dict[str, np.ndarray] | None] = {}
        self._errors: dict[int, dict[str, float]] = {}

    def run(self, inputs: Arrays) -> dict[str, Any]:
        """Return the outputs; see `Program.run`."""
        if id(inputs) not in self._outputs:
            self._outputs[id(inputs)] = inputs, self.program.run(inputs)
        return self._outputs[id(inputs)][1]

    def run_s(self, inputs: Arrays) -> float:
        """Return how long a run takes: seconds of the processor, where the backend counts these."""
        if id(inputs) not in self._runs_s:
            self.run(inputs)
            self._runs_s[id(inputs)] = self.program.timer(inputs)(1)
        return self._runs_s[id(inputs)]

    def rounding(self, inputs: Arrays) -> dict[str, float]:
        """Return how much each output changes with the last digits of the inputs.

        Each number of the inputs that is no integer is replaced by a neighbour. The relative errors
        are by output, inf where not comparable.
        """
        if id(inputs) not in self._roundings:
            random = np.random.default_rng(0)
            nudged = {
                name: _neighbours(array, random) if array.dtype.kind == "f" else array
                for name, array in inputs.items()
            }
            differences = compare_outputs(self.run(inputs), self.program.run(nudged))
            self._roundings[id(inputs)] = {
                difference.output: difference.relative_error for difference in differences
            }
        return self._roundings[id(inputs)]

    def exact(self, inputs: Arrays) -> dict[str, np.ndarray] | None:
        """Return the outputs in float64; None if they cannot be computed, or not in time."""
        self._collect()
        if id(inputs) not in self._exact:
            self.run(inputs)
            precise = self._precise
            self._exact[id(inputs)] = None if precise is None else precise.run(inputs)
        return self._exact[id(inputs)]

    def compute_ahead(
        self, model: Model, learned: Sequence[onnx.ValueInfoProto], trials: Sequence[Arrays]
    ) -> None:
        """Have another process compute outputs in float64, until the first of them is needed.

        For a large model they take seconds, and they do not depend on candidates. `learned` are
        types of values that no inference knows (`onnx_io.read`).
        """
        assert self._precise is not None
        process = model_process()
        request = {
            "do": "exact",
            "model": content_of(model),
            "learned": [value.SerializeToString() for value in learned],
            "trials": [dict(inputs) for inputs in trials],
            "seconds": self._precise.seconds,
        }
        # Large inputs are taken only once the process is up, which takes a while.
        sending = threading.Thread(target=_send, args=(process, request), daemon=True)
        sending.start()
        self._ahead = trials, process, sending

    def _collect(self) -> None:
        if self._precise is None or self._ahead is None:
            return
        (trials, process, sending), self._ahead = self._ahead, None
        # What that process cannot say is computed here.
        with contextlib.suppress(UserError), contextlib.ExitStack() as stack:
            stack.callback(process.kill)
            sending.join()
            answer = process.answer()
            self._precise.spent_s += answer["seconds"]
            for inputs, values in zip(trials, answer["outputs"], strict=True):
                self.run(inputs)
                self._exact[id(inputs)] = values

    def usual_errors(self, trials: Iterable[Arrays]) -> dict[str, float]:
        """Return how far outputs usually are from float64; see `usual_error`."""
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
                name: usual_error(value, own[name])
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
            if excess(value, own, actual, usual[name]) > 1:
                error = usual_error(value, actual)
                reasons[name] = (
                    f"its error in float64 is {error:.1e}, the model's own {own_error:.1e}"
                )
        return reasons


def _send(process: Process, request: Mapping[str, Any]) -> None:
    # Who waits for the answer meets the error too.
    with contextlib.suppress(UserError):
        process.send(**request)


def _is_judged(own: Any, exact: np.ndarray) -> bool:
    return isinstance(own, np.ndarray) and own.dtype.kind == "f" and own.shape == exact.shape


def _neighbours(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    side = random.choice([-np.inf, np.inf], array.shape)
    # Without axes, `nextafter` returns a number, which is no input.
    return np.asarray(np.nextafter(array, np.asarray(side, array.dtype)))
