"""Lessons: which episodes stay, and which of their steps are drawn."""

from __future__ import annotations

import numpy as np
import pytest
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from tfrl_systems.agents.lessons import Column, Lessons
from tfrl_systems.episodes import Experience, split_episodes

UNKNOWN = float("nan")


def episodes(*plays, learned=UNKNOWN) -> Experience:
    """Of (context, cost, actions); the observation of a step is its cost and its number."""
    seen = [[cost, number] for _, cost, actions in plays for number in range(len(actions))]
    actions = [action for *_, actions in plays for action in actions]
    count = len(actions)
    steps = trajectory.Trajectory(
        np.full(count, ts.StepType.MID, np.int32),
        np.array(seen, np.float32),
        np.array(actions, np.int64),
        (),
        np.full(count, ts.StepType.MID, np.int32),
        np.zeros(count, np.float32),
        np.ones(count, np.float32),
    )
    infos = [{"cost": cost, "learned_cost": learned} for _, cost, _ in plays]
    rows = split_episodes(steps, [len(actions) for *_, actions in plays])
    return Experience.of(rows, [context for context, *_ in plays], infos)


def all_steps(lessons: Lessons) -> set[tuple[float, ...]]:
    """Of what is drawn: (cost, number, action) of each step, many times each."""
    assert lessons.records is not None
    drawn = lessons.draw(500, np.ones(len(lessons.records.cost)), np.random.default_rng(0))
    return {
        (*seen, action)
        for seen, action in zip(drawn.observation.tolist(), drawn.action, strict=True)
    }


def test_of_each_context_the_cheapest_episode_is_kept():
    lessons = Lessons(max_steps=100)
    lessons.add(episodes(("a", 5, [0, 1]), ("b", 9, [1]), ("a", 4, [1, 1, 0])), 0)
    assert all_steps(lessons) == {(4, 0, 1), (4, 1, 1), (4, 2, 0), (9, 0, 1)}
    # A dearer one changes nothing but what is known of the last policy; a cheaper one replaces.
    lessons.add(episodes(("a", 6, [0]), ("b", 8, [0, 0]), learned=7.0), 1)
    assert all_steps(lessons) == {(4, 0, 1), (4, 1, 1), (4, 2, 0), (8, 0, 0), (8, 1, 0)}
    records = lessons.records
    assert records is not None and records.context.tolist() == ["a", "b"]
    assert records.learned_cost.tolist() == [7, 7] and records.iteration.tolist() == [1, 1]
    # The first iteration's best; that of b is not the best any more.
    assert records.cost.tolist() == [4, 8] and records.first_cost.tolist() == [4, 9]


def test_the_contexts_met_first_are_forgotten_first():
    lessons = Lessons(max_steps=4)
    lessons.add(episodes(("a", 1, [0, 0]), ("b", 1, [0, 0]), ("c", 1, [0])), 0)
    assert lessons.records is not None and lessons.records.context.tolist() == ["b", "c"]
    lessons.add(episodes(("d", 1, [0] * 9)), 1)
    assert lessons.records.context.tolist() == ["d"] and lessons.num_steps == 9


def test_padding_is_left_out_and_comes_back():
    """Rows that repeat at an item's end are kept once; the others are kept as they are."""
    array = np.array([[[1, 2], [0, 0], [0, 0]], [[3, 4], [5, 6], [7, 8]], [[9, 9]] * 3])
    column = Column.of(array)
    assert column.counts.tolist() == [2, 3, 1]
    np.testing.assert_array_equal(column.take(np.array([2, 0, 1, 0])), array[[2, 0, 1, 0]])
    numbers = Column.of(np.array([4, 5, 6]))
    np.testing.assert_array_equal(numbers.take(np.array([1, 1, 2])), [5, 5, 6])


def test_contexts_are_drawn_by_their_weight_step_by_step():
    """w = 1 and 3, steps 3 and 1: both contexts are half of what is drawn."""
    lessons = Lessons(max_steps=100)
    lessons.add(episodes(("a", 1, [0, 0, 0]), ("b", 2, [0])), 0)
    drawn = lessons.draw(4000, np.array([1.0, 3.0]), np.random.default_rng(0))
    assert np.mean(drawn.observation[:, 0] == 1) == pytest.approx(0.5, abs=0.03)
