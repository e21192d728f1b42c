"""Trials: the inputs on which models are compared, each with its sizes.

Random inputs may tell nothing. If a detector finds no object, or a sum overflows, its outputs are
the same for all inputs, or are not finite, and a wrong model would pass. Or they are so near 0 that
they consist of rounding, and a right model would not pass. So the model is run first, and where its
outputs tell nothing, inputs of other kinds are tried.

Other mistakes show on special inputs only: near a constant that the model subtracts or compares
with (`anchors`), with integers so large that they wrap around, and at sizes of 0 and 1. Models are
compared on these too, wherever the original runs on them.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx

from environments.errors import UserError
from environments.isolation.process import CrashError
from environments.tensor_graphs.execution.anchors import anchors
from environments.tensor_graphs.execution.backends import Arrays
from environments.tensor_graphs.execution.inputs import (
    KINDS,
    NoInputsError,
    inputs_near,
    random_inputs,
    whole_range_inputs,
)
from environments.tensor_graphs.execution.precise import Precise
from environments.tensor_graphs.execution.reference import Reference
from environments.tensor_graphs.execution.sizes import Sizes

_NUM_TRIALS = 3
# Other kinds of inputs are tried for this long, since a large model takes seconds for each.
_MOST_SECONDS = 8.0
# An output that changes by more than this part with the last digits of the inputs is rounding.
_ROUNDING = 1e-3
# No further special inputs are made once a large model has run on them for so long.
_SPECIAL_S = 5.0
# How far special inputs lie from the constants; those that lose most come first.
_SCALES = (1.0, 1e3, 1e-3)


class Trial(NamedTuple):
    """Inputs for a model by name, and the sizes that they have where it leaves them open."""

    sizes: Sizes
    inputs: Arrays


@dataclasses.dataclass(frozen=True)
class Trials:
    """All inputs on which models are compared and measured.

    Attributes:
      first: those at the sizes that lead the search, at least one.
      others: one for each of the other combinations of sizes.
      note: what is special about them, for people; "" if nothing is.
      special: further inputs to compare on.
      unseen: outputs that have no finite number on any of the inputs, so that a wrong model could
        not be told from a right one.
    """

    first: tuple[Trial, ...]
    others: tuple[Trial, ...] = ()
    note: str = ""
    special: tuple[Trial, ...] = ()
    unseen: tuple[str, ...] = ()

    @property
    def compared(self) -> tuple[Trial, ...]:
        """The trials to compare on before anything is measured."""
        return (*self.special, *self.first)

    @property
    def measured(self) -> tuple[Trial, ...]:
        """The trials to measure on, one for each combination of sizes."""
        return (self.first[-1], *self.others)


def make_trials(
    model: onnx.ModelProto,
    reference: Reference,
    points: Sequence[Sizes],
    own: Sequence[Trial] = (),
    precise: Precise | None = None,
    edges: Iterable[Sizes] = (),
) -> Trials:
    """Make trials at some sizes; inputs of the user's own come last, and are measured on.

    The model's weights are not read. The first of the points leads the search; edges are sizes at
    which the model may run, to compare at too. The model in float64 tells which inputs are special.

    Raises:
      NoInputsError: none are given, and none can be drawn on which the model runs.
    """
    at_first = [trial for trial in own if trial.sizes == points[0]]
    try:
        drawn, kind, note = _telling(model, reference, points[0])
    except NoInputsError:
        if not at_first:
            raise
        drawn, kind, note = [], KINDS[0], ""
    others = []
    for point in points[1:]:
        own_trials = [trial for trial in own if trial.sizes == point]
        if not own_trials:
            own_trials = [Trial(point, random_inputs(model, 0, point, kind))]
        others.append(own_trials[-1])
    special = [*_special_inputs(model, precise, points[0])] if precise is not None else []
    tried = (*special, *_at_edges(model, edges, kind))
    running = tuple(_running(reference, tried))
    first = (*drawn, *at_first)
    runs = [reference.run(trial.inputs) for trial in (*running, *first)]
    return Trials(first, tuple(others), note, running, _unseen_outputs(runs))


def _unseen_outputs(runs: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the outputs of floating-point type that have no finite number in any run."""

    def is_unseen(value: Any) -> bool:
        is_float = isinstance(value, np.ndarray) and value.dtype.kind == "f" and value.size > 0
        return is_float and not np.isfinite(value).any()

    return tuple(name for name in runs[0] if all(is_unseen(outputs[name]) for outputs in runs))


def _running(reference: Reference, trials: Iterable[Trial]) -> Iterator[Trial]:
    """Yield the trials on which the model runs, until `_SPECIAL_S` seconds are over."""
    began_s = time.monotonic()
    for trial in trials:
        try:
            reference.run(trial.inputs)
        except UserError:
            continue
        yield trial
        if time.monotonic() - began_s > _SPECIAL_S:
            return


def _at_edges(model: onnx.ModelProto, edges: Iterable[Sizes], kind: str) -> Iterator[Trial]:
    for sizes in edges:
        with contextlib.suppress(NoInputsError):
            yield Trial(sizes, random_inputs(model, 0, sizes, kind))


def _special_inputs(model: onnx.ModelProto, precise: Precise, sizes: Sizes) -> Iterator[Trial]:
    """Yield inputs of large integers, and inputs near the model's constants."""
    with contextlib.suppress(NoInputsError):
        usual = random_inputs(model, 0, sizes)
        if any(array.dtype.kind in "iu" for array in usual.values()):
            yield Trial(sizes, whole_range_inputs(model, 0, sizes))
        layers = anchors(precise, sizes)
        for scale in _SCALES:
            for seed, layer in enumerate(layers):
                yield Trial(sizes, inputs_near(layer, scale, model, seed, sizes))


def _telling(
    model: onnx.ModelProto, reference: Reference, sizes: Sizes
) -> tuple[list[Trial], str, str]:
    """Draw inputs of the first kind on which all outputs tell something, or of the best one.

    Returns:
      The trials, their kind, and what people should know about it; "" if it is the usual one.

    Raises:
      NoInputsError: none can be drawn on which the model runs.
    """
    best: tuple[int, list[Trial], str, str] | None = None
    why, error = "", ""
    began_s = time.monotonic()
    for kind in KINDS:
        trials = [
            Trial(sizes, random_inputs(model, seed, sizes, kind)) for seed in range(_NUM_TRIALS)
        ]
        try:
            runs = [reference.run(trial.inputs) for trial in trials[:2]]
            # If no output tells anything on two inputs, others of this kind are not worth a run.
            if len(_silent_outputs(runs)) < len(runs[0]):
                runs += [reference.run(trial.inputs) for trial in trials[2:]]
            silent = _silent_outputs(runs)
            if len(silent) < len(runs[0]):
                silent |= _rounded_outputs(reference, trials)
        except CrashError:
            raise
        except UserError as failed:
            error = error or f"{failed}; give inputs"
            continue
        if best is None:
            why = ", ".join(f"output {name!r} is {reason}" for name, reason in silent.items())
        if best is None or len(silent) < best[0]:
            best = len(silent), trials, kind, _note(kind, why, tuple(silent))
        if not silent or time.monotonic() - began_s > _MOST_SECONDS:
            break
    if best is None:
        raise NoInputsError(error)
    return best[1:]


def _note(kind: str, why: str, silent: Sequence[str]) -> str:
    """Say why inputs are not of the usual kind, and which outputs tell nothing even so."""
    if kind == KINDS[0]:
        return f"{why} on all random inputs that were tried" if why else ""
    note = f"compared on {kind}, since on {KINDS[0]} {why}"
    if silent:
        verb = "is" if len(silent) == 1 else "are"
        note += f"; {', '.join(map(repr, silent))} {verb} still not telling"
    return note


def _silent_outputs(runs: Iterable[Mapping[str, Any]]) -> dict[str, str]:
    """Return the outputs from which a wrong model could not be told, and why.

    The reasons, "not finite" or "constant", are by name of the output.
    """
    reasons: dict[str, str] = {}
    first, *others = runs
    for name, value in first.items():
        values = [value, *(run[name] for run in others)]
        if not all(isinstance(output, np.ndarray) for output in values):
            continue
        if any(output.dtype.kind == "f" and not np.isfinite(output).all() for output in values):
            reasons[name] = "not finite"
        elif all(np.array_equal(value, output) for output in values[1:]):
            reasons[name] = "constant"
    return reasons


def _rounded_outputs(reference: Reference, trials: Sequence[Trial]) -> dict[str, str]:
    reasons = {}
    for trial in trials:
        for name, change in reference.rounding(trial.inputs).items():
            if change > _ROUNDING:
                reasons[name] = "rounding"
    return reasons
