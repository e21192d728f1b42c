"""Padding, and experience however it was cut."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
import tree
from hypothesis import given
from hypothesis import strategies as st
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from tfrl_systems import episodes

FIRST, MID, LAST = map(int, (ts.StepType.FIRST, ts.StepType.MID, ts.StepType.LAST))


def steps_of(num_steps: int) -> trajectory.Trajectory:
    """An episode [T] whose observation is 10, 11, …; the reward comes with the last step."""
    kinds = np.array([FIRST] + [MID] * (num_steps - 1) + [LAST], np.int32)[: num_steps + 1]
    return trajectory.Trajectory(
        step_type=kinds[:num_steps],
        observation={"x": np.arange(10, 10 + num_steps)},
        action=np.arange(num_steps) % 2,
        policy_info={"log_probability": -0.5 * np.ones(num_steps, np.float32)},
        next_step_type=kinds[1 : num_steps + 1],
        reward=np.eye(1, num_steps, num_steps - 1, dtype=np.float32)[0],
        discount=np.zeros(num_steps, np.float32),
    )


def side_by_side(*lengths: int) -> trajectory.Trajectory:
    """Episodes of these lengths, [B, T]."""
    together = tree.map_structure(lambda *arrays: np.concatenate(arrays), *map(steps_of, lengths))
    return episodes.split_episodes(together, lengths)


def experience(*contexts: str) -> episodes.Experience:
    """An episode of as many steps as each name has letters; each step costs 0.5."""
    lengths = [len(context) for context in contexts]
    costs = [{"cost": length / 2} for length in lengths]
    return episodes.Experience.of(side_by_side(*lengths), contexts, costs)


def test_shorter_episodes_are_padded_with_boundary_steps():
    stacked = side_by_side(2, 4)
    np.testing.assert_array_equal(stacked.step_type, [[0, 1, LAST, LAST], [0, 1, 1, 1]])
    np.testing.assert_array_equal(stacked.next_step_type, [[1, LAST, 0, 0], [1, 1, 1, LAST]])
    np.testing.assert_array_equal(stacked.observation["x"], [[10, 11, 11, 11], [10, 11, 12, 13]])
    np.testing.assert_array_equal(stacked.action, [[0, 1, 1, 1], [0, 1, 0, 1]])
    np.testing.assert_array_equal(stacked.reward, [[0, 1, 0, 0], [0, 0, 0, 1]])
    np.testing.assert_array_equal(stacked.discount, [[0, 0, 1, 1], [0, 0, 0, 0]])
    assert np.all(stacked.policy_info["log_probability"] == -0.5)
    np.testing.assert_array_equal(stacked.is_boundary(), [[0, 0, 1, 1], [0, 0, 0, 0]])
    assert stacked.step_type.dtype == np.int32 and stacked.reward.dtype == np.float32


def test_experience_counts_what_was_collected_and_not_the_padding():
    three = experience("aa", "bcde", "f")
    assert (three.num_episodes, three.num_steps, three.mean_return) == (3, 7, 1.0)
    assert list(three.contexts) == ["aa", "bcde", "f"]
    np.testing.assert_array_equal(three.info["cost"], [1, 2, 0.5])


@pytest.mark.parametrize(("length", "usual"), [(1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (9, 16)])
def test_usual_lengths_are_powers_of_two(length, usual):
    longer = experience("a" * length, "b").with_usual_length()
    assert longer.trajectory.step_type.shape == (2, usual)
    assert (longer.num_steps, longer.mean_return) == (length + 1, 1.0)


@given(st.lists(st.integers(1, 6), min_size=1, max_size=7), st.data())
def test_experience_is_the_same_however_it_was_cut(lengths, data):
    every = ["c" * length for length in lengths]
    cuts = data.draw(st.sets(st.integers(1, len(every))))
    bounds = [0, *sorted(cuts | {len(every)})]
    parts = [experience(*every[low:high]) for low, high in itertools.pairwise(bounds)]
    together = episodes.Experience.concatenate(parts)
    assert together.sha256() == experience(*every).sha256()
    assert together.num_steps == sum(lengths)


def test_no_parts_are_no_experience():
    with pytest.raises(ValueError, match="expected parts to concatenate, found none"):
        episodes.Experience.concatenate([])


def test_the_hash_sees_every_bit_dtype_shape_and_name():
    def changed(**fields):
        return dataclasses.replace(original, trajectory=original.trajectory._replace(**fields))

    original = experience("aa", "bbb")
    reward = original.trajectory.reward.copy()
    reward[0, 0] = np.nextafter(reward[0, 0], np.float32(1))
    others = [
        changed(reward=reward),
        changed(reward=original.trajectory.reward.astype(np.float64)),
        changed(reward=original.trajectory.reward.reshape(3, 2)),
        changed(observation={"y": original.trajectory.observation["x"]}),
        dataclasses.replace(original, contexts=np.array(["aa", "bbc"])),
        dataclasses.replace(original, info={"price": original.info["cost"]}),
        dataclasses.replace(original, info={"cost": original.info["cost"][::-1]}),
    ]
    hashes = {original.sha256(), *(changed_one.sha256() for changed_one in others)}
    assert len(hashes) == 1 + len(others)
    assert original.sha256() == experience("aa", "bbb").sha256()
    # Not how the bits lie in memory.
    fortran = np.asfortranarray(original.trajectory.reward)
    assert changed(reward=fortran).sha256() == original.sha256()


def test_what_follows_an_episodes_end_becomes_padding():
    """The same as if the episodes had been collected one by one."""
    steps = side_by_side(4, 4, 4)
    going_on = steps._replace(
        step_type=np.array([[0, 1, 0, 1], [0, 0, 0, 0], [0, 1, 1, 0]], np.int32),
        next_step_type=np.array([[1, 2, 1, 2], [2, 2, 2, 2], [1, 1, 2, 2]], np.int32),
        reward=np.array([[0, 1, 9, 9], [1, 9, 9, 9], [0, 0, 1, 9]], np.float32),
    )
    ended = episodes.end_episodes(going_on, np.array([2, 1, 3]))
    expected = side_by_side(2, 1, 3)
    for row, wanted in zip(tree.flatten(ended), tree.flatten(expected), strict=True):
        np.testing.assert_array_equal(row, wanted)
        assert row.dtype == wanted.dtype
