"""Measurements that are known beforehand."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any

import onnx

from environments.tensor_graphs.execution import measuring
from environments.tensor_graphs.execution.backends import OnnxRuntime, backend
from environments.tensor_graphs.execution.isolation import remote
from environments.tensor_graphs.execution.measuring import Comparison, Ratio
from environments.tensor_graphs.search import Step, Visited


def compared(ratio, low, high, same=(0.99, 1.01)):
    """A comparison of two models, and of two copies of one."""
    return Comparison(Ratio(ratio, low, high), Ratio(1.0, *same), 9)


def of_costs(*steps):
    """A path that begins at a cost of 10 ms, of (rule, cost afterwards)."""
    make_state = dataclasses.make_dataclass("State", ["cost_ms", "graph"])
    visited = Visited(make_state(10.0, 0))
    for number, (rule, cost_ms) in enumerate(steps):
        visited = Visited(make_state(cost_ms, number + 1), visited, Step(rule, (number,)))
    return visited


class FakeBench:
    """Stands in for `Bench`; `bench_of` adds its method `compare`."""

    def __init__(self, first, inputs=None, on=None, program=None):
        self.first, self.on = first, on


def bench_of(compare):
    return type("Bench", (FakeBench,), {"compare": compare})


# Another model seems to be 2% faster; so does the model itself.
NoisyBench = bench_of(lambda *_, **__: compared(0.98, 0.97, 0.99, same=(0.97, 1.03)))


class WorkClock:
    """A clock that stands still but while onnxruntime runs a model: 10 ms for each operator.

    So a measurement has the same result on any machine, and takes as little time as it can.
    """

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        """The time, in seconds."""
        return self.now_s

    def run(self, num_operators: int) -> float:
        """Let the time pass that so many operators take; return it."""
        taken_s = 0.01 * num_operators
        self.now_s += taken_s
        return taken_s

    def install(self, monkeypatch) -> None:
        """Have onnxruntime run by this clock, in this process; `measuring` looks at no other."""
        really_open = OnnxRuntime.open

        def open_counted(backend, model, *write_to):
            path = isinstance(model, pathlib.Path)
            read = onnx.load(model, load_external_data=False) if path else model
            return _Counted(really_open(backend, model, *write_to), self, num_operators(read.graph))

        monkeypatch.setattr(OnnxRuntime, "open", open_counted)
        monkeypatch.setattr(remote, "isolated", backend)
        monkeypatch.setattr(measuring, "time", self)


def num_operators(graph: onnx.GraphProto) -> int:
    """Return how many there are, those of branches and bodies included."""
    inner = (
        attribute.g
        for node in graph.node
        for attribute in node.attribute
        if attribute.HasField("g")
    )
    return len(graph.node) + sum(map(num_operators, inner))


@dataclasses.dataclass(frozen=True)
class _Counted:
    program: Any
    clock: WorkClock
    num_operators: int

    def run(self, inputs):
        self.clock.run(self.num_operators)
        return self.program.run(inputs)

    def timer(self, inputs, *, bound=False):
        really = self.program.timer(inputs, bound=bound)

        def timed(times: int) -> float:
            really(1)
            return self.clock.run(times * self.num_operators)

        return timed
