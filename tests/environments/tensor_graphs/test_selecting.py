"""Of several models the right and fastest one is chosen, or none."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from environments.tensor_graphs import families, onnx_io
from environments.tensor_graphs.analytic import AnalyticObjective
from environments.tensor_graphs.backends import backend
from environments.tensor_graphs.engine import Engine
from environments.tensor_graphs.inputs import random_inputs
from environments.tensor_graphs.measuring import Comparison, Ratio
from environments.tensor_graphs.search import Step, Visited, search
from environments.tensor_graphs.selecting import Measured, proposals, select, verify
from tests.environments.tensor_graphs.small_models import adapter, relu, write

LEVELS = (backend(), backend("onnxruntime-basic"))


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A model, and the way to one with two products instead of six."""
    path = write(tmp_path_factory.mktemp("models") / "m.onnx", adapter())
    start = Engine(families.all_rules(), AnalyticObjective()).start(onnx_io.read(path))
    return path, search(start, "greedy").candidates[0]


def of_graph(graph):
    """A state that nothing led to."""
    state = dataclasses.make_dataclass("State", ["graph", "cost_ms"])(graph, 1.0)
    return Visited(state)


def test_the_faster_one_is_chosen(adapted, tmp_path):
    path, best = adapted
    inputs = random_inputs(adapter())
    told = []
    candidates = list(verify(path, proposals(best), [inputs], tmp_path, LEVELS[0]))
    assert not any(one.refused for one in candidates)
    found = select(path, candidates, inputs, LEVELS, 0.5, tell=told.append)
    assert found.chosen is not None and found.reason == ""
    assert found.measured.full.ratio.high < 0.9 and found.measured.is_gain
    assert any("candidate 1 of" in one for one in told)


def test_a_wrong_one_is_refused_however_fast_it_is(adapted, tmp_path):
    path, _ = adapted
    edit = onnx_io.read(path).edit()
    graph = onnx_io.read(path)
    edit.replace({graph.outputs[0]: graph.nodes[graph.outputs[0].node].inputs[0]})
    wrong = edit.finish()[0]
    inputs = random_inputs(adapter())
    (candidate,) = verify(path, [of_graph(wrong)], [inputs], tmp_path, LEVELS[0])
    assert "relative error" in candidate.refused
    found = select(path, [candidate], inputs, LEVELS, 0.1)
    assert found.chosen is None and "no candidate computes" in found.reason


def test_an_equal_one_is_no_gain(tmp_path):
    path = write(tmp_path / "m.onnx", relu())
    inputs = {"x": np.ones(4, np.float32)}
    candidates = verify(path, [of_graph(onnx_io.read(path))], [inputs], tmp_path, LEVELS[0])
    found = select(path, list(candidates), inputs, LEVELS, 0.1)
    if found.chosen is None:
        assert "of the model's time" in found.reason and found.measured is not None


def test_without_candidates():
    found = select(None, [], {}, LEVELS, 0.1)
    assert (found.chosen, found.reason) == (None, "no rule lowers the estimated cost")


def compared(ratio, low, high, same=(0.99, 1.01)):
    return Comparison(Ratio(ratio, low, high), Ratio(1.0, *same), 1.0, ratio, 9)


@pytest.mark.parametrize(
    "full, best, is_gain",
    [
        (compared(0.9, 0.88, 0.92), compared(0.95, 0.93, 0.97), True),
        (compared(0.98, 0.96, 0.995), compared(0.95, 0.93, 0.97), False),  # within A/A
        (compared(0.9, 0.88, 0.92), compared(1.005, 0.99, 1.02), True),
        (compared(0.9, 0.88, 0.92), compared(1.03, 1.01, 1.05), False),  # at best levels slower
    ],
)
def test_what_a_gain_is(full, best, is_gain):
    assert Measured(full, best, "onnxruntime-basic", "onnxruntime").is_gain is is_gain


def test_proposals_are_where_rules_take_over():
    @dataclasses.dataclass(frozen=True)
    class State:
        graph: int
        cost_ms: float

    found = Visited(State(0, 10.0))
    for number, (xfer, cost_ms) in enumerate([("a", 9.0), ("a", 8.0), ("b", 6.0), ("c", 5.9)], 1):
        found = Visited(State(number, cost_ms), found, Step(xfer, (number,)))
    assert [one.state.graph for one in proposals(found)] == [4, 3, 2]
    assert [one.state.graph for one in proposals(found, most=2)] == [4, 2]
