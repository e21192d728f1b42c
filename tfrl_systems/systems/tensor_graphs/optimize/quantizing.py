"""Quantising: int8 where it is measured faster, within the error that the user names.

It begins with the float model that the search has led to, or with the model itself.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Sequence
from typing import Any

from environments.errors import UserError
from environments.tensor_graphs.execution.measuring import Bench, Comparison
from environments.tensor_graphs.selection.quantization import (
    KINDS,
    Attempt,
    Quantizer,
    Samples,
    time_of,
)
from environments.tensor_graphs.selection.selection import Selection
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs.optimize.searching import Tell
from tfrl_systems.systems.tensor_graphs.optimize.task import Task

_NUM_PROCESSES = 3
# Share of the time of a final measurement that one elsewhere takes.
_ELSEWHERE = 0.25


@dataclasses.dataclass(frozen=True)
class Quantized:
    """What came of quantising.

    Attributes:
      reason: why the written model is not quantised; "" if it is.
      plain: models of each kind with all their nodes quantised.
      chosen: the model that is written; None for none.
      compared: its time over the given model's; None if it was not measured.
    """

    reason: str
    plain: tuple[Attempt, ...] = ()
    chosen: Attempt | None = None
    compared: Comparison | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as `tfrl optimize --json` shows it."""
        return {
            "reason": self.reason,
            **(_attempt(self.chosen) if self.chosen else {}),
            "plain": [_attempt(attempt) for attempt in self.plain],
        }


def quantize(
    task: Task, selection: Selection, directory: pathlib.Path, reporter: Reporter
) -> Quantized:
    """Quantise the model that was selected, or the given one, by the user's samples.

    Raises:
      UserError: this onnxruntime cannot quantise.
    """
    request = task.request
    model = selection.chosen.path if selection.chosen else request.model
    inputs = [trial.inputs for trial in task.reading.inputs]
    samples = Samples(inputs, [task.reference.program.run(arrays) for arrays in inputs])
    assert request.max_error is not None
    with reporter.status() as tell:
        quantizer = Quantizer(model, samples, task.levels[0], directory, request.max_error, tell)
        share_s = request.seconds / len(KINDS)
        attempts = [quantizer.best(kind, share_s, request.final_seconds) for kind in KINDS]
        right = [attempt for attempt in attempts if attempt is not None]
        outcome = _fastest(task, right, model, tell)
    if outcome.reason and quantizer.is_late:
        reason = f"{outcome.reason}; not all nodes were tried alone: give more --seconds"
        outcome = dataclasses.replace(outcome, reason=reason)
    return dataclasses.replace(outcome, plain=tuple(quantizer.plain))


def _fastest(task: Task, right: Sequence[Attempt], model: pathlib.Path, tell: Tell) -> Quantized:
    """Return the fastest attempt, if it is certainly faster than the model and the float one."""
    most = task.request.max_error
    if not right:
        return Quantized(f"no node that gains could be quantised within an error of {most}")
    fastest = min(right, key=time_of)
    tell(f"measuring the quantised model ({fastest.kind})")
    float_bench = Bench(model, task.trials.measured[0].inputs, task.levels[0])
    over_float = _finally(task, float_bench, fastest)
    fastest = dataclasses.replace(fastest, over_float=over_float)
    if not over_float.is_faster:
        what = f"{fastest.kind}, {len(fastest.nodes)} nodes"
        return Quantized(
            f"the best within an error of {most} ({what}) takes {over_float.ratio} of the float "
            f"model's time, and two copies of that {over_float.same} of each other's"
        )
    compared = over_float
    if model != task.request.model:
        bench = Bench(task.request.model, task.trials.measured[0].inputs, task.levels[0])
        compared = _finally(task, bench, fastest)
        if not compared.is_faster:
            return Quantized(f"the best takes {compared.ratio} of the model's time")
    if slower := _slower_elsewhere(task, fastest, tell):
        return Quantized(slower)
    return Quantized("", (), fastest, compared)


def _slower_elsewhere(task: Task, attempt: Attempt, tell: Tell) -> str:
    """Return where a quantised model is slower than the given one; "" for nowhere."""
    first, *others = task.trials.measured
    places = [(f"{trial.sizes}", trial, task.levels[0]) for trial in others]
    if task.single is not None:
        places.append(("1 thread", first, task.single))
    for name, trial, on in places:
        tell(f"measuring the quantised model at {name}")
        try:
            bench = Bench(task.request.model, trial.inputs, on)
            seconds = _ELSEWHERE * task.request.final_seconds
            compared = bench.compare(attempt.path, seconds=seconds, num_processes=1)
        except UserError as error:
            return f"at {name}: {error}"
        if compared.is_slower:
            return f"the best takes {compared.ratio} of the model's time at {name}"
    return ""


def _finally(task: Task, bench: Bench, attempt: Attempt) -> Comparison:
    seconds = task.request.final_seconds
    return bench.compare(attempt.path, seconds=seconds, num_processes=_NUM_PROCESSES)


def _attempt(attempt: Attempt) -> dict[str, Any]:
    compared = attempt.over_float
    return {
        "kind": attempt.kind,
        "nodes": len(attempt.nodes),
        "relative_error": attempt.judgement.error,
        "agreement": attempt.judgement.agreement,
        "over_float_ratio": compared and compared.ratio.value,
        "over_float_ratio_interval": compared and [compared.ratio.low, compared.ratio.high],
    }
