"""Where a surrogate asks: evenly at first, then near minima; failures are learned; it goes on."""

from __future__ import annotations

import numpy as np
import pytest

from tfrl_systems.agents.surrogates.search import Search, evenly


def bowl(points):
    return (points[:, 0] - 0.5 * points[:, 1]) ** 2


def searched(function, num_batches):
    search = Search(num_actions=1, num_contexts=1)
    for number in range(num_batches):
        points = search.propose(10, np.random.default_rng(number))
        search.add(points, function(points))
        search.fit()
    return search


def test_the_first_trials_are_even_and_later_ones_are_near_the_minimum():
    search = searched(bowl, 4)
    assert np.abs(search.points).max() <= 1
    halves = [np.count_nonzero(search.points[:10, column] < 0) for column in (0, 1)]
    assert halves == [5, 5]
    first, last = (np.mean(bowl(search.points[rows])) for rows in (slice(0, 20), slice(30, 40)))
    assert last < first / 3
    contexts = np.linspace(-1, 1, 9)[:, np.newaxis]
    minima = search.minima(contexts, np.random.default_rng(0))
    np.testing.assert_allclose(minima, 0.5 * contexts, atol=0.1)


def test_where_trials_fail_no_answer_lies():
    """The least values are where x < 0, but there trials fail."""

    def failing(points):
        return np.where(points[:, 0] < 0, np.nan, points[:, 0] + 1)

    search = searched(failing, 4)
    minima = search.minima(np.zeros((1, 1)), np.random.default_rng(0))
    assert -0.1 < minima[0, 0] < 0.3
    late = search.values[20:]
    assert np.count_nonzero(np.isnan(late)) < len(late) / 2


def test_contexts_are_shared_and_no_trial_is_repeated():
    """At each context the least value is at the same side, so answers and draws lie there."""
    points = searched(lambda points: -points[:, 0], 4).points
    assert len(np.unique(points, axis=0)) == 40
    contexts, num_trials = np.unique(points[:, 1], return_counts=True)
    assert len(contexts) < 20 and num_trials.min() >= 2


@pytest.mark.ci
def test_ripples_far_finer_than_usual_are_no_noise_to_many_trials():
    """They are 0.06 apart, where 0.2 is usual; a model that does not see them calls 0.07 noise.

    It was fitted to few trials before, which show no ripples.
    """

    def distance(points):
        return points[:, 0] - 0.4 * np.sin(2 * points[:, 1])

    def rippled(points):
        return distance(points) ** 2 + 0.1 * np.cos(2 * np.pi * distance(points) / 0.06)

    search = searched(lambda points: distance(points) ** 2, 2)
    generator, contexts = np.random.default_rng(0), np.linspace(-1, 1, 22).repeat(20)
    actions = 0.4 * np.sin(2 * contexts) + 0.15 * generator.standard_normal(len(contexts))
    points = generator.permutation(np.stack([np.clip(actions, -1, 1), contexts], axis=1))
    search.add(points, rippled(points))
    search.values[:20] = rippled(search.points[:20])
    search.fit()
    assert search.model.noise < 0.02


def test_contexts_to_answer_reach_the_sides():
    generator = np.random.default_rng(0)
    assert Search(1, 0).covering(8, generator).shape == (1, 0)
    np.testing.assert_array_equal(Search(1, 1).covering(3, generator)[:, 0], [-1, 0, 1])
    plane = Search(1, 2).covering(64, generator)
    assert plane.shape == (64, 2)
    assert np.count_nonzero(np.abs(plane).max(axis=1) == 1) == 16


def test_an_answer_is_dear_to_miss_where_values_rise():
    """x² (2 + 1.9 c) rises 39 times as fast at c = 1 as at c = -1."""
    search = Search(num_actions=1, num_contexts=1)
    points = evenly(2, 64, np.random.default_rng(0))
    search.add(points, points[:, 0] ** 2 * (2 + 1.9 * points[:, 1]))
    search.fit()
    contexts = np.array([[-1.0], [0.0], [1.0]])
    least, middle, most = search.steepness(np.zeros((3, 1)), contexts)[:, 0]
    assert least < middle / 3 and most > 1.5 * middle


def test_answers_in_one_valley_do_not_jump():
    """Ripples along x - c / 2, 0.25 apart, each as deep as the others: answers take any of them."""
    search = Search(1, 1)
    generator = np.random.default_rng(0)
    points = evenly(2, 200, generator)
    search.add(points, np.cos(8 * np.pi * (points[:, 0] - points[:, 1] / 2)))
    search.fit()
    contexts = search.covering(65, generator)
    answers = search.minima(contexts, generator)
    valley = search.in_one_valley(answers, contexts)
    assert np.abs(np.diff(answers[:, 0])).max() > 0.2
    assert np.abs(np.diff(valley[:, 0])).max() < 0.05
    assert search.expected(valley, contexts)[0].mean() < -0.9


def test_what_a_lone_trial_says_is_not_forgotten_among_many_others():
    """Two thirds of the trials are used: without the one at 1, the slope goes on beyond 0.5."""
    points = np.insert(np.linspace(-1, 0.5, 3000), 2, 1.0)[:, np.newaxis]
    search = Search(1, 0, noise=0.01)
    search.add(points, np.where(points < 0.6, -points, 5.0)[:, 0])
    search.fit()
    expected, _ = search.expected(np.array([[1.0]]), np.zeros((1, 0)))
    assert expected[0] == pytest.approx(5, abs=0.1)
