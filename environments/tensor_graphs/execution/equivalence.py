"""Check that two models compute the same, by running both on the same inputs.

`differences` says how outputs are compared. A model may make much of the last digit of its inputs:
it rounds to 8 bits inside, or its outputs are near 0 behind a Sigmoid. So where an error is larger
than its type allows, the model that is right is run once more with other last digits. Some times
the change that this makes is allowed.

An error within the tolerance may still be digits that the model itself does not lose. So each
element is also compared with its value in float64, as `reference` says.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import Any

from environments.errors import UserError
from environments.tensor_graphs.execution.backends import Arrays, Backend, Model, Program, backend
from environments.tensor_graphs.execution.differences import (
    TOLERANCES,
    Difference,
    compare_outputs,
    unlike,
)
from environments.tensor_graphs.execution.reference import Reference
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.operators.operator import FLOAT_TYPES

# An error may be this many times the change that other last digits of the inputs make, up to the
# second number. A larger change says that the inputs tell nothing about the model.
_ROUNDINGS, _MOST_ROUNDING = 10.0, 2e-2


@dataclasses.dataclass(frozen=True)
class Equivalence:
    """How the outputs of two models compare.

    Attributes:
      differences: the largest difference of each output, in the model's order.
      num_trials: number of inputs that both were run on.
      num_exact: on how many of these they were also compared with float64.
      is_limited: whether the other model ran on some inputs only with less optimisation.
    """

    differences: tuple[Difference, ...]
    num_trials: int
    num_exact: int = 0
    is_limited: bool = False

    @property
    def worst(self) -> Difference:
        """The difference that is largest relative to its tolerance."""
        return max(self.differences, key=lambda difference: difference.share_of_tolerance)

    @property
    def is_equal(self) -> bool:
        """Whether all errors are within their tolerances."""
        return all(difference.is_equal for difference in self.differences)

    @property
    def max_relative_error(self) -> float:
        """The largest relative error of all outputs."""
        return max(difference.relative_error for difference in self.differences)


def least_exact_type(graph: Graph) -> str:
    """Return the least exact type of floating-point numbers in a graph; "" without any."""
    dtypes = {kind.dtype for node in graph.nodes.values() for kind in node.types if kind}
    return max(dtypes & FLOAT_TYPES, key=lambda dtype: TOLERANCES[dtype], default="")


def check(
    first: Model | Reference,
    second: Model,
    trials: Iterable[Arrays],
    *,
    on: Backend | None = None,
    below: Backend | None = None,
    computed_in: str = "",
) -> Equivalence:
    """Compare the outputs of two models.

    Args:
      first: the model that is right by definition.
      second: the model to check; it has the same inputs.
      trials: the inputs to run both on, at least one.
      on: the backend that runs both; onnxruntime by default.
      below: the same with less optimisation. It runs the other model on inputs without elements on
        which that fails; None for none. (onnxruntime fails on images without elements where it
        itself makes rows of the channels that it keeps in blocks.)
      computed_in: the least exact type that the models compute in, if that is less exact than an
        output's own: its tolerance is allowed then.

    Raises:
      UserError: a model cannot be run.
    """
    on = on or backend()
    reference = first if isinstance(first, Reference) else Reference(on.open(first))
    program, trials = _Fallible(on.open(second), second, below), list(trials)
    usual = reference.usual_errors(trials)
    worst: dict[str, Difference] = {}
    for trial, inputs in enumerate(trials):
        expected = reference.run(inputs)
        actual = program.run(inputs)
        differences = compare_outputs(expected, actual, trial)
        allowed = dict.fromkeys(expected, TOLERANCES.get(computed_in, 0.0))
        if not all(difference.allowing(allowed).is_equal for difference in differences):
            for name, change in reference.rounding(inputs).items():
                allowed[name] = max(allowed[name], min(_ROUNDINGS * change, _MOST_ROUNDING))
        lost = reference.digits_lost(inputs, actual, usual)
        for difference in differences:
            difference = difference.allowing(allowed)
            if difference.is_equal and difference.output in lost:
                difference = dataclasses.replace(
                    unlike(difference.output, lost[difference.output]), trial=trial
                )
            _keep_worst(worst, difference)
    num_exact = sum(reference.exact(inputs) is not None for inputs in trials)
    return Equivalence(tuple(worst.values()), len(trials), num_exact, program.has_failed)


class _Fallible:
    """Runs a model, and where that fails on inputs without elements, with less optimisation."""

    def __init__(self, program: Program, model: Model, below: Backend | None) -> None:
        self._program, self._model, self._below = program, model, below
        self.has_failed = False

    def run(self, inputs: Arrays) -> dict[str, Any]:
        try:
            return self._program.run(inputs)
        except UserError:
            if self._below is None or all(array.size for array in inputs.values()):
                raise
            outputs = self._below.open(self._model).run(inputs)
            self.has_failed = True
            return outputs


def _keep_worst(worst: dict[str, Difference], difference: Difference) -> None:
    largest = worst.setdefault(difference.output, difference)
    if difference.share_of_tolerance > largest.share_of_tolerance:
        worst[difference.output] = difference


def joined(first: Equivalence, second: Equivalence) -> Equivalence:
    """Return how outputs compare on the trials of both: the larger difference of each output."""
    worst = {difference.output: difference for difference in first.differences}
    for difference in second.differences:
        _keep_worst(worst, difference)
    num_trials, num_exact = first.num_trials + second.num_trials, first.num_exact + second.num_exact
    is_limited = first.is_limited or second.is_limited
    return Equivalence(tuple(worst.values()), num_trials, num_exact, is_limited)
