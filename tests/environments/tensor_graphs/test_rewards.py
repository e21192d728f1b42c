"""Rewards, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from environments.errors import UserError
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.model import Model
from environments.tensor_graphs.onnx_io import read
from environments.tensor_graphs.rewards import Figures, end_to_end, make_reward
from environments.tensor_graphs.rules.language.notation import op, rule
from tests.environments.tensor_graphs.small_models import relu
from tests.environments.tensor_graphs.test_environment import back, make, relus


@rule
def over(x):
    return op.Relu(x), op.Relu(op.Neg(op.Neg(x)))


@rule
def down(x):
    return op.Neg(op.Neg(x)), x


def test_of_a_step():
    """R1 to R5 are the others with numbers; the bound of least_and_runtime is 0.1%."""
    before, after = Figures(0.9, 0.8, 0.75), Figures(0.7, 0.75, 0.7)
    expected = {
        "R5": 20,
        "runtime_and_memory": 0.6 * 20 + 0.4 * 5,
        "R1": 0.8 * 20 + 0.2 * 5,
        "R3": 0.1 * 20 + 0.9 * 5,
        "R4": 0.5 * 20 + 0.5 * 5,
        "R2": 30,
        "terminal": 0,
        "least_runtime": 5,
        "least_and_runtime": 0.6 * 5 + 0.4 * 0.1,
    }
    rewards = {name: make_reward(name, 0.6, 0.4)(before, after, False) for name in expected}
    assert rewards == pytest.approx(expected)
    assert make_reward("terminal")(before, after, True) == pytest.approx(30)
    bounded = make_reward("least_and_runtime", 0.0, 1.0)
    first, costs = Figures(1.0, 1.0, 0.5), (0.9995, 1.0, 1.2)
    per_cost = [bounded(first, Figures(cost, 1.0, 0.5), False) for cost in costs]
    assert per_cost == pytest.approx([0.05, 0.0, -0.1])
    with pytest.raises(UserError, match="reward: expected one of runtime.*R5, found 'speed'"):
        make_reward("speed")


def rewards_of(*actions, count=4, **settings):
    environment = make(relus(count), rules=(back,), **settings)
    environment.reset()
    steps = [environment.step(np.array(action, np.int32)) for action in actions]
    return [float(step.reward) for step in steps], environment


def test_in_an_episode():
    """Four Relus of 2 ms: the last one is taken away, the one before it, then NO-OP."""
    actions = [0, 2], [0, 1], [1, 0]
    assert rewards_of(*actions)[0] == pytest.approx([25, 25, 0])
    assert rewards_of(*actions, reward="new_runtime")[0] == pytest.approx([25, 50, 50])
    assert rewards_of(*actions, reward="terminal")[0] == pytest.approx([0, 0, 50])
    # A Relu moves as much memory as the next one.
    memory = {"reward": "runtime_and_memory", "alpha": 0.5, "beta": 2.0}
    assert rewards_of(*actions, **memory)[0] == pytest.approx([62.5, 62.5, 0])


def test_a_path_over_a_dearer_graph_costs_nothing():
    """Two Relus of 2 ms get two Negs of 1 ms, lose them again, and become one Relu."""
    environment = make(relus(2), rules=(back, over, down), reward="least_runtime")
    environment.reset()
    steps, costs_ms = [], []
    for action in ([1, 0], [2, 0], [0, 0]):
        steps.append(environment.step(np.array(action, np.int32)))
        costs_ms.append(environment.state.cost_ms)
    assert costs_ms == [6, 4, 2]
    assert [float(step.reward) for step in steps] == pytest.approx([0, 0, 50])


def test_measured_every_other_step():
    """Estimated 3/4, 1/2, 1/4; measured 0.8 after two steps, 0.7 in the end, and no graph twice."""
    measured = iter([0.8, 0.7])
    per_step, environment = rewards_of(
        *([0, 2], [0, 1], [0, 0]), measure_every=2, measure_fn=lambda first, graph: next(measured)
    )
    # The first is the estimate, the second corrects it, the third is the end and measured again.
    assert per_step == pytest.approx([25, 100 * (0.75 - 0.8), 100 * (0.8 - 0.7)])
    assert environment.get_info()["measured_ratio"] == pytest.approx(0.7)
    assert sum(per_step) == pytest.approx(30)
    ended, _ = rewards_of([1, 0], measure_every=1, measure_fn=lambda *_: pytest.fail("measured"))
    assert ended == [0]


def test_end_to_end_is_a_ratio():
    model = Model("relu", read(relu()))
    assert 0.2 < end_to_end(backend(), seconds=0.05)(model.graph, model.graph) < 5
