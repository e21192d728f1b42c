"""The stages of an optimisation: in order, within the time, and none that is not worth it."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import math
import pathlib
import time
import types

import pytest

from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs import search as searches
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.costs.measured import MeasuredObjective
from environments.tensor_graphs.costs.table import CostTable
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.search import EXHAUSTED, Result, Visited, replay
from environments.tensor_graphs.search.results import step_of
from tests.environments.tensor_graphs.costs.graphs import graph_cost
from tests.environments.tensor_graphs.execution.models import parsed
from tests.environments.tensor_graphs.search.fakes import ops_of
from tests.environments.tensor_graphs.small_models import adapter, relu
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs.optimize import searching
from tfrl_systems.systems.tensor_graphs.optimize.request import Optimization
from tfrl_systems.systems.tensor_graphs.optimize.searching import search
from tfrl_systems.systems.tensor_graphs.optimize.task import Reading, Task
from tfrl_systems.systems.tensor_graphs.original import Original
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem, Rewriting


class Counted(MeasuredObjective):
    """Each operator takes as long as `AnalyticObjective` says, times 10; nothing really runs."""

    def _measure(self, graph, members):
        self.num_measured += 1
        plain = AnalyticObjective()
        return 10 * sum(plain.node_cost_ms(graph, member) for member in members)

    @property
    def alone(self):
        alone = Counted(backend(), self.table, self.sizes, fused=False)
        alone.deadline_s = self.deadline_s
        return alone


def objective():
    return Counted(backend(), CostTable())


def problem_of(model, costs=None):
    original = Original("m", model, [backend()])
    problem = GraphProblem.at(original, Rewriting(objective="analytic"), original.choose({}))
    return dataclasses.replace(problem, objective=costs or objective())


class Lines(Reporter):
    def __init__(self):
        self.lines = []

    @contextlib.contextmanager
    def status(self):
        yield self.lines.append


def run(problem, seconds=60.0, began_s=None, early=None, walker=None, ratio=2.0, **fields):
    model = pathlib.Path("m.onnx")
    request = Optimization(model=model, output=model, seconds=seconds, expansions=200, **fields)
    began_s = time.monotonic() if began_s is None else began_s
    # Neither is anything run nor written.
    reading = Reading(None, (), None, walker)
    task = Task(request, reading, problem, None, began_s)
    reporter, early = Lines(), [] if early is None else early
    proposals = search(task, reporter, lambda state: early.append(state) or ratio)
    return proposals, list(dict.fromkeys(line.split(":")[0] for line in reporter.lines))


def test_the_stages_come_in_order():
    problem = problem_of(adapter())
    proposals, lines = run(problem)
    unmeasured = ["looking for places where rules apply", "measuring operators", "searching"]
    assert run(problem_of(adapter()), measure=False)[1] == unmeasured
    # Other methods search from the model itself.
    assert "removing computations" not in run(problem_of(adapter()), method="greedy")[1]
    assert lines == [
        "looking for places where rules apply",
        "removing computations",
        "searching by formula",
        "measuring what the search by formula found",
        "measuring operators",
        "searching",
        "searching by single operators",
    ]
    assert proposals.result.best.cost_ms < proposals.result.start_cost_ms
    assert proposals.num_measured > 0 and proposals.num_estimated == 0
    assert 0 < len(proposals.states) <= 7
    # Whatever search a candidate comes from, its costs are those of the main one.
    for state in proposals.states:
        assert state.trail[0].cost_ms == proposals.result.start_cost_ms


def test_nothing_is_measured_where_no_rule_applies():
    proposals, lines = run(problem_of(relu()))
    assert lines == ["looking for places where rules apply"]
    assert (proposals.num_measured, proposals.result.expansions, proposals.states) == (0, 0, ())


def test_what_is_best_without_contrib_is_proposed_beside_what_is_best_with_it():
    silu = """g (float[4,64] x) => (float[4,64] z)
        { r = Relu(x) y = Relu(r) s = Sigmoid(y) z = Mul(y, s) }"""
    problem = dataclasses.replace(problem_of(parsed(silu)), rules=rule_files.load(contrib=True))
    proposals, lines = run(problem, contrib=True)
    assert lines.index("searching for all runtimes") < lines.index("searching")
    kinds = [set(ops_of(state.state.graph)) for state in proposals.states]
    assert {"Relu", "Sigmoid", "Mul"} in kinds and {"Relu", "QuickGelu"} in kinds


def test_when_time_is_over_one_operator_is_measured_and_the_others_are_estimated_like_it():
    """All take 10 times as long here as where the formula comes from, by which no rule pays."""
    products = """g (float[4,64] x, float[64,64] w, float[64,32] v) => (y)
        { a = MatMul(x, w) y = MatMul(a, v) }"""
    problem = problem_of(parsed(products))
    proposals, _ = run(problem, seconds=1.0, began_s=time.monotonic() - 5)
    assert proposals.num_measured == 1 and proposals.num_estimated > 0
    assert proposals.result.expansions == 0 and proposals.result.stopped == "out of time"
    formula_ms = graph_cost(AnalyticObjective(), problem.graph)
    assert proposals.result.start_cost_ms == pytest.approx(10 * formula_ms)


def test_where_no_time_is_left_for_operators_what_the_formula_found_is_all_that_is_proposed():
    """Costs of operators that were not measured would only repeat the formula."""
    early = []
    proposals, lines = run(problem_of(adapter()), began_s=time.monotonic() - 100, early=early)
    assert lines[-1] == "measuring what the search by formula found"
    assert proposals.num_measured == 0 and proposals.num_estimated > 0
    assert proposals.result.path == early[0].path
    assert proposals.result.expansions > 0
    (state,) = proposals.states
    assert state.state.graph == early[0].state.graph
    assert early[0].cost_ms < early[0].trail[0].cost_ms


def greedily(start):
    return searches.search(start, "greedy").candidates[0]


def at_a_loss(start):
    match = max(start.matches, key=lambda match: start.apply(match).cost_ms)
    return replay(Visited(start), (step_of(match),))


@pytest.fixture(params=[greedily])
def walked(monkeypatch, request):
    """Where a stand-in for the policy leads."""
    walked = []

    def walk(problem, policy, until_s):
        assert policy == "walker" and until_s > searching.time.monotonic()
        end = request.param(problem.start)
        walked.append(end)
        cost_ms = problem.start.cost_ms
        return Result("policy", end.state, end.path, (end,), cost_ms, 1, 0.1, EXHAUSTED, 1)

    monkeypatch.setattr(GraphProblem, "walk", walk)
    return walked


@pytest.mark.parametrize("seconds_ago", [0, 100])
def test_where_the_policy_that_comes_along_leads_is_looked_at_first(seconds_ago, walked):
    """With time for a search behind it and without."""
    early = []
    began_s = time.monotonic() - seconds_ago
    proposals, lines = run(problem_of(adapter()), began_s=began_s, early=early, walker="walker")
    assert lines[2] == "taking the steps of the policy that comes along"
    assert early[0] is walked[0] and len(early) > 1
    graphs = [state.state.graph for state in proposals.states]
    assert all(state.state.graph in graphs for state in early[:2])


@pytest.mark.parametrize("walked", [at_a_loss], indirect=True)
def test_where_the_policy_leads_to_higher_costs_nothing_is_measured_there(walked):
    early = []
    proposals, _ = run(problem_of(adapter()), early=early, walker="walker")
    graphs = {state.state.graph for state in (*early, *proposals.states)}
    assert walked[0].state.graph not in graphs


def clock_of(slowdown):
    """A clock for `searching`, whose first two times of the processor are a second apart."""
    times_s = itertools.chain([0, 0, slowdown], itertools.repeat(slowdown))
    processor_s = itertools.count()
    return types.SimpleNamespace(
        monotonic=times_s.__next__, process_time=lambda: float(next(processor_s))
    )


@pytest.mark.parametrize(("slowdown", "is_searched"), [(1.0, True), (2.0, False)])
def test_where_that_pays_on_a_busy_machine_and_time_is_over_no_search_follows(
    slowdown, is_searched, walked, monkeypatch
):
    """On a quiet one a search by formula takes but a second."""
    monkeypatch.setattr(searching, "time", clock_of(slowdown))
    proposals, lines = run(
        problem_of(adapter()), seconds=5.0, began_s=-100.0, walker="walker", ratio=0.9
    )
    assert any("by formula" in line for line in lines) is is_searched
    assert [state.state.graph for state in proposals.states][-1:] == [walked[0].state.graph]


def test_where_that_does_not_pay_what_needs_no_search_is_looked_at():
    """The stand-in says that what the search found is slower; Relu of Relu needs no search."""
    early = []
    relus = """g (float[4,64] x, float[64,64] w) => (y)
        <float two = {2}> { a = Relu(x) b = Relu(a) c = MatMul(b, w) y = Mul(c, two) }"""
    proposals, _ = run(problem_of(parsed(relus)), early=early)
    graphs = [state.state.graph for state in proposals.states]
    _, sure = early
    assert [step.rule for step in sure.path] and ops_of(sure.state.graph).count("Relu") == 1
    assert all(state.state.graph in graphs for state in early)


def test_what_is_not_measured_is_estimated_like_what_is():
    """All measured operators take 10 times what the formula says, so the others do as well."""
    graph = onnx_io.read(models.make("bert-tiny"))
    whole = objective()
    expected_ms = graph_cost(whole, graph)
    some = objective()
    for number in graph.order()[: len(graph.order()) // 4]:
        some.node_cost_ms(graph, number)
    assert 0 < some.num_measured < whole.num_measured
    some.deadline_s = -math.inf
    assert graph_cost(some, graph) == pytest.approx(expected_ms)
    assert some.num_estimated > 0
    assert some.num_measured + some.num_estimated == whole.num_measured
    # What was measured is kept for later runs, and estimates are not.
    later = Counted(backend(), some.table)
    later.deadline_s = -math.inf
    assert graph_cost(later, graph) == pytest.approx(expected_ms)
    assert (later.num_measured, later.num_estimated) == (0, some.num_estimated)


def test_ctrl_c_while_operators_are_measured_goes_on_with_what_there_is():
    class Interrupted(Counted):
        def _measure(self, graph, members):
            raise KeyboardInterrupt

    problem = problem_of(adapter(), Interrupted(backend(), CostTable()))
    proposals, _ = run(problem)
    assert proposals.result.stopped == "interrupted"
    assert proposals.states, "the search by formula came before"
