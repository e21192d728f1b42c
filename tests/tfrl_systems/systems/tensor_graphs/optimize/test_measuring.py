"""Candidates are checked and measured once, early or in the end."""

from __future__ import annotations

import time

import pytest

from environments.tensor_graphs.execution import equivalence
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.search import Budget
from environments.tensor_graphs.selection.selection import Selector
from tests.environments.tensor_graphs.small_models import adapter, write
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs.optimize import optimization
from tfrl_systems.systems.tensor_graphs.optimize.measuring import Judge
from tfrl_systems.systems.tensor_graphs.optimize.request import Optimization
from tfrl_systems.systems.tensor_graphs.optimize.sizing import Task
from tfrl_systems.systems.tensor_graphs.original import Original
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem

LEVELS = (backend(), backend("onnxruntime-basic"))


def task_of(path, began_s):
    """The task of a model that has been optimised since some time."""
    request = Optimization(
        model=path, objective="analytic", seconds=1.0, measure_seconds=2.0, expansions=60
    )
    original = Original("m", path, LEVELS)
    choice = original.choose({})
    problem, trials = GraphProblem.at(original, request, choice), original.make_trials(choice)
    return Task(request, problem, trials, original.reference, LEVELS, None, began_s)


def test_what_was_looked_at_early_is_chosen_though_all_time_is_over(tmp_path, monkeypatch):
    """It was compared when there was time, and no other state is compared later."""
    task = task_of(write(tmp_path / "m.onnx", adapter()), time.monotonic() - 100)
    result = task.problem.search("greedy", Budget(expansions=task.request.expansions or 0))
    best = result.candidates[0]
    assert best.parent is not None and best.parent.match is not None
    checked, check = [], equivalence.check
    monkeypatch.setattr(
        equivalence, "check", lambda *all, **named: checked.append(all[1]) or check(*all, **named)
    )
    judge = Judge(task, tmp_path, Reporter())
    judge.look_at(best)
    judge.look_at(best)
    assert len(checked) == 1
    selection = judge.select([best.parent, best])
    assert selection.chosen is not None and selection.chosen.visited is best
    assert len(checked) == 1 and selection.chosen.path == checked[0]


def test_a_model_whose_runs_take_too_long_is_not_searched(tmp_path, optimized, monkeypatch):
    """A run of 1 s cannot be measured in what is left of a second."""
    monkeypatch.setattr(Selector, "run_s", 1.0)
    monkeypatch.setattr(optimization, "search", lambda *_: pytest.fail("it is searched"))
    ran, *_ = optimized(adapter(), "--seconds", "1")
    assert ran.json["gain"] is False
    assert ran.json["reason"] == (
        "there was no time to measure, since one run takes 1000 ms; give more --seconds"
    )
