"""Episodes side by side are those of the batched environment, through Gymnasium's interface."""

from __future__ import annotations

import numpy as np
import pytest

import environments

gymnasium = pytest.importorskip("gymnasium", reason="pip install -e '.[gymnasium]'")
NAME = "environments.gymnasium:tfrl/LearnToOptimize-v0"
SETTINGS = {"function": "sphere", "dimensions": 3, "episode_length": 2, "reward": "scaled"}


def test_rows_are_the_batched_environment_s():
    vector = gymnasium.make_vec(NAME, num_envs=4, **SETTINGS)
    batched = environments.make("learn_to_optimize", batch_size=4, seed=5, **SETTINGS)
    assert vector.observation_space.shape == (4, 3) and vector.action_space.shape == (4, 2)
    observations, infos = vector.reset(seed=5)
    assert np.array_equal(observations, batched.reset().observation) and infos == {}
    actions = np.full((4, 2), 0.5, np.float32)
    for number in range(5):
        observations, rewards, terminated, truncated, infos = vector.step(actions)
        time_step = batched.step(actions)
        assert np.array_equal(observations, time_step.observation)
        assert np.array_equal(rewards, time_step.reward) and not truncated.any()
        # Two steps and the start of the next episodes: every third step begins anew.
        assert terminated.tolist() == [number % 3 == 1] * 4
        if terminated.all():
            assert np.array_equal(infos["cost"], batched.get_info()["cost"])
            assert infos["_cost"].all()
    vector.close()


def test_gymnasium_s_own_vectors_take_the_single_environment():
    vector = gymnasium.make_vec(NAME, num_envs=2, vectorization_mode="sync", **SETTINGS)
    observations, _ = vector.reset(seed=0)
    assert observations.shape == (2, 3)
    assert vector.step(np.zeros((2, 2), np.float32))[1].shape == (2,)
    vector.close()
