"""Two models are compared by speed."""

from __future__ import annotations

import dataclasses
import itertools
import threading
import types

import onnx
import pytest

from environments.tensor_graphs import models
from environments.tensor_graphs.execution import backends, inputs, measuring
from tests.environments.tensor_graphs.execution.models import chain


def test_ratio() -> None:
    # Half of the pairs lie on each side of 0.5; of 16, the 4th from each end enclose its median.
    first = [1.0] * 16
    ratio = measuring.ratio_of(first, [0.42 + 0.01 * k for k in range(16)])
    assert ratio.value == pytest.approx(0.495)
    assert (ratio.low, ratio.high) == (pytest.approx(0.46), pytest.approx(0.53))
    assert str(ratio) == "0.495 [0.460, 0.530]"
    assert measuring.ratio_of([2.0], [1.0]) == measuring.Ratio(0.5, 0.5, 0.5)


def comparison(ratio: float, same: float) -> measuring.Comparison:
    gain, noise = (measuring.Ratio(value, value - 0.01, value + 0.01) for value in (ratio, same))
    return measuring.Comparison(gain, noise, 9)


def test_a_gain_lies_below_what_equal_models_show() -> None:
    assert comparison(0.95, 1.0).is_faster
    assert not comparison(0.95, 1.05).is_faster
    assert not comparison(0.985, 1.0).is_faster
    # 0.01 and 0.04, the latter from 0.97 - 0.01, are 0.01 + 0.866 · 0.04 = 0.0446 together.
    assert comparison(0.955, 0.97).is_faster and not comparison(0.956, 0.97).is_faster
    assert comparison(1.05, 1.0).is_slower
    assert not comparison(1.05, 0.95).is_slower


def test_a_comparison_worked_by_hand(work_clock) -> None:
    """10 ms for one product, 80 ms for eight: 9 turns take 0.9 s, so 0.95 s take ten."""
    short, long = chain("MatMul"), chain(*["MatMul"] * 8)
    feeds = inputs.random_inputs(short)
    backend = backends.backend("onnxruntime-disable")
    for seconds, num_pairs in ((0.1, 9), (0.95, 10), (1.95, 20)):
        comparison = measuring.Bench(short, feeds, backend).compare(long, seconds=seconds)
        assert dataclasses.astuple(comparison.ratio) == pytest.approx((8, 8, 8))
        assert dataclasses.astuple(comparison.same) == pytest.approx((1, 1, 1))
        assert comparison.num_pairs == num_pairs


class BusyMachine:
    """A clock and a backend by it: a run takes 10 ms of the processor, and `slowdown` times that.

    Of the second model, each run takes the next of `takes` in its turn.
    """

    def __init__(
        self, monkeypatch, slowdown: float = 1.0, takes=(0.01,), opening_s: float = 0.0
    ) -> None:
        self.now_s, self.slowdown, self.opening_s, self.opened = 0.0, slowdown, opening_s, 0
        # Models are opened by several threads, which take their turns at the clock.
        self._lock = threading.Lock()
        self._takes = {"first": itertools.repeat(0.01), "second": itertools.cycle(takes)}
        monkeypatch.setattr(measuring, "time", self)

    def monotonic(self) -> float:
        return self.now_s

    def open(self, model):
        with self._lock:
            self.opened += 1
            self.now_s += self.opening_s
        takes = self._takes["first" if model == b"first" else "second"]
        return types.SimpleNamespace(timer=lambda _: lambda times: self._run(times * next(takes)))

    def _run(self, seconds: float) -> float:
        self.now_s += self.slowdown * seconds
        return seconds


@pytest.mark.parametrize(("slowdown", "num_pairs"), [(1, 34), (2.5, 34), (30, 4)])
def test_a_busy_machine_measures_as_many_pairs_as_a_quiet_one(
    slowdown, num_pairs, monkeypatch
) -> None:
    """Of 30 ms, 1 s takes 34. Where each takes 0.9 s of wall time, 3 s are over after 4."""
    machine = BusyMachine(monkeypatch, slowdown)
    compared = measuring.Bench(b"first", {}, machine).compare(b"second", seconds=1.0, pairs=4)
    assert compared.num_pairs == num_pairs


@pytest.mark.parametrize(
    ("takes", "opening_s", "num_processes"),
    [
        ((0.005,), 0.0, 3),
        ((0.01,), 0.05, 3),
        ((0.0095, 0.0102), 0.0, 6),
        ((0.01,), 0.15, 3),
        ((0.01,), 0.3, 2),
        ((0.01,), 2.0, 1),
    ],
)
def test_a_close_thing_is_measured_in_more_processes_and_what_opens_slowly_in_fewer(
    takes, opening_s, num_processes, monkeypatch
) -> None:
    """Half of the time is a gain, all of it is none, and 95 to 102%?

    Three models are opened, one after another here, for measurements of a second.
    """
    machine = BusyMachine(monkeypatch, takes=takes, opening_s=opening_s)
    bench = measuring.Bench(b"first", {}, machine)
    compared = bench.compare(b"second", seconds=1.0, num_processes=3)
    assert machine.opened == 3 * num_processes
    # Pairs of 30 ms that all processes together measure in a second, the last of each begun.
    assert compared.num_pairs >= 34


def test_a_large_model_is_opened_once(monkeypatch) -> None:
    """With what it is measured against it fills the memory twice; a small one is opened twice."""
    small, large = BusyMachine(monkeypatch), BusyMachine(monkeypatch)
    bench = measuring.Bench(b"first", {}, small).at({})
    for num_opened in (3, 4):
        bench.compare(b"second", seconds=0.01, pairs=2)
        assert small.opened == num_opened
    monkeypatch.setattr(measuring, "_LARGE_BYTES", 4)
    program = BusyMachine(monkeypatch).open(b"first")
    measuring.Bench(b"first", {}, large, program).compare(b"second", seconds=0.01, pairs=2)
    assert large.opened == 1


def test_size_counts_weights_in_other_files(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    model = models.make("bert-tiny")
    onnx.save_model(model, path, save_as_external_data=True, size_threshold=0)
    (data,) = set(tmp_path.iterdir()) - {path}
    assert measuring.size_bytes(path) == path.stat().st_size + data.stat().st_size
