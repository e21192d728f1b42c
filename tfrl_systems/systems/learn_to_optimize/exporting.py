"""Learned optimisers in the form that others use: `tfrl export --format onnx`."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from environments import files
from tfrl_systems.systems.learn_to_optimize.optimizer_policy import OptimizerPolicy


def export_onnx(name: str, output: pathlib.Path) -> dict[str, Any]:
    """Write a policy as an ONNX model; return what `tfrl export --json` prints.

    Raises:
      UserError: there is no such policy, it is of another system, or the file cannot be written.
    """
    data = OptimizerPolicy.load(name).to_onnx().SerializeToString()
    files.replace(output, data)
    return {
        "policy": name,
        "format": "onnx",
        "path": os.fspath(output),
        "size_bytes": len(data),
    }
