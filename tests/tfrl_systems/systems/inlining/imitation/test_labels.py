"""What explored and imitated decisions teach, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tfrl_systems.systems.inlining.imitation.site_problem import exploration, outcome
from tfrl_systems.systems.inlining.imitation.labels import (
    Labels,
    advantage_labels,
    best_per_context,
    imitation_labels,
)

GROUP_OF = {"a": "p", "b": "q"}
ROWS = np.arange(12).reshape(4, 3)


def test_the_best_episode_of_each_context_is_the_first_of_the_cheapest():
    first = [outcome("a", 10, [0, 0]), outcome("b", 7, [1])]
    second = [outcome("a", 9, [0, 1]), outcome("b", 7, [0])]
    third = [outcome("a", 9, [1, 1])]  # b could not be played
    best = best_per_context([first, second, third])
    assert best == {"a": second[0], "b": first[1]}
    assert best_per_context([]) == best_per_context([[], []]) == {}


def test_advantage():
    base = outcome("a", 50, [0, 1, 0, 1], ROWS)
    #            step  played   Δ of the other   better   weight
    #             3      1          -200            0       100: min(100, 3 + 200)
    #             0      0            -4            1         7: 3 + 4
    #             1      1             8            1        11: 3 + 8
    #             2      0             0            0         3: it stays as it was played
    labels = advantage_labels([exploration(base, [3, 0, 1, 2], [-200, -4, 8, 0])], GROUP_OF, 100)
    assert labels.actions.tolist() == [0, 1, 1, 0]
    assert labels.weights.tolist() == [100, 7, 11, 3]
    assert np.array_equal(labels.features, ROWS[[3, 0, 1, 2]])
    assert labels.groups.tolist() == ["p"] * 4
    clipped = advantage_labels([exploration(base, [0, 1], [-1, 8])], GROUP_OF, clip=5)
    assert clipped.weights.tolist() == [4, 5]


def test_imitation():
    episodes = {"b": outcome("b", 1, [1], ROWS[3:]), "a": outcome("a", 1, [0, 1], ROWS[:2])}
    labels = imitation_labels(episodes, {"a": 2.0, "b": 5.0}, GROUP_OF, 0.1, max_rows=3, seed=0)
    assert np.array_equal(labels.features, ROWS[[0, 1, 3]])
    assert labels.actions.tolist() == [0, 1, 1] and labels.actions.dtype == np.int64
    assert labels.weights.tolist() == pytest.approx([0.2, 0.2, 0.5])
    assert labels.groups.tolist() == ["p", "p", "q"]


def many(num_rows):
    rows = np.arange(3 * num_rows).reshape(num_rows, 3)
    return {"a": outcome("a", 1, np.arange(num_rows) % 2, rows)}


def test_a_sample_of_imitated_rows_weighs_as_much_as_all():
    labels = imitation_labels(many(1000), {"a": 2.0}, GROUP_OF, 1.0, max_rows=100, seed=3)
    assert len(labels.actions) == 100
    assert labels.weights.sum() == pytest.approx(2000)
    # Rows keep together, and none is drawn twice.
    assert np.array_equal(labels.actions, labels.features[:, 0] // 3 % 2)
    assert len(np.unique(labels.features[:, 0])) == 100


def test_digests_tell_labels_apart():
    labels = Labels(ROWS, np.array([0, 1, 0, 1]), np.ones(4), np.array(["p", "p", "q", "q"]))
    assert labels.sha256() == Labels.concatenate([labels]).sha256()
    others = [
        labels.where(np.array([1, 0, 2, 3])),
        labels._replace(weights=2 * labels.weights),
        labels._replace(groups=np.array(["p", "q", "q", "q"])),
    ]
    assert len({digestible.sha256() for digestible in [labels, *others]}) == 4
