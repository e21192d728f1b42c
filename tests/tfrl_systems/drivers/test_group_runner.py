"""Groups of episodes of the same context, and what they say of each action."""

from __future__ import annotations

import numpy as np
import pytest

from environments.credit import Credit
from tests.tfrl_systems.drivers.countdowns import LENGTHS, Countdown, Countdowns, Parity
from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.drivers.group_runner import GroupRunner
from tfrl_systems.drivers.jobs import Chunk

NUM_CONTEXTS, GROUP = len(LENGTHS), 3


class Telling(Countdown):
    """Its last step answers for the return, and the steps before for what is always the same."""

    def get_credit(self):
        parts = [("length",)] * (self._length - 1) + [("total",)]
        return Credit({"length": self._length, "total": self._total}, parts)


def run(environment):
    def make_runner():
        return EpisodeRunner([environment], Parity(is_random=True), NUM_CONTEXTS)

    return GroupRunner(make_runner, GROUP).run(Chunk(0, 0))


@pytest.mark.parametrize("environment", [Countdown(), Countdowns(NUM_CONTEXTS)])
def test_each_return_is_compared_with_the_others_of_its_context(environment):
    experience = run(environment)
    assert experience.contexts.tolist() == [f"{length} steps" for length in LENGTHS] * GROUP
    steps = experience.trajectory
    returns = steps.reward.sum(axis=1).reshape(GROUP, NUM_CONTEXTS)
    expected = returns - (returns.sum(axis=0) - returns) / (GROUP - 1)
    assert len({*returns[:, 0]}) > 1, "the actions differ between the episodes of a group"
    is_taken = steps.step_type != 2
    np.testing.assert_allclose(
        steps.policy_info["advantage"], expected.reshape(-1, 1) * is_taken, atol=1e-6
    )
    assert steps.policy_info["advantage"].dtype == np.float32
    assert steps.policy_info["dist_params"]["logits"].shape == (*steps.reward.shape, 2)


def test_an_environment_may_tell_what_each_action_answers_for():
    steps = run(Telling()).trajectory
    whole = run(Countdown()).trajectory.policy_info["advantage"]
    is_last_action = steps.next_step_type == 2
    assert is_last_action.sum(axis=1).tolist() == [1] * GROUP * NUM_CONTEXTS
    np.testing.assert_allclose(steps.policy_info["advantage"], whole * is_last_action, atol=1e-6)
