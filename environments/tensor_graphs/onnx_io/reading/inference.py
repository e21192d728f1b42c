"""Infer the types of all values, without copying the weights: with onnx, and with onnxruntime.

onnxruntime decides what a valid model is. onnx knows fewer opsets, converts from some of them only,
and takes types that a file gives for its outputs more seriously. A model that onnxruntime loads is
read all the same: what onnx cannot tell about it stays unknown.

onnxruntime also tells the types of values that its own operators give. Without them all that
follows such an operator would be of unknown type, and so Opaque.
"""

from __future__ import annotations

import pathlib
import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

import onnx

from environments.errors import UserError
from environments.tensor_graphs.graph.nodes import TensorType
from environments.tensor_graphs.onnx_io.header import DimensionNames, opset_of
from environments.tensor_graphs.onnx_io.reading.wiring import Wiring, describe_node
from environments.tensor_graphs.onnx_io.tensors import NUMBERS, to_tensor
from environments.tensor_graphs.operators.table import OPERATORS

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


def _is_foreign(node: onnx.NodeProto, opset: int) -> bool:
    """Return whether onnx does not have a node's operator in this version of its own operators."""
    return node.domain not in ("", "ai.onnx") or not onnx.defs.has(node.op_type, opset)


def _with_types(skeleton: onnx.ModelProto, inferred: onnx.GraphProto) -> onnx.ModelProto | None:
    """Return the skeleton with the types of what foreign operators return.

    `inferred` is its graph with all types that onnx can infer; None if onnxruntime knows no more.
    """
    opset = opset_of(skeleton)
    typed = {info.name for info in (*inferred.value_info, *inferred.output) if _shape(info)}
    names = {
        name for node in skeleton.graph.node if _is_foreign(node, opset) for name in node.output
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
    """Return what onnxruntime says of the types of those values that are tensors of known rank."""
    if not names:
        return {}
    model = onnx.ModelProto()
    model.CopyFrom(skeleton)
    outputs = {info.name for info in model.graph.output}
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names - outputs)
    session = session_of(model)
    if session is None:
        return {}
    infos = {}
    for output in session.get_outputs():
        kind = _TENSOR.fullmatch(output.type)
        number = None if kind is None else _NUMBERS.get(kind[1])
        # A number and a tensor of unknown rank look the same there.
        if output.name in names and number is not None and output.shape:
            shape = output.shape
            infos[output.name] = onnx.helper.make_tensor_value_info(output.name, number, shape)
    return infos


_MAX_ELEMENTS = 1024
"""Integer constants up to this size keep their values: types may depend on them (Reshape)."""

_LARGEST = 1 << 31

_SMALLEST = {
    **dict.fromkeys(("axis", "axes", "perm"), -_MAX_ELEMENTS),
    **dict.fromkeys(("blocksize", "dilations", "group", "kernel_shape", "strides"), 1),
    **dict.fromkeys(("hidden_size", "num_outputs"), 1),
    "batch_dims": 0,
}
"""The smallest valid numbers by name of the attribute."""


def infer_types(
    model: onnx.ModelProto,
    wiring: Wiring,
    names: DimensionNames,
    is_strict: bool,
    learned: Sequence[onnx.ValueInfoProto] = (),
) -> Mapping[str, TensorType | None]:
    """Infer the types of a model's values by name; None for values that are not tensors.

    `learned` are types of what operators return that onnx does not have, as runs have shown them.

    With `is_strict`, a model that onnx does not take for valid is an error. Without it, what onnx
    cannot infer is left out, and so are the shapes that the file gives for outputs.

    Raises:
      UserError: the model is not valid, an operator does not take its inputs, or an output has
        another type than the file gives.
    """
    stripped = _skeleton(model, wiring, learned)
    if is_strict:
        _check(stripped)
        _check_numbers(stripped)
    infer_fn = _inferred if is_strict else _inferred_in_part
    graph = infer_fn(stripped).graph
    typed = _with_types(stripped, graph)
    if typed is not None:
        graph = infer_fn(typed).graph
    types = {
        info.name: names.type_of(info.type)
        for info in (*graph.value_info, *graph.output, *graph.input)
    }
    for name, (array, dtype) in wiring.constants.items():
        types[name] = TensorType(dtype, array.shape)
    return types


def _check(stripped: onnx.ModelProto) -> None:
    # The checker asks for shapes of inputs and outputs, which the format lets files leave out. It
    # does not look at the shapes themselves.
    checked = onnx.ModelProto()
    checked.CopyFrom(stripped)
    for info in (*checked.graph.input, *checked.graph.output):
        if info.type.HasField("tensor_type"):
            info.type.tensor_type.shape.SetInParent()
    try:
        onnx.checker.check_model(checked)
    except Exception as error:
        raise UserError(
            f"the model is not valid: {' '.join(str(error).split())[:300]}; export it again"
        ) from None


def _check_numbers(stripped: onnx.ModelProto) -> None:
    """Refuse numbers on which onnx's inference would crash the process."""
    for node in stripped.graph.node:
        for attribute in node.attribute:
            if attribute.name not in _SMALLEST:
                continue
            is_list = attribute.type == onnx.AttributeProto.INTS
            numbers = list(attribute.ints) if is_list else [attribute.i]
            smallest = _SMALLEST[attribute.name]
            largest = _LARGEST if smallest > 0 else _MAX_ELEMENTS
            if any(not smallest <= number <= largest for number in numbers):
                raise UserError(
                    f"shapes or types do not fit: {describe_node(node)} has the {attribute.name} "
                    f"{numbers if is_list else numbers[0]}; correct the model"
                )


def _inferred(stripped: onnx.ModelProto) -> onnx.ModelProto:
    try:
        return onnx.shape_inference.infer_shapes(stripped, True, True, True)
    except Exception as error:
        message = str(error)
    if not _is_about_the_model(message):
        try:
            return onnx.shape_inference.infer_shapes(stripped, True, False, True)
        except Exception as error:
            message = str(error)
    reason = re.sub(r"\[\w+\]|Inference error\(s\):", " ", message)
    raise UserError(
        f"shapes or types do not fit: {' '.join(reason.split())[:300]}; correct the model"
    )


def _inferred_in_part(stripped: onnx.ModelProto) -> onnx.ModelProto:
    for output in stripped.graph.output:
        if output.type.HasField("tensor_type"):
            output.type.tensor_type.ClearField("shape")
    try:
        _check_numbers(stripped)
        return onnx.shape_inference.infer_shapes(stripped, False, False, True)
    except Exception:
        return stripped  # So only the types of inputs are known.


def _is_about_the_model(error: str) -> bool:
    """Return whether an error of onnx's inference means that the model is wrong.

    Inference may also fail on the body of an operator that onnx defines as a function of others,
    and for some operators (STFT) it contradicts the file's type of an output where the file is
    right.
    """
    blamed = re.findall(r"^.*?\(op_type:\s*(\w+)(.*)", error, re.MULTILINE)
    return not blamed or any(_is_credible(name, reason) for name, reason in blamed)


def _is_credible(op: str, reason: str) -> bool:
    if op in OPERATORS or not onnx.defs.has(op):
        return True
    schema: Any = onnx.defs.get_schema(op)
    is_function = schema.has_function or schema.has_context_dependent_function
    return not is_function and "existing shape" not in reason


def _skeleton(
    model: onnx.ModelProto, wiring: Wiring, learned: Sequence[onnx.ValueInfoProto]
) -> onnx.ModelProto:
    """Return a copy of the model in which the weights are inputs of known types.

    The types that the file gives for values between nodes may be out of date. They are kept only
    for outputs of operators that onnx does not have, whose types it cannot infer.
    """
    skeleton = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    skeleton.opset_import.extend(model.opset_import)
    skeleton.functions.extend(model.functions)
    graph = skeleton.graph
    graph.name = model.graph.name or "graph"
    graph.node.extend(wiring.nodes)
    graph.input.extend(wiring.inputs)
    # onnx's checker refuses an output of no type, but infers one for a value that is no output.
    graph.output.extend(info for info in model.graph.output if info.type.WhichOneof("value"))
    opset = opset_of(model)
    foreign_names = {
        name for node in wiring.nodes if _is_foreign(node, opset) for name in node.output
    }
    typed = {info.name: info for info in (*model.graph.value_info, *learned)}
    graph.value_info.extend(info for name, info in typed.items() if name in foreign_names)
    for name, (array, dtype) in wiring.constants.items():
        if dtype in ("int32", "int64") and array.size <= _MAX_ELEMENTS:
            graph.initializer.append(to_tensor(name, array, dtype))
        else:
            graph.input.append(
                onnx.helper.make_tensor_value_info(name, NUMBERS[dtype], array.shape)
            )
    return skeleton
