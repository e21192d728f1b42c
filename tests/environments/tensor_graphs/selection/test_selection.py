"""Of several models the fastest of those that are right is chosen, or none."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
from onnx import helper

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.execution.reference import Reference
from environments.tensor_graphs.execution.sizes import Sizes
from environments.tensor_graphs.execution.trials import Trial, Trials
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules import library
from environments.tensor_graphs.search import Step, Visited, search
from environments.tensor_graphs.selection import selection
from environments.tensor_graphs.selection.candidates import (
    Candidate,
    Measurement,
    Row,
    verify,
    worth_measuring,
)
from environments.tensor_graphs.selection.selection import NO_TIME, Selector, expected_ratio
from tests.environments.tensor_graphs.selection.fakes import NoisyBench, compared
from tests.environments.tensor_graphs.small_models import adapter, model_of, relu, write

LEVELS = (backend(), backend("onnxruntime-basic"))


@pytest.fixture(scope="module")
def adapted(tmp_path_factory):
    """A model, and the path to one with two products instead of six."""
    path = write(tmp_path_factory.mktemp("models") / "m.onnx", adapter())
    start = Engine(library.all_rules(), AnalyticObjective()).start(onnx_io.read(path))
    return path, search(start, "greedy").candidates[0]


def trials_of(*inputs):
    """Trials of the inputs, the first of which leads; the others have the sizes n=1, 2, …"""
    first, *others = inputs
    named = [Sizes((("n", number),)) for number in range(1, len(inputs))]
    return Trials((Trial(Sizes(), first),), tuple(map(Trial, named, others)))


def reference_of(path):
    return Reference(LEVELS[0].open(path))


def verified(path, proposed, trials, directory):
    return list(verify(reference_of(path), proposed, trials.first, directory, LEVELS[0]))


def select(path, candidates, trials, seconds, on_progress=lambda _: None):
    return Selector(
        path, reference_of(path) if path else None, trials, LEVELS, seconds, on_progress
    ).select(candidates)


def of_graph(graph):
    """Make a state without a path to it."""
    state = dataclasses.make_dataclass("State", ["graph", "cost_ms"])(graph, 1.0)
    return Visited(state)


def test_the_faster_one_is_chosen(adapted, tmp_path, work_clock):
    path, best = adapted
    trials = trials_of(random_inputs(adapter()))
    lines = []
    candidates = verified(path, worth_measuring(best), trials, tmp_path)
    assert not any(candidate.refusal for candidate in candidates)
    selection = select(path, candidates, trials, 0.5, on_progress=lines.append)
    assert selection.chosen is not None and selection.reason == ""
    assert selection.measurement.fully_optimised.ratio.high < 0.9 and selection.measurement.is_gain
    assert any("candidate 1 of" in line for line in lines)


def test_a_wrong_one_is_refused_however_fast_it_is(adapted, tmp_path):
    path, _ = adapted
    edit = onnx_io.read(path).edit()
    graph = onnx_io.read(path)
    edit.replace({graph.outputs[0]: graph.nodes[graph.outputs[0].node].inputs[0]})
    wrong = edit.finish()[0]
    trials = trials_of(random_inputs(adapter()))
    (candidate,) = verified(path, [of_graph(wrong)], trials, tmp_path)
    assert "relative error" in candidate.refusal
    selection = select(path, [candidate], trials, 0.1)
    assert selection.chosen is None and "no candidate computes" in selection.reason


def test_what_there_was_no_time_for_is_not_called_wrong(adapted, tmp_path):
    path, visited = adapted
    trials = trials_of(random_inputs(adapter()))
    (candidate,) = verified(path, [visited], trials, tmp_path)
    late = dataclasses.replace(candidate, refusal=f"{NO_TIME} it at batch=2")
    assert select(path, [late], trials, 0.1).reason == f"{NO_TIME} it at batch=2"


def test_an_equal_one_is_no_gain(tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "Bench", NoisyBench)
    path = write(tmp_path / "m.onnx", relu())
    trials = trials_of({"x": np.ones(4, np.float32)})
    same = of_graph(onnx_io.read(path))
    candidates = verified(path, [same], trials, tmp_path)
    outcome = select(path, candidates, trials, 0.1)
    assert outcome.chosen is None and outcome.measurement is not None
    assert "of the model's time" in outcome.reason


def test_without_candidates():
    selection = select(None, [], trials_of({}), 0.1)
    assert (selection.chosen, selection.reason) == (None, "no rule lowers the estimated cost")


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
    rows = (Row(Sizes(), full),)
    assert Measurement(rows, best, "onnxruntime-basic", "onnxruntime").is_gain is is_gain


@pytest.mark.parametrize(
    "ratio, is_gain",
    [
        (compared(1.005, 0.99, 1.02), True),  # not slower beyond A/A, which is 0.99 to 1.01
        (compared(1.02, 1.01, 1.03), False),
        (compared(0.5, 0.4, 0.6), True),
    ],
)
def test_a_gain_is_slower_at_no_other_size(ratio, is_gain):
    full = compared(0.9, 0.88, 0.92)
    rows = (Row(Sizes((("n", 1),)), full), Row(Sizes((("n", 2),)), ratio))
    measurement = Measurement(rows, full, "onnxruntime", "onnxruntime")
    assert measurement.is_gain is is_gain
    assert measurement.slower == (None if is_gain else rows[1])


def test_a_gain_on_several_threads_is_slower_on_one_too(adapted, tmp_path, monkeypatch):
    """The stand-in is 10% faster on several threads, and 10% slower on one."""

    class OfThreads:
        def __init__(self, model, inputs, on, program=None):
            self.ratio = 0.9 if on.threads > 1 else 1.1

        def compare(self, *_, **__):
            return compared(self.ratio, self.ratio - 0.02, self.ratio + 0.02)

    path, best = adapted
    monkeypatch.setattr(selection, "Bench", OfThreads)
    trials = trials_of(random_inputs(adapter()))
    candidates = verified(path, worth_measuring(best)[:1], trials, tmp_path)
    several, single = [backend("onnxruntime", 2)], backend()
    for alone, is_gain in ((None, True), (single, False)):
        selected = Selector(path, reference_of(path), trials, several, 1.0, single=alone).select(
            candidates
        )
        assert (selected.chosen is not None) is is_gain
    assert selected.reason.endswith("but 1.100 [1.080, 1.120] at 1 thread")


class SlowBench:
    """Stands in for `Bench`: other models take longer, and nobody measures that at length."""

    lengths: list[float] = []

    def __init__(self, *_):
        pass

    def compare(self, *_, seconds, **__):
        self.lengths.append(seconds)
        return compared(1.2, 1.15, 1.25)


def test_what_is_clearly_slower_is_not_measured_at_length(tmp_path, monkeypatch):
    monkeypatch.setattr(selection, "Bench", SlowBench)
    path = write(tmp_path / "m.onnx", relu())
    trials = trials_of({"x": np.ones(4, np.float32)})
    same = of_graph(onnx_io.read(path))
    candidates = verified(path, [same], trials, tmp_path)
    outcome = select(path, candidates, trials, 5.0)
    assert outcome.chosen is None and "takes 1.200" in outcome.reason
    assert SlowBench.lengths and set(SlowBench.lengths) == {0.5}


def test_the_final_measurement_begins_with_what_is_surely_faster(tmp_path, monkeypatch):
    """Of many short measurements the least ratio may be chance."""
    screened = {"lucky": compared(0.9, 0.7, 1.1), "sure": compared(0.95, 0.94, 0.96)}
    path = write(tmp_path / "m.onnx", relu())
    state = of_graph(onnx_io.read(path))
    candidates = [
        Candidate(state, write(tmp_path / name, relu()), None, "", screening)
        for name, screening in screened.items()
    ]
    measured = []

    class Bench(NoisyBench):
        def compare(self, model, **_):
            measured.append(model.name)
            return compared(0.95, 0.94, 0.96)

    monkeypatch.setattr(selection, "Bench", Bench)
    trials = trials_of({"x": np.ones(4, np.float32)})
    assert select(path, candidates, trials, 0.1).chosen.path.name == measured[0] == "sure"


def test_a_short_measurement_counts_beside_what_costs_promise(tmp_path):
    """Half of a gain of 20% is expected; a measurement that deviates by 0.03 counts half."""
    model = onnx_io.read(write(tmp_path / "m.onnx", relu()))
    start = of_graph(model)
    better = Visited(dataclasses.replace(start.state, cost_ms=0.8), start, Step("rule", (0,)))
    for screening, ratio in [(None, 0.9), (compared(1.06, 1.0, 1.12), 0.98)]:
        candidate = Candidate(better, tmp_path, None, "", screening)
        assert expected_ratio(candidate) == pytest.approx(ratio)


def test_a_model_that_is_wrong_at_another_size_is_refused(tmp_path, monkeypatch):
    """It is compared there before it is measured."""

    class FastBench(NoisyBench):
        def compare(self, *_, **__):
            return compared(0.8, 0.79, 0.81)

    monkeypatch.setattr(selection, "Bench", FastBench)
    wrong = model_of([helper.make_node("Relu", ["x"], ["y"])], [], {"x": ["n"]}, {"y": ["n"]})
    right = model_of([helper.make_node("Abs", ["x"], ["y"])], [], {"x": ["n"]}, {"y": ["n"]})
    path = write(tmp_path / "m.onnx", right)
    # Of positive numbers Relu and Abs are the same.
    trials = trials_of({"x": np.ones(4, np.float32)}, {"x": -np.ones(2, np.float32)})
    visited = of_graph(onnx_io.read(write(tmp_path / "w.onnx", wrong)))
    candidates = verified(path, [visited], trials, tmp_path)
    assert candidates[0].refusal == ""
    outcome = select(path, candidates, trials, 0.1)
    assert outcome.chosen is None and "at n=1" in outcome.reason
    assert "relative error" in outcome.candidates[0].refusal


@pytest.mark.parametrize("is_optional", [True, False])
def test_where_time_is_over_only_sizes_that_the_user_gave_must_be_measured(
    is_optional, adapted, tmp_path, monkeypatch
):
    """The first measurement takes all the time; half and double are compared all the same."""

    class LongBench(NoisyBench):
        def compare(self, *_, **__):
            selector.until_s = -math.inf
            return compared(0.8, 0.79, 0.81)

    monkeypatch.setattr(selection, "Bench", LongBench)
    path, best = adapted
    inputs = random_inputs(adapter())
    trials = trials_of(inputs, dict(inputs))
    (candidate,) = verified(path, [best], trials, tmp_path)
    (size,) = (trial.sizes for trial in trials.others)
    optional = [size] if is_optional else []
    selector = Selector(path, reference_of(path), trials, LEVELS, 1.0, optional=optional)
    checked, measurement = selector.measure(candidate)
    assert measurement.unmeasured == tuple(optional) and len(measurement.rows) == 1
    assert checked.refusal == ("" if is_optional else f"{NO_TIME} it at n=1")
    assert checked.equivalence.num_trials == (2 if is_optional else 1)


def test_states_are_worth_measuring_where_rules_take_over():
    @dataclasses.dataclass(frozen=True)
    class State:
        graph: int
        cost_ms: float

    state = Visited(State(0, 10.0))
    for number, (xfer, cost_ms) in enumerate([("a", 9.0), ("a", 8.0), ("b", 6.0), ("c", 5.9)], 1):
        state = Visited(State(number, cost_ms), state, Step(xfer, (number,)))
    assert [end.state.graph for end in worth_measuring(state)] == [4, 3, 2]
    assert [end.state.graph for end in worth_measuring(state, max_states=2)] == [4, 2]
