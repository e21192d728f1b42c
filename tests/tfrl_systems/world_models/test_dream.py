"""Dreams: those of the chain are right, and as an environment they keep the contract."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from environments.testing import EnvironmentContractTest
from tests.tfrl_systems.world_models import chain
from tests.tfrl_systems.world_models.conftest import make_model
from tfrl_systems.world_models import dream as dreams
from tfrl_systems.world_models.fitting import Replay

ACTION_SPEC = chain.Chain().action_spec()


def starts_of(model, seed=5):
    given = Replay(model).add(chain.played_by_chance(8, seed))
    return dreams.Remembering(model)(given)


class TestContract(EnvironmentContractTest):
    """A dream of a model with two members that was never fitted."""

    model = None

    def make_environment(self, seed):
        if TestContract.model is None:
            TestContract.model = make_model(num_members=2)
            TestContract.starts = starts_of(TestContract.model)
        dream = dreams.Dream(TestContract.model, temperature=1.2, disagreement=0.5)
        return dreams.DreamEnvironment(dream, TestContract.starts, ACTION_SPEC, 7, seed=seed)


def test_dreams_of_twenty_steps_are_right(fitted, unseen):
    dream = dreams.Dream(fitted)
    starts = dreams.Remembering(fitted)(unseen)
    first = np.flatnonzero(starts.is_first)
    state = tf.nest.map_structure(lambda array: array[first], starts.state)
    place = unseen.place
    right = np.ones(len(first), bool)
    for number in range(chain.NUM_STEPS):
        rows = place[:, number]
        seed = np.array([7, number], np.int32)
        state, reward, is_end = dream.step(state, unseen.steps.action[rows], seed)
        right &= np.abs(reward - unseen.steps.reward[rows]) < 0.1
        if number == chain.NUM_STEPS - 1:
            right &= is_end.numpy()
            break
        right &= ~is_end.numpy()
        after = place[:, number + 1]
        right &= np.all(state.permitted.numpy() == unseen.steps.permitted[after], axis=1)
        real = unseen.steps.observation["state"][after]
        right &= np.argmax(state.latents, axis=1) == np.argmax(real, axis=1)
    assert np.mean(right) >= 0.99


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


def test_temperature_widens_dreams():
    model = make_model()
    state = starts_of(model).drawn(1, True, np.random.default_rng(0))
    many = tf.nest.map_structure(lambda array: np.repeat(array, 2000, axis=0), state)
    actions, seed = np.ones(2000, np.int32), np.array([1, 2], np.int32)
    spreads = []
    for temperature in (0.0, 0.25, 1.0, 4.0):
        after, _, _ = dreams.Dream(model, temperature).step(many, actions, seed)
        spreads.append(float(np.mean(np.std(after.latents, axis=0))))
    assert spreads[0] < 1e-2 and spreads == sorted(spreads) and spreads[3] > 1.5 * spreads[2]


def test_memories_are_those_of_the_episodes(fitted, unseen):
    """The memory before step t is what t steps leave behind; at the start it is empty."""
    starts = dreams.Remembering(fitted)(unseen, at_once=7)
    (memory,) = starts.state.memories
    rows = unseen.place[3]
    assert np.all(starts.is_first[rows] == (np.arange(20) == 0))
    states = fitted.empty(1)
    for row in rows[:4]:
        np.testing.assert_allclose(memory.hidden[row], states[0].hidden[0], atol=1e-5)
        latents = starts.state.latents[row : row + 1]
        states, _ = fitted.step(latents, unseen.steps.action[row : row + 1], states)
    np.testing.assert_array_equal(starts.state.permitted, unseen.steps.permitted)


@pytest.mark.parametrize("only_first", [True, False])
def test_where_dreams_begin(fitted, unseen, only_first):
    starts = dreams.Remembering(fitted)(unseen)
    drawn = starts.drawn(300, only_first, np.random.default_rng(0))
    is_empty = np.all(drawn.memories[0].hidden == 0, axis=1)
    assert is_empty.all() if only_first else 0 < is_empty.sum() < 60


def test_a_batch_of_dreams(fitted, unseen):
    starts = dreams.Remembering(fitted)(unseen)
    environment = dreams.DreamEnvironment(
        dreams.Dream(fitted), starts, ACTION_SPEC, 50, only_first=True, batch_size=3
    )
    time_step = environment.reset()
    count, returns = 0, np.zeros(3)
    while not time_step.is_last().all():
        mask = time_step.observation["action_mask"]
        time_step = environment.step(np.argmax(mask, axis=1).astype(np.int32))
        returns += time_step.reward
        count += 1
    # The model knows that episodes have twenty steps.
    assert count == 20
    np.testing.assert_allclose(environment.get_info()["predicted_return"], returns, rtol=1e-5)
    assert environment.get_info()["steps"].tolist() == [20, 20, 20]


def test_real_segments(fitted, unseen):
    """Episodes of 20 steps make segments of 8, 8 and 4 steps."""
    starts = dreams.Remembering(fitted)(unseen)
    info = {"number": np.arange(len(unseen.steps.reward))}
    made = dreams.real_segments(dreams.Dream(fitted), starts, unseen, info, 8)
    assert made.reward.shape == (300, 8)
    assert made.is_alive.sum(axis=1).tolist() == [8, 8, 4] * 100
    assert made.is_end.sum(axis=1).tolist() == [0, 0, 1] * 100
    assert made.info["number"][1].tolist() == list(range(8, 16))
    np.testing.assert_array_equal(made.final["latent"][0], starts.state.latents[8])
    np.testing.assert_array_equal(made.reward[2, :4], unseen.steps.reward[16:20])
