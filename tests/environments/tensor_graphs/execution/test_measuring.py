"""Two models are compared by speed."""

from __future__ import annotations

import dataclasses

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
    return measuring.Comparison(gain, noise, 1.0, ratio, 9)


def test_a_gain_lies_below_what_equal_models_show() -> None:
    assert comparison(0.95, 1.0).is_faster
    assert not comparison(0.95, 1.05).is_faster
    assert not comparison(0.985, 1.0).is_faster
    assert comparison(1.05, 1.0).is_slower
    assert not comparison(1.05, 0.95).is_slower


def test_a_comparison_worked_by_hand(work_clock) -> None:
    """10 ms for one product, 80 ms for eight: 9 turns take 0.9 s, so 0.95 s take ten."""
    short, long = chain("MatMul"), chain(*["MatMul"] * 8)
    feeds = inputs.random_inputs(short)
    backend = backends.backend("onnxruntime-disable")
    for seconds, num_pairs in ((0.1, 9), (0.95, 10), (1.95, 20)):
        comparison = measuring.compare(short, long, feeds, backend, seconds=seconds)
        assert (comparison.first_ms, comparison.other_ms) == (pytest.approx(10), pytest.approx(80))
        ratios = [getattr(comparison.ratio, name) for name in ("value", "low", "high")]
        same = [getattr(comparison.same, name) for name in ("value", "low", "high")]
        assert (ratios, same) == (pytest.approx([8] * 3), pytest.approx([1] * 3))
        assert comparison.num_pairs == num_pairs


@dataclasses.dataclass
class CountingBackend:
    """onnxruntime; remembers how often it opened a model."""

    opened: int = 0

    def open(self, model: backends.Model) -> backends.Program:
        self.opened += 1
        return backends.backend().open(model)


def test_a_large_model_is_opened_once(monkeypatch) -> None:
    """With what it is measured against it fills the memory twice, not five times."""
    model = chain("MatMul")
    feeds = inputs.random_inputs(model)
    small = CountingBackend()
    measuring.Bench(model, feeds, small).at(feeds)
    assert small.opened == 2
    monkeypatch.setattr(measuring, "_LARGE_BYTES", 10)
    large = CountingBackend()
    bench = measuring.Bench(model, feeds, large, backends.backend().open(model))
    assert large.opened == 0
    bench.compare(model, seconds=0.01, pairs=2)
    assert large.opened == 1


def test_size_counts_weights_in_other_files(tmp_path) -> None:
    path = tmp_path / "m.onnx"
    model = models.make("bert-tiny")
    onnx.save_model(model, path, save_as_external_data=True, size_threshold=0)
    (data,) = set(tmp_path.iterdir()) - {path}
    assert measuring.size_bytes(path) == path.stat().st_size + data.stat().st_size
