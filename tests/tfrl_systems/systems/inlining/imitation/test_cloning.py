"""A fit learns what it is shown, only that, and the same each time."""

from __future__ import annotations

import numpy as np
import pytest

from environments.errors import UserError
from tests.tfrl_systems.systems.inlining import decision_rows
from tests.tfrl_systems.systems.inlining.decision_rows import NAMES
from tfrl_systems.systems.inlining.imitation import cloning


def test_clones_the_default_from_its_inputs():
    """Shown cost < 5 without being shown the decision itself, on rows it has not seen."""
    rows = decision_rows.draw(6000, 1)
    rows[:, 0] = rows[:, 0] % 200 - 100
    rows[:, 1] = rows[:, 0] < 5
    shown = rows[:4000], rows[:4000, 1]
    policy = decision_rows.fit(
        *shown,
        features=("cost_estimate", "callee_users", "caller_blocks"),
        baseline_feature="",
        epochs=30,
        batch_size=64,
        network_learning_rate=1e-2,
    )
    assert np.mean(decision_rows.decide(policy, rows[4000:]) == rows[4000:, 1]) >= 0.99
    loss, agreement = cloning.loss_and_agreement(policy, NAMES, *shown, np.ones(4000))
    assert agreement >= 0.99 and 0 < loss < 0.2


def test_rows_weights_and_seed_decide_all():
    """Rows of no weight teach nothing, and the scale of the weights does not matter."""
    rows = decision_rows.draw(900, 3)
    actions, is_shown = decision_rows.labels(rows), np.arange(900) < 600
    shown = rows[is_shown], actions[is_shown]
    spoiled = np.where(is_shown, actions, 1 - actions)
    first, *same = (
        decision_rows.fit(*arguments, epochs=2).arrays()
        for arguments in (shown, shown, (rows, spoiled, 1024.0 * is_shown))
    )
    for arrays in same:
        for name, array in first.items():
            np.testing.assert_array_equal(array, arrays[name], err_msg=name)
    reseeded = decision_rows.fit(*shown, epochs=2, seed=1).arrays()
    assert any(not np.array_equal(array, reseeded[name]) for name, array in first.items())


def test_weights_decide_between_rows_that_contradict_each_other():
    rows = np.repeat(decision_rows.draw(300, 4), 2, axis=0)
    actions = np.tile([0, 1], 300)
    for heavy in (0, 1):
        weights = np.where(actions == heavy, 9.0, 1.0)
        policy = decision_rows.fit(rows, actions, weights, epochs=5, batch_size=32)
        assert np.all(decision_rows.decide(policy, rows) == heavy)
        _, agreement = cloning.loss_and_agreement(policy, NAMES, rows, actions, weights)
        assert agreement == pytest.approx(0.9)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ([0, 0, 0], "rows with positive weight"),
        ([1, -1, 1], "finite and not negative"),
    ],
)
def test_weights_that_cannot_be_used(weights, words):
    with pytest.raises(UserError, match=words):
        decision_rows.fit(decision_rows.draw(3, 9), np.ones(3), np.array(weights, float))


@pytest.mark.parametrize(
    "settings, words",
    [
        ({"num_models": 0}, "num_models within its range, found 0"),
        ({"hidden_sizes": (64, 257)}, "hidden_sizes"),
        ({"features": ("cost_estimate", "hotness")}, "called hotness, found only"),
        ({"scope_feature": "flag", "baseline_feature": ""}, "expected scope_feature within"),
    ],
)
def test_settings_out_of_range_are_named(settings, words):
    with pytest.raises(UserError, match=words):
        cloning.check(cloning.Config(**settings), NAMES)
