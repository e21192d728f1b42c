"""Trials: their figures by hand."""

from __future__ import annotations

import numpy as np

from tfrl_systems.policies.trials import Trials


def test_figures_by_hand():
    first = Trials(np.zeros((2, 3)), np.array([1.0, np.nan]), ("it broke",), evaluations=2)
    second = Trials(np.ones((1, 3)), np.array([3.0]), evaluations=1)
    both = Trials.concatenate([first, second])
    assert (both.num_steps, both.num_episodes, both.evaluations) == (3, 3, 3)
    assert both.mean_return == -2.0 and both.messages == ("it broke",)
    assert both.sha256() != Trials.concatenate([second, first]).sha256()


def test_no_trials_have_no_figures_that_are_no_numbers():
    none = Trials(np.zeros((0, 2)), np.zeros(0))
    assert (none.num_steps, none.num_episodes, none.mean_return) == (0, 1, 0.0)
    assert Trials(np.zeros((1, 2)), np.array([np.nan])).mean_return == 0.0
