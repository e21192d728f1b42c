"""Measurements that are known beforehand."""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Callable
from typing import Any

import onnx

from environments.tensor_graphs.execution import measuring
from environments.tensor_graphs.execution.backends import OnnxRuntime
from environments.tensor_graphs.execution.measuring import Comparison, Ratio


def compared(ratio, low, high, same=(0.99, 1.01)):
    """A comparison of two models, and of two copies of one."""
    return Comparison(Ratio(ratio, low, high), Ratio(1.0, *same), 1.0, ratio, 9)


class NoisyBench:
    """Stands in for `Bench`: another model seems to be 2% faster; so does the model itself."""

    def __init__(self, *_):
        pass

    def compare(self, *_, **__):
        return compared(0.98, 0.97, 0.99, same=(0.97, 1.03))


class WorkClock:
    """A clock that stands still but while onnxruntime runs a model: 10 ms for each operator.

    So a measurement has the same result on any machine, and takes as little time as it can.
    """

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        """The time, in seconds."""
        return self.now_s

    def run(self, num_operators: int) -> None:
        """Let the time pass that so many operators take."""
        self.now_s += 0.01 * num_operators

    def install(self, monkeypatch) -> None:
        """Have onnxruntime run by this clock, and `measuring` look at no other."""
        really_open = OnnxRuntime.open

        def open_counted(backend, model):
            path = isinstance(model, pathlib.Path)
            read = onnx.load(model, load_external_data=False) if path else model
            return _Counted(really_open(backend, model), self, num_operators(read.graph))

        monkeypatch.setattr(OnnxRuntime, "open", open_counted)
        monkeypatch.setattr(OnnxRuntime, "clock", property(lambda _: self.monotonic))
        monkeypatch.setattr(measuring, "time", self)


def num_operators(graph: onnx.GraphProto) -> int:
    """Return how many there are, those of branches and bodies included."""
    inner = (one.g for node in graph.node for one in node.attribute if one.HasField("g"))
    return len(graph.node) + sum(map(num_operators, inner))


@dataclasses.dataclass(frozen=True)
class _Counted:
    program: Any
    clock: WorkClock
    num_operators: int

    def run(self, inputs):
        self.clock.run(self.num_operators)
        return self.program.run(inputs)

    def bind(self, inputs) -> Callable[[], None]:
        run = self.program.bind(inputs)

        def counted() -> None:
            self.clock.run(self.num_operators)
            run()

        return counted
