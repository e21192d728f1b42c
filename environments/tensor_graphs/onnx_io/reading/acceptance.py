"""Ask onnxruntime about a model that onnx refuses: onnxruntime decides what a valid model is.

onnx knows fewer opsets than onnxruntime, converts from some of them only, and takes types that a
file gives for its outputs more seriously. A model that onnxruntime loads is read all the same: what
onnx cannot tell about it stays unknown.
"""

from __future__ import annotations

import pathlib
from typing import Any

import onnx

_SILENT = 4


def session_of(source: pathlib.Path | onnx.ModelProto) -> Any:
    """Return onnxruntime's session of a model, without optimisations; None if it does not load it.

    All weights of the model must be in it, unless `source` is its path.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = _SILENT
    try:
        model = str(source) if isinstance(source, pathlib.Path) else source.SerializeToString()
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:
        # onnxruntime's exceptions have no base class other than Exception.
        return None


def is_accepted(source: pathlib.Path | onnx.ModelProto) -> bool:
    """Return whether onnxruntime loads a model; see `session_of`."""
    return session_of(source) is not None
