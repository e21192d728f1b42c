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
    assert min(judgement.reward_r2, judgement.mask_f1) > 0.999 and judgement.done_accuracy > 0.99
    for errors in (judgement.error_by_step, judgement.reward_error_by_step):
        assert len(errors) == 20 and max(errors) < 0.5
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


def test_figures_by_hand():
    real = np.array([1.0, 2.0, 3.0])
    assert [explained(guess, real) for guess in (real, real * 0 + 2, [1, 2, 4])] == [1, 0, 0.5]
    ones = np.ones(3)
    assert explained(ones, ones) == 1 and explained(0 * ones, ones) == 0
    real, no_bits = np.array([True, True, False, False]), np.zeros((3, 0), bool)
    # Of two that are said one is right, and one of two is missed: precision 1/2, recall 1/2.
    assert [f1(guess, real) for guess in (real, real[[0, 2, 1, 3]], ~real)] == [1, 0.5, 0]
    assert f1(no_bits, no_bits) == 1
