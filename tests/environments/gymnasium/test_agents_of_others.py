"""Agents of other libraries learn on the three systems as they are: ahead of chance in seconds."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest

import environments.gymnasium
from tests.environments.inlining.small_modules import write_corpus
from tests.environments.learnable import MODULES

HOW = "pip install -e '.[bench]'"
stable_baselines3 = pytest.importorskip("stable_baselines3", reason=HOW)
sb3_contrib = pytest.importorskip("sb3_contrib", reason=HOW)

INLINING, GRAPHS, FUNCTIONS = environments.gymnasium.NAMES
NUM_EPISODES = 20


@pytest.fixture
def problems(lend):
    corpus = lend("stock-corpus", lambda directory: write_corpus(directory, MODULES))
    graphs = {"max_steps": 4, "max_locations": 24, "may_stop": False}
    return {INLINING: {"corpus": corpus}, GRAPHS: graphs, FUNCTIONS: {"reward": "scaled"}}


def mean_return(environment, choose) -> float:
    """The mean return of `choose`, which returns an action for an observation and a mask."""
    returns = []
    for seed in range(NUM_EPISODES):
        observation, _ = environment.reset(seed=seed)
        returns.append(0.0)
        is_over = False
        while not is_over:
            action = choose(observation, environment.unwrapped.action_masks())
            observation, reward, terminated, truncated, _ = environment.step(action)
            returns[-1] += reward
            is_over = terminated or truncated
    return float(np.mean(returns))


def chance(environment) -> float:
    """The mean return of random actions, which are allowed where there is a mask."""
    generator = np.random.default_rng(0)

    def choose(_, mask):
        space = environment.action_space
        if not len(mask):
            return generator.uniform(space.low, space.high).astype(np.float32)
        return int(generator.choice(np.flatnonzero(mask)))

    return mean_return(environment, choose)


@pytest.mark.slow
@pytest.mark.parametrize(
    "ppo, name",
    [
        (stable_baselines3.PPO, INLINING),
        (stable_baselines3.PPO, FUNCTIONS),
        (sb3_contrib.MaskablePPO, INLINING),
        (sb3_contrib.MaskablePPO, GRAPHS),
    ],
)
def test_ppo_of_stable_baselines3_and_its_contrib(problems, ppo, name):
    with gymnasium.make(name, **problems[name]) as environment:
        model = ppo(
            "MlpPolicy", environment, n_steps=128, batch_size=64, learning_rate=1e-3, seed=0
        )
        model.learn(1500)

        def choose(seen, mask):
            masks = {"action_masks": mask} if ppo is sb3_contrib.MaskablePPO else {}
            return model.predict(seen, deterministic=True, **masks)[0]

        assert mean_return(environment, choose) > chance(environment)
