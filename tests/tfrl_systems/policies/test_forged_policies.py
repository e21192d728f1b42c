"""A policy's files may come from a stranger: what no training writes is refused in one line."""

from __future__ import annotations

import hashlib
import io
import json

import numpy as np
import pytest

from environments.errors import UserError
from tfrl_systems.systems.inlining.policy.call_site_policy import CallSitePolicy

# One tree with one test: callee_users above 1 makes inlining likelier.
DESCRIPTION = {
    "format": "tfrl-policy",
    "format_version": 1,
    "kind": "trees",
    "num_models": 1,
    "features": ["callee_users", "inlining_default"],
    "baseline_feature": "inlining_default",
    "margin": 0.5,
}
ARRAYS = {
    "feature": np.array([[0, 0, 0]], np.int32),
    "threshold": np.array([[1, 0, 0]]),
    "left": np.array([[1, 1, 2]], np.int32),
    "right": np.array([[2, 1, 2]], np.int32),
    "value": np.array([[0, -(1 << 25), 1 << 25]]),
    "base": np.array(0),
    "depth": np.array(1),
}


def load(directory, description=None, arrays=None):
    buffer = io.BytesIO()
    np.savez(buffer, **{**ARRAYS, **(arrays or {})})
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


@pytest.mark.parametrize(
    ("what", "changed"),
    [
        ("circle", {"left": [[1, 0, 2]]}),
        ("circle at the root", {"right": [[0, 1, 2]]}),
        ("a child before the first", {"left": [[-1, 1, 2]]}),
        ("a child that is missing", {"left": [[3, 1, 2]]}),
        ("a feature before the first", {"feature": [[-1, 0, 0]]}),
        ("a feature that is missing", {"feature": [[2, 0, 0]]}),
        ("a depth without end", {"depth": 1 << 30}),
        ("a depth of no steps", {"depth": 0}),
        ("fractions", {"threshold": [[0.5, 0, 0]]}),
        ("two bases", {"base": [0, 0]}),
    ],
)
def test_trees_that_are_none(tmp_path, what, changed):
    with pytest.raises(UserError, match="expected a policy whose files fit each other, found"):
        load(tmp_path, arrays={name: np.array(rows) for name, rows in changed.items()})


def test_branches_that_meet_again_and_again_take_no_time(tmp_path):
    # Each of 40 nodes has the next one as both children: 2^40 ways to the end.
    nodes = np.minimum(np.arange(1, 42), 40)[np.newaxis]
    zeros = np.zeros((1, 41), np.int64)
    changed = {"left": nodes, "right": nodes, "feature": zeros, "threshold": zeros, "value": zeros}
    with pytest.raises(UserError, match="more than 64 leaves"):
        load(tmp_path, arrays=changed)


def test_numbers_that_are_not_finite(tmp_path):
    with pytest.raises(UserError, match="value: numbers that are not finite"):
        load(tmp_path, arrays={"value": np.array([[0.0, np.nan, 1.0]])})
