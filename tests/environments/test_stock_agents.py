"""Stock TF-Agents learn on the three systems: each pair that makes sense is ahead of chance.

DQN has no place in learn_to_optimize, whose actions are vectors.
"""

from __future__ import annotations

import pytest

from tests.environments.inlining.small_modules import write_corpus
from tests.environments.learnable import MODULES
from tests.environments.stock import Stock

# TF-Agents' categorical networks make a number of an array of one.
pytestmark = pytest.mark.filterwarnings("ignore:Conversion of an array")

NUM_EPISODES = 20


@pytest.fixture
def make(lend):
    corpus = lend("stock-corpus", lambda directory: write_corpus(directory, MODULES))
    problems = {
        "inlining": {"corpus": corpus},
        "tensor_graphs": {
            "models": ["bert-tiny"],
            "objective": "analytic",
            "max_steps": 4,
            "max_locations": 24,
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
    "agent, system",
    [
        ("reinforce", "inlining"),
        ("reinforce", "tensor_graphs"),
        ("reinforce", "learn_to_optimize"),
        pytest.param("ppo", "inlining", marks=slow),
        pytest.param("ppo", "tensor_graphs", marks=slow),
        pytest.param("ppo", "learn_to_optimize", marks=slow),
    ],
)
def test_on_policy(make, agent, system):
    stock = make(agent, system)
    chance = stock.chance(NUM_EPISODES)
    stock.learn_on_policy(num_iterations=10, num_steps=64)
    assert stock.learned(NUM_EPISODES) > chance


@pytest.mark.parametrize(
    "system, num_rounds", [("inlining", 3), pytest.param("tensor_graphs", 6, marks=slow)]
)
@pytest.mark.filterwarnings("ignore:max_locations")
def test_from_replay(make, system, num_rounds):
    few = {"max_locations": 1} if system == "tensor_graphs" else {}
    stock = make("dqn", system, **few)
    chance = stock.chance(NUM_EPISODES)
    stock.learn_from_replay(num_rounds, num_steps=150, num_updates=100)
    assert stock.learned(NUM_EPISODES) > chance
