"""Ask onnxruntime about models that onnx refuses, and operators that onnx does not have.

onnxruntime decides what a valid model is. onnx knows fewer opsets, converts from some of them only,
and takes types that a file gives for its outputs more seriously. A model that onnxruntime loads is
read all the same: what onnx cannot tell about it stays unknown.

onnxruntime also tells the types of values that its own operators give. Without them all that
follows such an operator would be of unknown type, and so Opaque.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Set
from typing import Any

import onnx

from environments.tensor_graphs.onnx_io.header import opset_of

_SILENT = 4
_NUMBERS = {name.lower(): number for name, number in onnx.TensorProto.DataType.items()}
_TENSOR = re.compile(r"tensor\((\w+)\)")


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


def is_foreign(node: onnx.NodeProto, opset: int) -> bool:
    """Return whether onnx does not have a node's operator in this version of its own operators."""
    return node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type, opset)


def with_types(skeleton: onnx.ModelProto, inferred: onnx.GraphProto) -> onnx.ModelProto | None:
    """Return the skeleton with the types of what foreign operators return.

    `inferred` is its graph with all types that onnx can infer; None if onnxruntime knows no more.
    """
    opset = opset_of(skeleton)
    typed = {info.name for info in (*inferred.value_info, *inferred.output) if _shape(info)}
    names = {
        name for node in skeleton.graph.node if is_foreign(node, opset) for name in node.output
    }
    infos = _types(skeleton, names - typed - {""})
    if not infos:
        return None
    model = onnx.ModelProto()
    model.CopyFrom(skeleton)
    unchanged = [info for info in skeleton.graph.value_info if info.name not in infos]
    for output in model.graph.output:
        if output.name in infos:
            output.CopyFrom(infos.pop(output.name))
    del model.graph.value_info[:]
    model.graph.value_info.extend([*unchanged, *infos.values()])
    return model


def _shape(info: onnx.ValueInfoProto) -> bool:
    """Return whether a value's type is known, with its rank if it is a tensor."""
    if info.type.WhichOneof("value") == "tensor_type":
        return info.type.tensor_type.HasField("shape")
    return info.type.WhichOneof("value") is not None


def _types(skeleton: onnx.ModelProto, names: Set[str]) -> dict[str, onnx.ValueInfoProto]:
    """Return what onnxruntime says of the types of some values, as far as it knows them."""
    if not names:
        return {}
    model = onnx.ModelProto()
    model.CopyFrom(skeleton)
    outputs = {info.name for info in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names - outputs)
    session = session_of(model)
    if session is None:
        return {}
    infos = {output.name: _info(output) for output in session.get_outputs() if output.name in names}
    return {name: info for name, info in infos.items() if info is not None}


def _info(output: Any) -> onnx.ValueInfoProto | None:
    """Return the type of an output of a session; None if it is no tensor of known rank.

    A number and a tensor of unknown rank look the same there.
    """
    kind = _TENSOR.fullmatch(output.type)
    number = None if kind is None else _NUMBERS.get(kind[1])
    if number is None or not output.shape:
        return None
    return onnx.helper.make_tensor_value_info(output.name, number, output.shape)
