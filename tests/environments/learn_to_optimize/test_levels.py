"""The scale of rewards, for values of any size."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from environments.errors import UserError
from environments.learn_to_optimize.environment import LearnToOptimizeEnvironment
from environments.learn_to_optimize.functions import Objective, make_objective
from environments.learn_to_optimize.levels import measure_levels
from environments.learn_to_optimize.settings import Settings


def sphere_times(factor: float, offset: float = 0.0) -> Objective:
    """The sphere in other units."""
    sphere = make_objective("sphere")
    return dataclasses.replace(
        sphere, function=lambda rows: factor * sphere.function(rows) + offset
    )


def rewards_of(objective: Objective, **settings: str) -> np.ndarray:
    environment = LearnToOptimizeEnvironment(objective, settings=Settings(**settings), batch_size=4)
    environment.reset()
    return environment.step(np.zeros((4, 1), np.float32)).reward


@pytest.mark.parametrize("factor", [1e-300, 1e5, 1e306])
@pytest.mark.parametrize("reference", ["mean", "old"])
def test_scaled_rewards_do_not_depend_on_the_unit(factor, reference):
    settings = {"reward": "scaled", "reference": reference}
    rewards = rewards_of(sphere_times(factor), **settings)
    np.testing.assert_allclose(rewards, rewards_of(sphere_times(1), **settings), rtol=1e-5)
    assert np.ptp(rewards) > 0.1


@pytest.mark.parametrize("factor", [1e-200, 1e200])
@pytest.mark.parametrize("reward", ["difference", "log1p"])
def test_rewards_that_no_float32_can_hold_are_refused(factor, reward):
    if reward == "log1p" and factor > 1:
        assert np.isfinite(rewards_of(sphere_times(factor), reward=reward, reference="mean")).all()
        return
    with pytest.raises(UserError, match="expected values whose differences are numbers of float32"):
        rewards_of(sphere_times(factor), reward=reward, reference="mean")


def test_what_measuring_found():
    """Values of 5.12² (u² + v²), offset by 1,000: their variance is 5.12⁴ · 8/45."""
    levels = measure_levels(sphere_times(1, 1000), Settings(reward="scaled", reference="mean"))
    assert levels.evaluations == 256
    assert levels.spread == pytest.approx(5.12**2 * (8 / 45) ** 0.5, rel=0.1)
    assert levels.mean == pytest.approx((1000 + 5.12**2 * 2 / 3) / levels.spread, rel=0.01)
    # A constant has no spread.
    levels = measure_levels(sphere_times(0), Settings(reward="scaled"))
    assert (levels.spread, levels.scale) == (0, 1)
