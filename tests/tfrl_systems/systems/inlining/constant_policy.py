"""A learned policy that is as sure of inlining everywhere, so that its decisions are known."""

from __future__ import annotations

import json
import pathlib

import numpy as np

from environments import files

_KNOTS = {"start": 0, "base": 0, "rise": 0, "run": 1}
_GRID = 1 << 16


def write_constant_policy(directory: pathlib.Path, logit: float, margin: float) -> pathlib.Path:
    """Write a policy that inlines all where its margin is below `logit`, else as LLVM does."""
    directory.mkdir()
    arrays = {name: np.full((1, 1), value, np.int64) for name, value in _KNOTS.items()}
    arrays |= {"weights_0": np.zeros((1, 1, 1)), "biases_0": np.full((1, 1, 1), logit * _GRID)}
    np.savez(directory / "numpy_policy.npz", **arrays)
    description = {
        "format": "tfrl-policy",
        "format_version": 1,
        "environment": "inlining",
        "kind": "networks",
        "num_models": 1,
        "features": ["cost_estimate"],
        "baseline_feature": "inlining_default",
        "margin": margin,
        "arrays_sha256": files.sha256(directory / "numpy_policy.npz"),
    }
    (directory / "policy.json").write_text(json.dumps(description))
    return directory
