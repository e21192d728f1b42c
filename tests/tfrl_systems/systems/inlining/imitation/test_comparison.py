"""What a policy saves against the default, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.tfrl_systems.systems.inlining.imitation.site_problem import SiteProblem
from tfrl_systems.systems.inlining.imitation.comparison import evaluate


def test_by_hand():
    #                 default: 1 where size < 5         cost of default   of always
    sites = {
        "a": ("p", [(1, 10), (9, 4), (9, -1)]),  #      990               987
        "b": ("q", [(9, -7)]),  #                       1000              1007
        "c": ("q", []),  #                              1000              1000
    }
    problem = SiteProblem(sites)
    evaluation = evaluate(problem, problem.baseline("always"), "x")
    assert evaluation.to_json() == {
        "contexts": 3,
        "cost": 2994.0,
        "default_cost": 2990.0,
        "worse": 1,
        "changed": 0.75,
        "saving_percent": pytest.approx(-100 * 4 / 2990),
        "saving_percent_by_group": {
            "p": pytest.approx(100 * 3 / 990),
            "q": pytest.approx(-100 * 7 / 2000),
        },
    }
    curves = evaluation.curves()
    assert curves["saving_percent_by_group/q"] == pytest.approx(-100 * 7 / 2000)
    # One number for each context; one without decisions has no share of them.
    np.testing.assert_allclose(
        curves["histogram/saving_percent"], [100 * 3 / 990, -100 * 7 / 1000, 0]
    )
    np.testing.assert_allclose(curves["histogram/share_of_decisions_changed"], [2 / 3, 1])
    assert problem.labels == ["x, default", "x, always"]
