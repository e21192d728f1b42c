"""Dreams: those of the chain are right, and as an environment they keep the contract."""

from __future__ import annotations

import numpy as np
import pytest

from environments.testing import EnvironmentContractTest
from tests.tfrl_systems.world_models import chain
from tests.tfrl_systems.world_models.conftest import make_model
from tfrl_systems.world_models import dream as dreams
from tfrl_systems.world_models.fitting import Replay

ACTION_SPEC = chain.Chain().action_spec()


def starts_of(model, seed=5):
    episodes = Replay(model).add(chain.played_by_chance(8, seed))
    return dreams.Remembering(model)(episodes)


class TestContract(EnvironmentContractTest):
    """A dream of a model with two members that was never fitted."""

    model = None

    def make_environment(self, seed):
        if TestContract.model is None:
            TestContract.model = make_model(num_members=2)
            TestContract.starts = starts_of(TestContract.model)
        dream = dreams.Dream(TestContract.model, temperature=1.2, disagreement=0.5)
        return dreams.DreamEnvironment(dream, TestContract.starts, ACTION_SPEC, 7, seed)


def test_what_disagreement_costs():
    """With three members, the mean reward less λ times the standard deviation."""
    model = make_model(num_members=3)
    starts = starts_of(model)
    state = starts.drawn(4, False, np.random.default_rng(0))
    actions, seed = np.array([0, 1, 2, 0], np.int32), np.array([1, 2], np.int32)
    _, predicted = model.step(state.latents, actions, state.memories)
    members = model.rewards(predicted).numpy()
    assert members.shape == (3, 4) and np.ptp(members, axis=0).min() > 0
    for weight in (0.0, 2.0):
        _, reward, _ = dreams.Dream(model, disagreement=weight).step(state, actions, seed)
        expected = members.mean(axis=0) - weight * members.std(axis=0)
        np.testing.assert_allclose(reward, expected, rtol=1e-4, atol=1e-6)


@pytest.mark.ci
def test_memories_are_those_of_the_episodes(fitted, unseen, monkeypatch):
    """The memory before step t is what t steps leave behind; at the start it is empty."""
    monkeypatch.setattr(dreams, "_EPISODES_AT_ONCE", 7)
    starts = dreams.Remembering(fitted)(unseen)
    (memory,) = starts.state.memories
    number = int(np.argmax(unseen.is_real.sum(axis=1)))
    rows = unseen.place[number]
    assert starts.is_first[rows[:5]].tolist() == [True, False, False, False, False]
    states = fitted.empty(1)
    for row in rows[:4]:
        np.testing.assert_allclose(memory.hidden[row], states[0].hidden[0], atol=1e-5)
        latents = starts.state.latents[row : row + 1]
        states, _ = fitted.step(latents, unseen.steps.action[row : row + 1], states)
    np.testing.assert_array_equal(starts.state.permitted, unseen.steps.permitted)


@pytest.mark.ci
def test_a_dream_of_the_environment_ends_where_the_episode_would(fitted, unseen):
    starts = dreams.Remembering(fitted)(unseen)
    environment = dreams.DreamEnvironment(dreams.Dream(fitted, 0.1), starts, ACTION_SPEC, 50)
    for _ in range(8):
        time_step, total = environment.reset(), 0.0
        begun = int(np.argmax(time_step.observation["latent"]))
        while not time_step.is_last():
            # To the right, and jump.
            action = 2 if time_step.observation["action_mask"][2] else 1
            time_step = environment.step(np.int32(action))
            total += time_step.reward
        info = environment.get_info()
        assert info["steps"] == 5 - begun
        assert info["predicted_return"] == pytest.approx(total, rel=1e-5)
        assert total == pytest.approx(10 - (4 - begun), abs=0.1)


@pytest.mark.ci
def test_real_segments(fitted):
    """An episode of 5 steps and one of 11 make segments of 4 steps, and shorter ones at the end."""
    episodes = Replay(fitted).add(chain.played_by_chance(60, seed=4))
    lengths = episodes.is_real.sum(axis=1).astype(int)
    starts = dreams.Remembering(fitted)(episodes)
    info = {"number": np.arange(lengths.sum())}
    segments = dreams.real_segments(dreams.Dream(fitted), starts, episodes, info, 4)
    expected = [min(4, length - begin) for length in lengths for begin in range(0, length, 4)]
    assert segments.is_alive.sum(axis=1).tolist() == expected
    assert segments.is_end[segments.is_alive].sum() == segments.is_end.sum() == len(lengths)
    np.testing.assert_array_equal(segments.reward[segments.is_alive], episodes.steps.reward)
    first = int(np.flatnonzero(lengths > 4)[0])
    segment = sum(-(-int(length) // 4) for length in lengths[:first])
    begin = int(lengths[:first].sum())
    assert segments.info["number"][segment].tolist() == list(range(begin, begin + 4))
    np.testing.assert_array_equal(
        segments.final["latent"][segment], starts.state.latents[begin + 4]
    )
