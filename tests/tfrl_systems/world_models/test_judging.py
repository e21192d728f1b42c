"""A model is judged by what really happens."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tfrl_systems.world_models import chain
from tfrl_systems.world_models.fitting import Replay
from tfrl_systems.world_models.judging import Judge, explained, f1


@pytest.fixture(scope="module")
def judge(fitted):
    return Judge(fitted)


@pytest.mark.ci
def test_a_fitted_model_is_right_about_new_episodes(judge, unseen):
    judgement = judge.judge(unseen, np.random.default_rng(0))
    assert (
        judgement.reward_r2 > 0.999 and judgement.mask_f1 > 0.999 and judgement.done_accuracy > 0.99
    )
    assert len(judgement.error_by_step) == 20 and max(judgement.error_by_step) < 0.5
    assert len(judgement.reward_error_by_step) == 20 and max(judgement.reward_error_by_step) < 0.5
    assert judgement.predicted_return == pytest.approx(judgement.real_return, abs=0.5)
    assert judgement.invalid_share < 0.02


@pytest.mark.ci
def test_a_wrong_reward_head_is_found(judge, fitted):
    unseen = Replay(fitted).add(chain.played_by_chance(100, seed=3, first=0))
    scale = float(fitted.reward_scale.numpy())
    right = judge.judge(unseen, np.random.default_rng(0))
    try:
        fitted.reward_scale.assign(-scale)
        wrong = judge.judge(unseen, np.random.default_rng(0))
    finally:
        fitted.reward_scale.assign(scale)
    assert wrong.reward_r2 < -1
    assert wrong.predicted_return == pytest.approx(-right.predicted_return)
    assert abs(wrong.predicted_return - wrong.real_return) > 3
    assert min(wrong.reward_error_by_step) > 1
    # The other heads are as they were.
    assert wrong.mask_f1 == right.mask_f1 and wrong.error_by_step == right.error_by_step


def test_explained_variance():
    real = np.array([1.0, 2.0, 3.0])
    assert explained(real, real) == 1
    assert explained(np.full(3, 2.0), real) == 0
    assert explained(np.array([1.0, 2.0, 4.0]), real) == 0.5
    assert explained(np.ones(3), np.ones(3)) == 1 and explained(np.zeros(3), np.ones(3)) == 0


def test_f1():
    real = np.array([True, True, False, False])
    # Two found, one of them right; one of two missed: precision 1/2, recall 1/2.
    assert f1(np.array([True, False, True, False]), real) == 0.5
    assert f1(real, real) == 1 and f1(~real, real) == 0
    assert f1(np.zeros((3, 0), bool), np.zeros((3, 0), bool)) == 1
