"""A policy's files may come from a stranger: what no training writes is refused in one line."""

from __future__ import annotations

import hashlib
import io
import json

import numpy as np
import pytest

from environments.errors import UserError
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy

# Features go in as they are, and there is no hidden layer: callee_users above 1 favours inlining.
DESCRIPTION = {
    "format": "tfrl-policy",
    "format_version": 1,
    "kind": "networks",
    "num_models": 1,
    "features": ["callee_users", "inlining_default"],
    "baseline_feature": "inlining_default",
    "margin": 0.5,
}
ARRAYS = {
    "start": np.array([[-9, 9]] * 2),
    "base": np.array([[-9, 9]] * 2) << 16,
    "rise": np.ones((2, 2), np.int64) << 16,
    "run": np.ones((2, 2), np.int64),
    "weights_0": np.array([[[4.0], [0.0]]]) * (1 << 16),
    "biases_0": np.array([[[-6.0]]]) * (1 << 16),
}


def load(directory, description=None, arrays=None):
    buffer = io.BytesIO()
    np.savez(buffer, **(ARRAYS if arrays is None else arrays))
    (directory / "numpy_policy.npz").write_bytes(buffer.getvalue())
    digest = hashlib.sha256(buffer.getvalue()).hexdigest()
    described = {**DESCRIPTION, "arrays_sha256": digest, **(description or {})}
    (directory / "policy.json").write_text(json.dumps(described))
    return CallSitePolicy.load(directory)


def test_the_right_one_decides(tmp_path):
    names = ("inlining_default", "callee_users")
    decisions = load(tmp_path).begin("m", names)(np.array([[1, 1], [1, 2], [0, 1], [0, 2]]), 0)
    assert decisions.tolist() == [0, 1, 0, 1]


@pytest.mark.parametrize(
    "changed",
    [
        {"num_models": True},
        {"num_models": 0},
        {"num_models": 10**9},
        {"features": "inlining_default"},
        {"features": []},
        {"features": [None, "inlining_default"]},
        {"baseline_feature": 1},
        {"scope_feature": ["callee_users"]},
        {"margin": "0.5"},
        {"margin": 1e30},
        {"outside_margin": True},
    ],
    ids=str,
)
def test_fields_of_other_types(tmp_path, changed):
    with pytest.raises(UserError, match="expected a policy whose files fit each other, found"):
        load(tmp_path, changed)


@pytest.mark.parametrize("missing", sorted(ARRAYS))
def test_arrays_that_are_missing(tmp_path, missing):
    arrays = {name: array for name, array in ARRAYS.items() if name != missing}
    with pytest.raises(UserError, match="expected a policy whose files fit each other, found"):
        load(tmp_path, arrays=arrays)


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("knots of one feature", {"start": [[-9, 9]]}),
        ("bases of other knots", {"base": [[0, 1, 2]] * 2}),
        ("fractions for knots", {"rise": [[0.5, 0.5]] * 2}),
        ("weights of another layer", {"weights_0": [[[1.0]] * 3]}),
        ("a bias for nobody", {"biases_0": [[[0.0, 0.0]]]}),
        ("members that are none", {"weights_0": np.zeros((0, 2, 1))}),
    ],
)
def test_arrays_that_do_not_fit(tmp_path, what, changed):
    arrays = {**ARRAYS, **{name: np.array(rows) for name, rows in changed.items()}}
    with pytest.raises(UserError, match="expected a policy whose files fit each other, found"):
        load(tmp_path, arrays=arrays)


def test_numbers_that_are_not_finite(tmp_path):
    with pytest.raises(UserError, match="weights_0: numbers that are not finite"):
        load(tmp_path, arrays={**ARRAYS, "weights_0": np.full((1, 2, 1), np.inf)})
