"""Run a canonical node by onnxruntime, as an independent implementation of its meaning."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

from environments.tensor_graphs.graph.nodes import Attributes
from environments.tensor_graphs.operators.contrib import DOMAIN, FORMS, VERSION

OPSET = 21

# Attributes that are inputs of ONNX's node, in its order; the others stay.
LISTS = {
    "Clip": ("min", "max"),
    "Expand": ("shape",),
    "Pad": ("pads", "value"),
    "Reshape": ("shape",),
    "Slice": ("starts", "ends", "axes", "steps"),
    "Split": ("split",),
    "Tile": ("repeats",),
    **{
        f"Reduce{kind}": ("axes",)
        for kind in ("L2", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
    },
}


def run(
    op: str, arrays: Sequence[np.ndarray], attributes: Attributes, num_outputs: int = 1
) -> list[np.ndarray]:
    """Compute a node's outputs by onnxruntime."""
    values: dict[str, Any] = dict(attributes)
    names = [f"x{k}" for k in range(len(arrays))]
    lists = [_list(op, name, values.pop(name), arrays[0].dtype) for name in LISTS.get(op, ())]
    if op == "Cast":
        values["to"] = helper.np_dtype_to_tensor_dtype(np.dtype(values["to"]))
    outputs = [f"y{k}" for k in range(num_outputs)]
    node = helper.make_node(op, [*names, *(tensor.name for tensor in lists)], outputs, **values)
    if op in FORMS:
        form = FORMS[op]
        inside = form.placed(names, form.inputs), form.placed(outputs, form.outputs)
        node = helper.make_node(form.op, *inside, domain=DOMAIN, **values)
    graph = helper.make_graph(
        [node], "test",
        [_value(name, array.dtype) for name, array in zip(names, arrays, strict=True)],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        lists,
    )  # fmt: skip
    model = helper.make_model(
        graph,
        ir_version=10,
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(DOMAIN, VERSION)],
    )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return session.run(None, dict(zip(names, arrays, strict=True)))


def _value(name: str, dtype: Any) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), None)


def _list(op: str, name: str, value: Any, dtype: Any) -> onnx.TensorProto:
    is_number = op == "Clip" or name == "value"
    return numpy_helper.from_array(np.asarray(value, dtype if is_number else np.int64), name)
