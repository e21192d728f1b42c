"""Stock TF-Agents learn on the three systems: each pair that makes sense is ahead of chance.

Every system has a pair that is not dear, and so has each way of learning. DQN has no place in
learn_to_optimize, whose actions are vectors.
"""

from __future__ import annotations

import pytest

from tests.environments.inlining.small_modules import write_corpus
from tests.environments.learnable import MODULES
from tests.environments.stock import Stock
from tests.environments.tensor_graphs.small_models import adapter, write

# TF-Agents' categorical networks make a number of an array of one.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array")

NUM_EPISODES = 20


@pytest.fixture
def make(lend, tmp_path):
    corpus = lend("stock-corpus", lambda directory: write_corpus(directory, MODULES))
    problems = {
        "inlining": {"corpus": corpus},
        "tensor_graphs": {
            "models": [write(tmp_path / "adapter.onnx", adapter())],
            "objective": "analytic",
            "max_steps": 4,
            "max_locations": 8,
            "may_stop": False,
        },
        "learn_to_optimize": {"reward": "scaled"},
    }
    stocks = []

    def make_stock(agent, system, **settings):
        stocks.append(Stock(agent, system, **problems[system] | settings))
        return stocks[-1]

    yield make_stock
    for stock in stocks:
        stock.close()


slow = pytest.mark.slow


@pytest.mark.parametrize(
    "agent, system, num_iterations, num_steps",
    [
        pytest.param("reinforce", "tensor_graphs", 5, 32, marks=pytest.mark.ci),
        pytest.param("reinforce", "learn_to_optimize", 5, 32, marks=pytest.mark.ci),
        pytest.param("reinforce", "inlining", 10, 64, marks=pytest.mark.ci),
        pytest.param("ppo", "inlining", 10, 64, marks=slow),
        pytest.param("ppo", "tensor_graphs", 10, 64, marks=slow),
        pytest.param("ppo", "learn_to_optimize", 10, 64, marks=slow),
    ],
)
def test_on_policy(make, agent, system, num_iterations, num_steps):
    stock = make(agent, system)
    chance = stock.chance(NUM_EPISODES)
    stock.learn_on_policy(num_iterations, num_steps)
    assert stock.learned(NUM_EPISODES) > chance


@pytest.mark.parametrize(
    "system, num_rounds",
    [
        pytest.param("inlining", 2, marks=pytest.mark.ci),
        pytest.param("tensor_graphs", 6, marks=slow),
    ],
)
@pytest.mark.filterwarnings("ignore:max_locations")
def test_from_replay(make, system, num_rounds):
    few = {"max_locations": 1} if system == "tensor_graphs" else {}
    stock = make("dqn", system, **few)
    chance = stock.chance(NUM_EPISODES)
    stock.learn_from_replay(num_rounds, num_steps=150, num_updates=60)
    assert stock.learned(NUM_EPISODES) > chance
