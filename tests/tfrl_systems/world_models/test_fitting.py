"""What is learned from, and what is not."""

from __future__ import annotations

import functools

import numpy as np
import pytest
import tensorflow as tf
import tree

from tests.tfrl_systems.world_models import chain
from tests.tfrl_systems.world_models.conftest import make_model
from tfrl_systems.episodes import split_episodes
from tfrl_systems.world_models.fitting import Fitter, Replay


def long_episodes(count, least_steps):
    """Whole episodes [count, T] of at least so many steps."""
    played = chain.played_by_chance(40, seed=0)
    rows = np.flatnonzero((played.step_type != 2).sum(axis=1) >= least_steps)[:count]
    return tree.map_structure(lambda array: array[rows], played)


def row(episodes, number):
    return tree.map_structure(lambda array: array[number : number + 1], episodes)


def shortened(experience, lengths):
    """The first steps of each episode, padded to a common length."""

    def cut(array):
        return np.concatenate([row[:length] for row, length in zip(array, lengths, strict=True)])

    return split_episodes(tree.map_structure(cut, experience), lengths)


def test_padding_does_not_count():
    """Losses of episodes of 3, 8 and 5 steps are the weighted means of each one's own."""
    model = make_model()
    fitter = Fitter(model, 1e-3)
    lengths = [3, 8, 5]
    whole = long_episodes(3, least_steps=8)
    together = fitter.losses(Replay(model).add(shortened(whole, lengths)))
    alone = []
    for number, length in enumerate(lengths):
        steps = shortened(row(whole, number), [length])
        alone.append(fitter.losses(Replay(model).add(steps)))
    for name, weights in (("reward", lengths), ("end", lengths), ("mixture", [2, 7, 4])):
        expected = np.average([getattr(losses, name).numpy() for losses in alone], weights=weights)
        assert getattr(together, name).numpy() == pytest.approx(expected, rel=1e-4)


def test_every_part_learns():
    """All variables get a gradient: embeddings, memory, layers and heads of each member."""
    model = make_model(num_members=2)
    episodes = Replay(model).add(chain.played_by_chance(8, seed=0))
    with tf.GradientTape() as tape:
        total = tf.add_n(list(Fitter(model, 1e-3).losses(episodes)))
    gradients = tape.gradient(total, model.trainable_variables)
    names = [variable.name for variable in model.trainable_variables]
    for name, gradient in zip(names, gradients, strict=True):
        dense = tf.convert_to_tensor(gradient).numpy()
        assert np.any(dense != 0), name


def test_a_replay_forgets_its_oldest_episodes(tmp_path):
    """Of lengths 3, 4, 2 with at most 7 steps, 4 and 2 stay; then 5 is new, and 2 and 5 stay."""
    model = make_model()
    episodes = long_episodes(4, least_steps=5)
    whole, bounded = Replay(model), Replay(model, max_steps=7)
    for number, length in enumerate((3, 4, 2, 5)):
        steps = shortened(row(episodes, number), [length])
        whole.add(steps)
        bounded.add(steps)
        bounded.save(tmp_path)
        again = Replay(model, max_steps=7)
        again.restore(tmp_path, bounded.steps)
        tree.map_structure(
            functools.partial(np.testing.assert_array_equal, strict=True),
            again.steps,
            bounded.steps,
        )
        bounded = again
    assert bounded.lengths.tolist() == [2, 5]
    for late, every in zip(tree.flatten(bounded.steps), tree.flatten(whole.steps), strict=True):
        np.testing.assert_array_equal(late, every[-7:])
    # New episodes are not forgotten at once.
    bounded.add(chain.played_by_chance(3, seed=1))
    assert len(bounded.lengths) == 3 and bounded.num_steps > 7
