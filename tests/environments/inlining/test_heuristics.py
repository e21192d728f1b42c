from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.errors import UserError
from environments.inlining.heuristics import (
    Default,
    Random,
    Replay,
    feature_columns,
    make_heuristic,
)

NAMES = ("cost_estimate", "inlining_default")
FEATURES = np.array([[4, 1], [5, 0], [-30, 1], [100, 0]])


@pytest.mark.parametrize(
    "name, decisions",
    [
        ("default", [1, 0, 1, 0]),
        ("always", [1, 1, 1, 1]),
        ("never", [0, 0, 0, 0]),
        ("cost<5", [1, 0, 1, 0]),
        ("cost<-20", [0, 0, 1, 0]),
        ("cost<101", [1, 1, 1, 1]),
    ],
)
def test_baselines(name, decisions):
    policy = make_heuristic(name)
    decided = policy.begin("module", NAMES)(FEATURES, 0)
    assert policy.name == name
    assert decided.dtype == np.int8 and decided.tolist() == decisions


def test_replay_goes_on_with_the_default():
    decide = Replay([0, 1]).begin("module", NAMES)
    assert decide(FEATURES, 0).tolist() == [0, 1, 1, 0]
    assert decide(FEATURES[1:2], 1).tolist() == [1]
    assert decide(FEATURES[2:], 2).tolist() == [1, 0]


@given(st.integers(1, 40), st.data())
def test_deciders_do_not_depend_on_how_rows_are_split(num_rows, data):
    features = np.random.default_rng(num_rows).integers(0, 2, (num_rows, 2))
    for policy in (Default(), Random(3), Replay([1, 0, 1]), make_heuristic("cost<1")):
        whole = policy.begin("module", NAMES)(features, 0)
        cut = data.draw(st.integers(0, num_rows))
        decide = policy.begin("module", NAMES)
        assert np.array_equal(decide(features[cut:], cut), whole[cut:])
        assert np.array_equal(decide(features[:cut], 0), whole[:cut])


def test_random_is_fair_and_differs_between_modules_and_seeds():
    rows = np.zeros((4000, 2), np.int64)
    flips = Random(1).begin("a", NAMES)(rows, 0)
    assert 1800 < flips.sum() < 2200
    assert np.array_equal(flips, Random(1).begin("a", NAMES)(rows, 0))
    for decider in (Random(1).begin("b", NAMES), Random(2).begin("a", NAMES)):
        assert not np.array_equal(flips, decider(rows, 0))


def test_an_unknown_policy_is_named():
    with pytest.raises(UserError, match="one of default, always, never, random, cost<N; found 'x'"):
        make_heuristic("x")


def test_a_missing_feature_is_named():
    with pytest.raises(UserError, match="expected loop_level, found a compiler that offers only"):
        feature_columns(NAMES, ("cost_estimate", "loop_level"))
    assert feature_columns(NAMES, ("inlining_default",)).tolist() == [1]
