"""How long a run takes, on a machine that is not always as quick."""

from __future__ import annotations

import types

import pytest

from environments.tensor_graphs.costs.stopwatch import Stopwatch, time_of
from environments.tensor_graphs.costs.table import CostTable
from environments.tensor_graphs.execution.backends import Timer


def timer_of(durations: list[float]) -> Timer:
    """A timer of runs that take the given times, and the last one for ever."""

    def timer(times: int) -> float:
        taken = (durations.pop(0) if len(durations) > 1 else durations[0] for _ in range(times))
        return sum(taken)

    return timer


def test_the_least_time_counts() -> None:
    # Two to see how long it takes, then nine of which three are near the least.
    assert time_of(timer_of([0.004, 0.004, 0.008, 0.004]))[0] == pytest.approx(0.004)
    # One of nine is quick: more samples, of which two more are.
    slow = [0.004, 0.004, 0.003, *[0.004] * 12, 0.003]
    assert time_of(timer_of(slow))[0] == pytest.approx(0.003)
    # Of what takes long there are three samples; the first two only tell how long.
    assert time_of(timer_of([0.05, 0.05, 0.07, 0.06, 0.05, 0.04]))[0] == pytest.approx(0.05)


def test_a_slower_machine_is_told_from_a_slower_kernel() -> None:
    """The reference takes 1 ms, and all takes `times` as long."""
    times = 1.0

    def runs(seconds: float) -> Timer:
        return lambda number: number * seconds * times

    program = types.SimpleNamespace(timer=lambda inputs, bound: runs(0.001))
    stopwatch = Stopwatch(types.SimpleNamespace(open=lambda model: program), CostTable())
    assert stopwatch.measure_ms(runs(0.01)) == pytest.approx(10)
    times = 1.5
    assert stopwatch.measure_ms(runs(0.01)) == pytest.approx(10)
