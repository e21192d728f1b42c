"""Of several models the fastest of those that are right is chosen, or none."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

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
from tests.environments.tensor_graphs.execution.models import of_x
from tests.environments.tensor_graphs.selection.fakes import bench_of, compared, of_costs
from tests.environments.tensor_graphs.small_models import adapter, relu, write

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


OF_ADAPTER = trials_of(random_inputs(adapter()))
OF_RELU = trials_of({"x": np.ones(4, np.float32)})


def reference_of(path):
    return Reference(LEVELS[0].open(path))


def verified(path, proposed, trials, directory):
    return list(verify(reference_of(path), proposed, trials.first, directory, LEVELS[0]))


def select(path, candidates, trials, seconds=0.1):
    reference = reference_of(path) if path else None
    return Selector(path, reference, trials, LEVELS, seconds).select(candidates)


def of_graph(graph):
    """Make a state without a path to it."""
    state = dataclasses.make_dataclass("State", ["graph", "cost_ms"])(graph, 1.0)
    return Visited(state)


def test_a_wrong_one_is_refused_however_fast_it_is(adapted, tmp_path):
    path, _ = adapted
    graph = onnx_io.read(path)
    edit = graph.edit()
    edit.replace({graph.outputs[0]: graph.nodes[graph.outputs[0].node].inputs[0]})
    (candidate,) = verified(path, [of_graph(edit.finish()[0])], OF_ADAPTER, tmp_path)
    assert "relative error" in candidate.refusal
    selection = select(path, [candidate], OF_ADAPTER)
    assert selection.chosen is None and "no candidate computes" in selection.reason
    # What there was no time for is not called wrong.
    late = dataclasses.replace(candidate, refusal=f"{NO_TIME} it at batch=2")
    assert select(path, [late], OF_ADAPTER).reason == f"{NO_TIME} it at batch=2"
    assert select(None, [], OF_ADAPTER).reason == "no rule lowers the estimated cost"


@pytest.mark.parametrize(
    "full, best, elsewhere, is_gain",
    [
        ((0.9, 0.88, 0.92), (0.95, 0.93, 0.97), (0.5, 0.4, 0.6), True),
        ((0.98, 0.96, 0.995), (0.95, 0.93, 0.97), (0.5, 0.4, 0.6), False),  # within A/A
        # Not slower beyond A/A, which is 0.99 to 1.01: each at its best level, and elsewhere.
        ((0.9, 0.88, 0.92), (1.005, 0.99, 1.02), (1.005, 0.99, 1.02), True),
        ((0.9, 0.88, 0.92), (1.03, 1.01, 1.05), (0.5, 0.4, 0.6), False),
        ((0.9, 0.88, 0.92), (0.95, 0.93, 0.97), (1.02, 1.01, 1.03), False),
    ],
)
def test_what_a_gain_is(full, best, elsewhere, is_gain):
    sizes = [Sizes((("n", number),)) for number in (1, 2)]
    rows = tuple(map(Row, sizes, (compared(*full), compared(*elsewhere))))
    measurement = Measurement(rows, compared(*best), "onnxruntime-basic", "onnxruntime")
    assert measurement.is_gain is is_gain
    assert measurement.slower == (rows[1] if elsewhere[0] == 1.02 else None)


def test_a_gain_on_several_threads_is_slower_on_one_too(adapted, tmp_path, monkeypatch):
    """The stand-in is 10% faster on several threads, and 10% slower on one."""

    def compare(bench, *_, **__):
        ratio = 0.9 if bench.on.threads > 1 else 1.1
        return compared(ratio, ratio - 0.02, ratio + 0.02)

    path, best = adapted
    monkeypatch.setattr(selection, "Bench", bench_of(compare))
    candidates = verified(path, worth_measuring(best)[:1], OF_ADAPTER, tmp_path)
    for single, is_gain in ((None, True), (backend(), False)):
        several = [backend("onnxruntime", 2)]
        selector = Selector(path, reference_of(path), OF_ADAPTER, several, 1.0, single=single)
        selected = selector.select(candidates)
        assert (selected.chosen is not None) is is_gain
    assert selected.reason.endswith("but 1.100 [1.080, 1.120] at 1 thread")


def test_what_is_clearly_slower_is_not_measured_at_length(tmp_path, monkeypatch):
    lengths = []
    path = write(tmp_path / "m.onnx", relu())
    candidate = Candidate(of_graph(onnx_io.read(path)), path, None, "")

    def compare(*_, seconds, **__):
        lengths.append(seconds)
        return compared(1.2, 1.15, 1.25)

    monkeypatch.setattr(selection, "Bench", bench_of(compare))
    outcome = select(path, [candidate], OF_RELU, 5.0)
    assert outcome.chosen is None and "takes 1.200" in outcome.reason
    assert set(lengths) == {0.5}


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

    def compare(_, model, **__):
        measured.append(model.name)
        return compared(0.95, 0.94, 0.96)

    monkeypatch.setattr(selection, "Bench", bench_of(compare))
    assert select(path, candidates, OF_RELU).chosen.path.name == measured[0] == "sure"


def test_a_short_measurement_counts_beside_what_costs_promise(tmp_path):
    """Half of a gain of 20% is expected; a measurement that deviates by 0.03 counts half."""
    start = of_graph(None)
    better = Visited(dataclasses.replace(start.state, cost_ms=0.8), start, Step("rule", (0,)))
    for screening, ratio in [(None, 0.9), (compared(1.06, 1.0, 1.12), 0.98)]:
        candidate = Candidate(better, tmp_path, None, "", screening)
        assert expected_ratio(candidate) == pytest.approx(ratio)


def test_a_model_that_is_wrong_at_another_size_is_refused(tmp_path, monkeypatch):
    """It is compared there before it is measured. Of positive numbers Relu and Abs are the same."""
    monkeypatch.setattr(selection, "Bench", bench_of(lambda *_, **__: compared(0.8, 0.79, 0.81)))

    def file_of(op):
        return write(tmp_path / op, of_x(f"{{ y = {op}(x) }}"))

    right, wrong = file_of("Abs"), file_of("Relu")
    trials = trials_of({"x": np.ones(4, np.float32)}, {"x": -np.ones(2, np.float32)})
    candidates = verified(right, [of_graph(onnx_io.read(wrong))], trials, tmp_path)
    assert candidates[0].refusal == ""
    outcome = select(right, candidates, trials)
    assert outcome.chosen is None and "at n=1" in outcome.reason
    assert "relative error" in outcome.candidates[0].refusal


@pytest.mark.parametrize("is_optional", [True, False])
def test_where_time_is_over_only_sizes_that_the_user_gave_must_be_measured(
    is_optional, adapted, tmp_path, monkeypatch
):
    """The first measurement takes all the time; half and double are compared all the same."""

    def compare(*_, **__):
        selector.until_s = -math.inf
        return compared(0.8, 0.79, 0.81)

    monkeypatch.setattr(selection, "Bench", bench_of(compare))
    path, best = adapted
    inputs = random_inputs(adapter())
    trials = trials_of(inputs, dict(inputs))
    (candidate,) = verified(path, [best], trials, tmp_path)
    optional = [trials.others[0].sizes] if is_optional else []
    selector = Selector(path, reference_of(path), trials, LEVELS, 1.0, optional=optional)
    checked, measurement = selector.measure(candidate)
    assert measurement.unmeasured == tuple(optional) and len(measurement.rows) == 1
    assert checked.refusal == ("" if is_optional else f"{NO_TIME} it at n=1")
    assert checked.equivalence.num_trials == (2 if is_optional else 1)


def test_states_are_worth_measuring_where_rules_take_over():
    state = of_costs(("a", 9.0), ("a", 8.0), ("b", 6.0), ("c", 5.9))
    assert [end.cost_ms for end in worth_measuring(state)] == [5.9, 6.0, 8.0]
    assert [end.cost_ms for end in worth_measuring(state, max_states=2)] == [5.9, 8.0]
