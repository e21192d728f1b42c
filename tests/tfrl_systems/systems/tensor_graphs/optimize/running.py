"""Runs a file as its users do: with onnxruntime's optimisations."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime


def outputs(path, level="ORT_ENABLE_ALL", **inputs):
    """The outputs of a model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
    return onnxruntime.InferenceSession(path, options).run(None, inputs)


def ops_of(path):
    """The operators of a model, in its order."""
    return [node.op_type for node in onnx.load(path).graph.node]


def assert_same(before, after, rtol=0.0, atol=0.0, **inputs):
    """Two files give the same outputs, up to an error; `atol` is a part of the largest number."""
    for expected, actual in zip(outputs(before, **inputs), outputs(after, **inputs), strict=True):
        largest = np.abs(expected).max(initial=0) if atol else 0
        np.testing.assert_allclose(actual, expected, rtol=rtol, atol=atol * largest)
