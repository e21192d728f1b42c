"""The contract catches what it is there for: each broken environment fails its own rule."""

from __future__ import annotations

import numpy as np
import pytest
from tf_agents.environments import py_environment
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from environments.testing import EnvironmentContractTest


class CountDown(py_environment.PyEnvironment):
    """Counts down from a start that the seed draws; reward 1 for the action 1."""

    def __init__(self, seed: int) -> None:
        super().__init__(handle_auto_reset=True)
        self._generator = np.random.default_rng(seed)
        self._left = self._start = self._episode_reward = 0
        self._info = {}

    def observation_spec(self):
        return array_spec.ArraySpec((1,), np.int64)

    def action_spec(self):
        return array_spec.BoundedArraySpec((), np.int64, 0, 1)

    def seed(self, seed):
        self._generator = np.random.default_rng(seed)

    def get_info(self):
        return dict(self._info)

    def _reset(self):
        self._start = self._left = int(self._generator.integers(2, 9))
        self._episode_reward = 0
        return ts.restart(self._observation())

    def _step(self, action):
        self._left -= 1
        self._episode_reward += int(action)
        if self._left:
            return ts.transition(self._observation(), reward=float(action))
        self._info = {"context": str(self._start), "reward": float(self._episode_reward)}
        return ts.termination(self._observation(), reward=float(action))

    def _observation(self):
        return np.array([self._left])


class TestCountDown(EnvironmentContractTest):
    def make_environment(self, seed):
        return CountDown(seed)


class Forgetful(CountDown):
    """Its fork does not know how far the episode is."""

    def fork(self):
        twin = Forgetful(0)
        twin.reset()
        return twin


class Float(CountDown):
    def _observation(self):
        return np.array([0.5])


class NoAutoReset(CountDown):
    def should_reset(self, current_time_step):
        return False


class Endless(CountDown):
    def _step(self, action):
        return ts.transition(self._observation(), reward=0.0)


class NoSeed(CountDown):
    count = 0

    def __init__(self, seed):
        NoSeed.count += 1
        super().__init__(NoSeed.count)


class SeedsOnce(CountDown):
    def seed(self, seed):
        pass


class Aliased(CountDown):
    observation = np.zeros(1, np.int64)

    def _observation(self):
        self.observation[0] = self._left
        return self.observation


class InfiniteReward(CountDown):
    def _step(self, action):
        return super()._step(action)._replace(reward=np.float32(np.inf))


class Undiscounted(CountDown):
    def _step(self, action):
        return super()._step(action)._replace(discount=np.float32(1))


class NoContext(CountDown):
    def get_info(self):
        return {"reward": 1.0}


class WordyInfo(CountDown):
    def get_info(self):
        return {"context": "a", "reward": "much"}


class ForgetsInfo(CountDown):
    def _reset(self):
        self._info = {}
        return super()._reset()


class ClosesOnce(CountDown):
    closed = False

    def close(self):
        if self.closed:
            raise OSError("already closed")
        self.closed = True


class MidReset(CountDown):
    def _reset(self):
        return ts.transition(super()._reset().observation, reward=0.0)


@pytest.mark.parametrize(
    "environment, test, rule",
    [
        (Float, "test_tf_agents_validates_it", "tf-agents-valid"),
        (NoAutoReset, "test_step_begins_an_episode_where_none_is", "step-after-last"),
        (MidReset, "test_step_begins_an_episode_where_none_is", "step-before-reset"),
        (MidReset, "test_reset_in_the_middle_of_an_episode", "reset-mid-episode"),
        (MidReset, "test_episodes_follow_the_protocol", "first-step"),
        (Endless, "test_episodes_follow_the_protocol", "ends"),
        (InfiniteReward, "test_episodes_follow_the_protocol", "finite-reward"),
        (Undiscounted, "test_episodes_follow_the_protocol", "last-discount"),
        (NoSeed, "test_seed_and_actions_determine_everything", "same-"),
        (SeedsOnce, "test_seeding_begins_anew", "seed-again"),
        (Aliased, "test_time_steps_stay_as_they_were", "no-aliasing"),
        (NoContext, "test_info_tells_of_the_ended_episode", "info-context"),
        (WordyInfo, "test_info_tells_of_the_ended_episode", "info-numbers"),
        (ForgetsInfo, "test_info_tells_of_the_ended_episode", "info-stays"),
        (Forgetful, "test_a_fork_goes_its_own_way", "fork-same"),
        (ClosesOnce, "test_close_at_any_time", "close-any-time"),
    ],
)
def test_each_broken_rule_is_named(environment, test, rule):
    class Contract(EnvironmentContractTest):
        num_episodes = 5
        max_steps = 100

        def make_environment(self, seed):
            return environment(seed)

    with pytest.raises(AssertionError, match=rf"^{rule}"):
        getattr(Contract(), test)()
