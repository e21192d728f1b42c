"""Choose which of several rewritten models to keep, if any: it must be right, then measured faster.

A search minimises an estimate, so what it finds is only proposed. Each candidate is written to a
file as a user would get it, run beside the original on several inputs, and refused if an output
differs. The others are measured end to end against the original: all of them for a short time, then
the fastest ones for as long as it takes to be sure. A candidate is chosen only if it is

  - faster than the original, both fully optimised by the backend, by more than two copies of the
    original differ (A/A), at the sizes that led the search;
  - not slower by more than that, and right, at any of the other sizes, nor on one thread where the
    others are measured on several (sizes that nobody asked for are left out where time is over);
  - not slower than the original where each runs at the level of optimisation that suits it best, so
    that users who know that onnxruntime's optimisations hurt their model lose nothing either.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import pathlib
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

from environments.tensor_graphs.execution.backends import Backend, Timer
from environments.tensor_graphs.execution.measuring import BUSY, FEW_PAIRS, Bench, Comparison, Ratio
from environments.tensor_graphs.execution.reference import Reference
from environments.tensor_graphs.execution.sizes import Sizes
from environments.tensor_graphs.execution.trials import Trial, Trials
from environments.tensor_graphs.selection.candidates import (
    Candidate,
    Measurement,
    Row,
    is_no_slower,
    verified,
)

_SCREENING = 0.1
"""Part of the time of a final measurement that each of the first, short ones takes."""

_AT_OTHER_SIZES = 0.25
"""Part of the time of a final measurement that one at other sizes takes."""

_NUM_PROCESSES = 3
"""How many fresh processes each model is finally measured in; at other sizes it is one."""

# Parts of the time that is left: when no further candidate is screened, and how long the final
# measurement may take then.
_SCREENED, _FINAL = 0.4, 0.6
# Runs of models in the shortest measurement, warm-up included.
_NUM_RUNS = 18
# Runs of so many seconds tell how busy the machine is.
_LOOK_S = 0.05
_NUM_FINALISTS = 3
# As long as so many final measurements is little time.
_FEW_FINAL = 3
# How much the ratios of candidates deviate from each other, roughly.
_GAIN = 0.03
_SAME = Ratio(1.0, 1.0, 1.0)

NO_TIME = "there was no time to measure"

OnProgress = Callable[[str], None]
"""Called with a line that says what is being done."""


@dataclasses.dataclass(frozen=True)
class Selection:
    """The result of a selection.

    Attributes:
      chosen: the candidate to keep; None if none gains.
      reason: why none is chosen; "" if one is.
      candidates: all candidates, in the order in which they were given.
      measurement: that of the chosen candidate, else of the fastest one; None if nothing was
        measured.
    """

    chosen: Candidate | None
    reason: str
    candidates: tuple[Candidate, ...]
    measurement: Measurement | None = None


def first_right(
    reference: Reference, candidates: Sequence[Candidate], trials: Sequence[Trial], on: Backend
) -> Selection:
    """Choose the first candidate that is right on further inputs too, without measuring any."""
    everyone = list(candidates)
    for number, candidate in enumerate(candidates):
        if not candidate.refusal:
            everyone[number] = verified(reference, candidate, trials, on) if trials else candidate
            if not everyone[number].refusal:
                return Selection(everyone[number], "", tuple(everyone))
    return Selection(None, _why_none(everyone), tuple(everyone))


@dataclasses.dataclass(eq=False)
class Selector:
    """Measures candidates against one original model: all shortly, then the fastest at length.

    Attributes:
      levels: the backend at its levels of optimisation, the full one first.
      seconds: wall time of a final measurement; the others take a tenth of it.
      on_progress: is told what is being measured.
      until_s: the time.monotonic() at which all are ready. They become shorter on a machine that is
        too slow for all of them, but a final one is made in any case.
      single: the backend on one thread, to measure on as well; None not to.
      optional: sizes at which a candidate is compared with the original, but measured only as far
        as there is time.
    """

    original: pathlib.Path
    reference: Reference
    trials: Trials
    levels: Sequence[Backend]
    seconds: float
    on_progress: OnProgress = lambda _: None
    until_s: float = math.inf
    single: Backend | None = None
    optional: Collection[Sizes] = ()

    @property
    def short_s(self) -> float:
        """Wall time of a short measurement."""
        return _SCREENING * self.seconds

    @functools.cached_property
    def bench(self) -> Bench:
        """Measures other models against the original, at the sizes that led the search."""
        inputs = self.trials.measured[0].inputs
        return Bench(self.original, inputs, self.levels[0], self.reference.program)

    def select(self, candidates: Sequence[Candidate]) -> Selection:
        """Measure the candidates that were not refused, and choose one or none."""
        right = [candidate for candidate in candidates if not candidate.refusal]
        if not right:
            return Selection(None, _why_none(candidates), tuple(candidates))
        if not self.affordable(1):
            return Selection(None, f"{NO_TIME} a candidate", tuple(candidates))
        screened = {candidate.path: candidate for candidate in self._screen(right)}
        everyone = {
            candidate.path: screened.get(candidate.path, candidate) for candidate in candidates
        }
        finalists = sorted(screened.values(), key=expected_ratio)
        if (shortly := finalists[0].screening) is not None and shortly.is_slower:
            # A long measurement would only say so more exactly.
            return Selection(None, _why_slow(shortly), tuple(everyone.values()))
        tried: list[Measurement] = []
        for finalist in finalists[:_NUM_FINALISTS]:
            if tried and (expected_ratio(finalist) > 1 or not self._left_s):
                break
            checked, measurement = self.measure(finalist)
            everyone[finalist.path] = checked
            if checked.refusal:
                continue
            tried.append(measurement)
            if measurement.is_gain:
                return Selection(checked, "", tuple(everyone.values()), measurement)
        all_of_them = tuple(everyone.values())
        if not tried:
            return Selection(None, _why_none(all_of_them), all_of_them)
        return Selection(None, _why_not(tried[0]), all_of_them, tried[0])

    def affordable(self, share: float) -> int:
        """Return for how many short measurements a share of the time that is left suffices."""
        return math.floor(share * self._left_s / (_NUM_RUNS * max(self.run_s, 1e-9)))

    @property
    def run_s(self) -> float:
        """Time of one run of the original; see `Reference.run_s`."""
        return self.reference.run_s(self.trials.measured[0].inputs)

    @functools.cached_property
    def _timer(self) -> Timer:
        return self.reference.program.timer(self.trials.measured[0].inputs)

    @functools.cached_property
    def _slowdown(self) -> float:
        """How many times longer runs take by the clock than by `_timer`, but no more than BUSY."""
        began_s = time.monotonic()
        seconds = self._timer(math.ceil(_LOOK_S / max(self.run_s, 1e-6)))
        return min(BUSY, max(1.0, (time.monotonic() - began_s) / max(seconds, 1e-9)))

    def _screen(self, right: Sequence[Candidate]) -> Iterator[Candidate]:
        """Yield the candidates that are worth a long measurement, as far as there is time."""
        end_s = time.monotonic() + _SCREENED * self._left_s
        num_affordable = self.affordable(_SCREENED)
        # A short measurement of a single one would only put off the long one.
        if not num_affordable or (len(right) == 1 and self._left_s < _FEW_FINAL * self.seconds):
            yield right[0]
            return
        for number, candidate in enumerate(right[:num_affordable]):
            if number and time.monotonic() > end_s:
                return
            self.on_progress(f"measuring candidate {number + 1} of {len(right)}")
            yield self.screened(candidate, end_s)

    def screened(self, candidate: Candidate, end_s: float) -> Candidate:
        """Return a candidate that was measured shortly, unless it was before."""
        if candidate.screening is not None:
            return candidate
        return dataclasses.replace(candidate, screening=self.compare_shortly(candidate.path, end_s))

    def compare_shortly(
        self, path: pathlib.Path, end_s: float, on: Backend | None = None
    ) -> Comparison:
        """Measure a model against the original, for a tenth of a final measurement."""
        return self.bench.compare(
            path, other_backend=on, seconds=self.short_s, pairs=FEW_PAIRS, until_s=end_s
        )

    @property
    def _left_s(self) -> float:
        """Wall time that is left; plenty if nobody waits."""
        return max(0.0, min(self.until_s - time.monotonic(), 1e9))

    def _finally(
        self,
        path: pathlib.Path,
        bench: Bench,
        part: float = 1.0,
        num_processes: int = _NUM_PROCESSES,
        **others: Any,
    ) -> Comparison:
        """Measure a candidate as a user would, in fresh processes, for a part of the usual time."""
        seconds = min(part * self.seconds, _FINAL * self._left_s)
        return bench.compare(
            path,
            seconds=seconds,
            until_s=time.monotonic() + max(_FINAL * self._left_s, self._slowdown * seconds),
            num_processes=num_processes,
            **others,
        )

    def measure(self, candidate: Candidate) -> tuple[Candidate, Measurement]:
        """Measure a candidate at all sizes, until it turns out to be wrong or slower at one."""
        first, *others = self.trials.measured
        self.on_progress(f"measuring the fastest candidate: {self.seconds:.0f} s at {first.sizes}")
        full, level = self._finally(candidate.path, self.bench), self.levels[0].name
        measurement = Measurement((Row(first.sizes, full),), full, level, level)
        for trial in others:
            if not measurement.is_gain:
                break
            is_optional = trial.sizes in self.optional
            if not self._left_s and not is_optional:
                why = f"{NO_TIME} it at {trial.sizes}"
                candidate = dataclasses.replace(candidate, refusal=why)
                break
            self.on_progress(f"measuring the fastest candidate at {trial.sizes}")
            candidate = verified(self.reference, candidate, [trial], self.levels[0])
            if candidate.refusal:
                break
            if not self._left_s and is_optional:
                unmeasured = (*measurement.unmeasured, trial.sizes)
                measurement = dataclasses.replace(measurement, unmeasured=unmeasured)
                continue
            bench = self.bench.at(trial.inputs)
            row = Row(trial.sizes, self._finally(candidate.path, bench, _AT_OTHER_SIZES, 1))
            measurement = dataclasses.replace(measurement, rows=(*measurement.rows, row))
        if self.single is not None and measurement.is_gain and not candidate.refusal:
            self.on_progress("measuring the fastest candidate on one thread")
            bench = Bench(self.original, first.inputs, self.single)
            alone = self._finally(candidate.path, bench, _AT_OTHER_SIZES, 1)
            row = Row(first.sizes, alone, is_single=True)
            measurement = dataclasses.replace(measurement, rows=(*measurement.rows, row))
        if measurement.is_gain and not candidate.refusal and len(self.levels) > 1 and self._left_s:
            measurement = self._at_best_levels(candidate.path, measurement)
        return candidate, measurement

    def _at_best_levels(self, path: pathlib.Path, measurement: Measurement) -> Measurement:
        """Return the measurement with that of both models at the levels that suit them best."""
        self.on_progress("measuring both at each level of optimisation")
        best = self._best_level(self.original)
        own = self._best_level(path, measurement.fully_optimised.ratio)
        if best.name == own.name == self.levels[0].name:
            return measurement
        bench = Bench(self.original, self.trials.measured[0].inputs, best)
        at_best = self._finally(path, bench, other_backend=own)
        return dataclasses.replace(
            measurement, at_best_levels=at_best, original_level=best.name, candidate_level=own.name
        )

    def _best_level(self, model: pathlib.Path, at_first: Ratio = _SAME) -> Backend:
        """Return the first level of optimisation, unless a model is certainly faster at another.

        `at_first` is what the bench measures for the model at the first level.
        """
        end_s = time.monotonic() + _SCREENED * self._left_s
        best, least = self.levels[0], at_first.value
        for level in self.levels[1:]:
            if time.monotonic() > end_s or not self.affordable(_SCREENED):
                break
            comparison = self.compare_shortly(model, end_s, level)
            is_faster = comparison.ratio.high < at_first.low - comparison.margin
            if is_faster and comparison.ratio.value < least:
                best, least = level, comparison.ratio.value
        return best


def expected_ratio(candidate: Candidate) -> float:
    """Return the ratio that a long measurement may show.

    The least ratio of several may be chance. So each is drawn towards half the gain that costs
    promise, the farther the wider its interval is: its expectation, if errors are normal.
    """
    visited = candidate.visited
    before_ms, after_ms = visited.trail[0].cost_ms, visited.cost_ms
    usual = (1 + after_ms / before_ms) / 2 if before_ms else 1.0
    if candidate.screening is None:
        return usual
    ratio = candidate.screening.ratio
    variance = ((ratio.high - ratio.low) / 4) ** 2
    return usual + (ratio.value - usual) * _GAIN**2 / (_GAIN**2 + variance)


def _why_none(candidates: Sequence[Candidate]) -> str:
    if not candidates:
        return "no rule lowers the estimated cost"
    refusals = [candidate.refusal for candidate in candidates if candidate.refusal]
    wrong = f"no candidate computes what the model does ({refusals[0]})"
    return next((refusal for refusal in refusals if refusal.startswith(NO_TIME)), wrong)


def _why_slow(comparison: Comparison) -> str:
    return (
        f"the best candidate takes {comparison.ratio} of the model's time, and two copies of the "
        f"model {comparison.same} of each other's"
    )


def _why_not(measurement: Measurement) -> str:
    full, best = measurement.fully_optimised, measurement.at_best_levels
    if not full.is_faster:
        return _why_slow(full)
    if not is_no_slower(best):
        return (
            f"the best candidate takes {best.ratio} of the time of the model at "
            f"{measurement.original_level}, its best level"
        )
    row = measurement.slower
    assert row is not None
    return (
        f"the best candidate takes {full.ratio} of the model's time at "
        f"{measurement.rows[0].sizes}, but {row.comparison.ratio} at {row.where}"
    )
