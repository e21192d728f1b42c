from __future__ import annotations

import numpy as np
import pytest

from environments.errors import UserError
from environments.inlining.heuristics import Random, feature_columns, make_heuristic, row_by_row

NAMES = ("cost_estimate", "inlining_default")
FEATURES = np.array([[4, 1], [5, 0], [-30, 1], [100, 0]])


@pytest.mark.parametrize(
    "name, decisions",
    [
        ("default", [1, 0, 1, 0]),
        ("always", [1, 1, 1, 1]),
        ("never", [0, 0, 0, 0]),
        ("cost<-20", [0, 0, 1, 0]),
        ("cost<101", [1, 1, 1, 1]),
    ],
)
def test_baselines(name, decisions):
    policy = make_heuristic(name)
    decided = policy.begin("module", NAMES)(FEATURES, 0)
    assert policy.name == name
    assert decided.dtype == np.int8 and decided.tolist() == decisions


def test_deciders_do_not_depend_on_how_rows_are_split():
    features = np.random.default_rng(0).integers(0, 2, (9, 2))
    for name in ("default", "always", "random", "cost<1"):
        policy = make_heuristic(name, seed=3)
        whole = policy.begin("module", NAMES)(features, 0)
        for cut in range(10):
            decide = policy.begin("module", NAMES)
            assert np.array_equal(decide(features[cut:], cut), whole[cut:])
            assert np.array_equal(decide(features[:cut], 0), whole[:cut])
        decide_row = row_by_row(policy.begin("module", NAMES))
        rows = enumerate(features.tolist())
        assert [decide_row(row, step) for step, row in rows] == whole.tolist()


def test_random_is_fair_and_differs_between_modules_and_seeds():
    rows = np.zeros((4000, 2), np.int64)
    flips = Random(1).begin("a", NAMES)(rows, 0)
    assert 1800 < flips.sum() < 2200
    assert np.array_equal(flips, Random(1).begin("a", NAMES)(rows, 0))
    for decider in (Random(1).begin("b", NAMES), Random(2).begin("a", NAMES)):
        assert not np.array_equal(flips, decider(rows, 0))


def test_an_unknown_policy_and_a_missing_feature_are_named():
    with pytest.raises(UserError, match="one of default, always, never, random, cost<N; found 'x'"):
        make_heuristic("x")
    with pytest.raises(UserError, match="expected loop_level, found a compiler that offers only"):
        feature_columns(NAMES, ("cost_estimate", "loop_level"))
    assert feature_columns(NAMES, ("inlining_default",)).tolist() == [1]
