"""A learned policy that is as sure of inlining everywhere, so that its decisions are known."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy as np

from environments import files

_GRID = 1 << 16


def write_constant_policy(
    directory: pathlib.Path, logit: float, margin: float, **changed: Any
) -> pathlib.Path:
    """Write a policy that inlines all where its margin is below `logit`, else as LLVM does.

    `changed` are fields or arrays that it has instead; it lacks an array that is None.
    """
    directory.mkdir()
    segment = np.zeros((1, 1), np.int64)
    arrays = {
        **{"start": segment, "base": segment, "rise": segment, "run": segment + 1},
        **{"weights_0": np.zeros((1, 1, 1)), "biases_0": np.full((1, 1, 1), logit * _GRID)},
    }
    description = {
        "format": "tfrl-policy",
        "format_version": 1,
        "environment": "inlining",
        "kind": "networks",
        "num_models": 1,
        "features": ["cost_estimate"],
        "baseline_feature": "inlining_default",
        "margin": margin,
        **{name: value for name, value in changed.items() if name not in arrays},
    }
    arrays |= {name: changed[name] for name in arrays if name in changed}
    present = {name: array for name, array in arrays.items() if array is not None}
    np.savez(directory / "numpy_policy.npz", **present)
    description["arrays_sha256"] = files.sha256(directory / "numpy_policy.npz")
    (directory / "policy.json").write_text(json.dumps(description))
    return directory
