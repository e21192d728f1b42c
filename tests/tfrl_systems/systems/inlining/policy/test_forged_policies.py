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
        # Fields of other types,
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
        # arrays that are missing,
        *({name: None} for name in sorted(ARRAYS)),
        # knots of one feature, bases of other knots, fractions for knots, weights of another layer,
        {"start": [[-9, 9]]},
        {"base": [[0, 1, 2]] * 2},
        {"rise": [[0.5, 0.5]] * 2},
        {"weights_0": [[[1.0]] * 3]},
        # a bias for nobody, and members that are none.
        {"biases_0": [[[0.0, 0.0]]]},
        {"weights_0": np.zeros((0, 2, 1))},
    ],
    ids=str,
)
def test_parts_that_do_not_fit(tmp_path, changed):
    ((name, value),) = changed.items()
    description, arrays = ({}, {**ARRAYS}) if name in ARRAYS else (changed, ARRAYS)
    if name in ARRAYS:
        del arrays[name]
        arrays |= {} if value is None else {name: np.array(value)}
    with pytest.raises(UserError, match="expected a policy whose files fit each other, found"):
        load(tmp_path, description, arrays)


def test_numbers_that_are_not_finite(tmp_path):
    with pytest.raises(UserError, match="weights_0: numbers that are not finite"):
        load(tmp_path, arrays={**ARRAYS, "weights_0": np.full((1, 2, 1), np.inf)})
