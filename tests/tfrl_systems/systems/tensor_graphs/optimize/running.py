"""Runs a file as its users do: with onnxruntime's optimisations."""

from __future__ import annotations

import onnxruntime


def outputs(path, level="ORT_ENABLE_ALL", **inputs):
    """The outputs of a model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    return onnxruntime.InferenceSession(path, options).run(None, inputs)
