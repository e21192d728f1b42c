"""Add nodes of a file in their canonical form: one way to write a node, whatever the file's opset.

`operators.table` defines the forms. A function here takes a node of the file and adds its form to
the graph, or raises NotCanonicalError. The node then becomes Opaque, which is always right.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from environments.tensor_graphs.graph.nodes import Ref
from environments.tensor_graphs.onnx_io.older_forms import SOFTMAX_OF_AXIS
from environments.tensor_graphs.onnx_io.reading.graph_builder import (
    GraphBuilder,
    NotCanonicalError,
    Refs,
    SourceNode,
)
from environments.tensor_graphs.onnx_io.reading.shape_values import are_known
from environments.tensor_graphs.onnx_io.tensors import DTYPES, is_numpy
from environments.tensor_graphs.operators.table import OPERATORS

Form = Callable[[GraphBuilder, SourceNode], Refs]

NEWEST_VERSION = 26
"""Operators whose meaning changed in a later opset are Opaque: these functions may not fit them."""


def add_canonical(builder: GraphBuilder, node: SourceNode) -> Refs:
    """Add a node of ONNX's own domain in its canonical form; return its outputs that are used.

    Raises:
      NotCanonicalError: the node has no canonical form.
    """
    if onnx.defs.get_schema(node.op, builder.opset).since_version > NEWEST_VERSION:
        raise NotCanonicalError
    add = _FORMS.get(node.op, _unchanged)
    try:
        outputs = add(builder, node)
    except (LookupError, OverflowError, ValueError):
        raise NotCanonicalError from None  # The cause is an OperatorError, or invalid numbers.
    if len(outputs) < node.num_outputs:
        raise NotCanonicalError
    return outputs


def _unchanged(builder: GraphBuilder, node: SourceNode) -> Refs:
    """Add an operator whose attributes are canonical by the same names, or have no effect."""
    if node.op not in OPERATORS:
        raise NotCanonicalError
    defaults = OPERATORS[node.op].attributes
    attributes = {}
    for name, value in node.attributes.items():
        if name in defaults:
            attributes[name] = value
        elif value != _WITHOUT_EFFECT.get((node.op, name), _NEVER_EQUAL):
            raise NotCanonicalError
    return builder.add(node.op, *node.all_inputs(), **attributes)


_NEVER_EQUAL = object()
_WITHOUT_EFFECT: Mapping[tuple[str, str], Any] = {
    ("ArgMax", "select_last_index"): 0,
    ("ArgMin", "select_last_index"): 0,
    ("BatchNormalization", "spatial"): 1,
    ("BatchNormalization", "training_mode"): 0,
    ("LayerNormalization", "stash_type"): 1,
}
"""Attributes without a canonical form, and the values with which they may be left out."""


def _dropout(builder: GraphBuilder, node: SourceNode) -> Refs:
    mode = node.input(2)
    if mode is not None:
        value = builder.value_of(mode)
        if value is None or value.any():
            raise NotCanonicalError
    return (node.required(),)


def _nested(op: str) -> Form:
    """Make the form of an operator with many inputs: nested nodes of two inputs, from the left."""

    def add(builder: GraphBuilder, node: SourceNode) -> Refs:
        result, *others = node.all_inputs()
        for operand in others:
            (result,) = builder.add(op, result, operand)
        return (result,)

    return add


def _batch_normalization(builder: GraphBuilder, node: SourceNode) -> Refs:
    if builder.opset < 14 and len(node.output_names) > 1:
        raise NotCanonicalError  # In these opsets, more outputs mean training.
    attributes = {name: value for name, value in node.attributes.items() if name != "momentum"}
    return _unchanged(builder, dataclasses.replace(node, attributes=attributes))


def _with_default(name: str, value: Any) -> Form:
    """Make the form of an operator whose attribute has a default in ONNX, and none here."""

    def add(builder: GraphBuilder, node: SourceNode) -> Refs:
        attributes = {name: value, **node.attributes}
        return _unchanged(builder, dataclasses.replace(node, attributes=attributes))

    return add


def _softmax(builder: GraphBuilder, node: SourceNode) -> Refs:
    x = node.required()
    if builder.opset >= SOFTMAX_OF_AXIS:
        return builder.add(node.op, x, axis=node.attributes.get("axis", -1))
    axis, last = node.attributes.get("axis", 1), len(builder.shape_of(x)) - 1
    if axis not in (last, -1):
        raise NotCanonicalError
    return builder.add(node.op, x, axis=last)


def _gemm(builder: GraphBuilder, node: SourceNode) -> Refs:
    attributes = dict(node.attributes)
    if len(node.inputs) < 3:
        attributes["beta"] = 1.0
    return _unchanged(builder, dataclasses.replace(node, attributes=attributes))


def _cast_to(builder: GraphBuilder, x: Ref, to: str) -> Refs:
    dtype = builder.type_of(x).dtype
    if not is_numpy(to) or not is_numpy(dtype):
        raise NotCanonicalError
    return (x,) if to == dtype else builder.add("Cast", x, to=to)


def _clip(builder: GraphBuilder, node: SourceNode) -> Refs:
    bounds = {}
    for place, name in ((1, "min"), (2, "max")):
        bound = node.input(place)
        if bound is not None:
            bounds[name] = builder.number(bound)
            if bounds[name] != bounds[name]:
                raise NotCanonicalError
    return builder.add("Clip", node.required(), **bounds)


def _reshape(builder: GraphBuilder, node: SourceNode) -> Refs:
    shape = _shape(builder, node)
    if node.attributes.get("allowzero", 0) and 0 in shape:
        raise NotCanonicalError
    return builder.add("Reshape", node.required(), shape=shape)


def _shape(builder: GraphBuilder, node: SourceNode) -> tuple[Any, ...]:
    """Return the second input, a list of sizes; each may be a name."""
    shape = builder.sizes_of(node.input(1))
    if shape is None:
        raise NotCanonicalError
    return tuple(shape.tolist())


def _squeeze(builder: GraphBuilder, node: SourceNode) -> Refs:
    x, axes = node.required(), node.input(1)
    if axes is None and builder.type_of(x).is_static:
        return builder.add("Squeeze", x)
    if axes is None or not builder.integers(axes):
        raise NotCanonicalError  # Of no axes, onnx squeezes none and onnxruntime all.
    return builder.add("Squeeze", x, axes=builder.integers(axes))


def _constant_of_shape(builder: GraphBuilder, node: SourceNode) -> Refs:
    shape = builder.sizes_of(node.required())
    value = node.attributes.get("value", np.zeros(1, np.float32))
    if shape is None or not are_known(shape) or value is None:
        raise NotCanonicalError
    filling = builder.edit.add_constant(value.reshape(()))
    sizes = tuple(shape.tolist())
    return builder.add("Expand", filling, shape=sizes) if sizes else (filling,)


def _transpose(builder: GraphBuilder, node: SourceNode) -> Refs:
    x = node.required()
    perm = node.attributes.get("perm", tuple(range(len(builder.shape_of(x))))[::-1])
    return builder.add("Transpose", x, perm=perm)


def _concat(builder: GraphBuilder, node: SourceNode) -> Refs:
    inputs = node.all_inputs()
    return inputs if len(inputs) == 1 else builder.add("Concat", *inputs, **node.attributes)


def _split(builder: GraphBuilder, node: SourceNode) -> Refs:
    x, axis = node.required(), node.attributes.get("axis", 0)
    sizes = node.input(1)
    if sizes is not None:
        return builder.add("Split", x, axis=axis, split=builder.integers(sizes))
    size, count = builder.shape_of(x)[axis], len(node.output_names)
    if not isinstance(size, int):
        raise NotCanonicalError
    part = -(-size // count)
    parts = (*[part] * (count - 1), size - part * (count - 1))
    if parts[-1] < 1 or ("num_outputs" not in node.attributes and parts[-1] != part):
        raise NotCanonicalError
    return builder.add("Split", x, axis=axis, split=parts)


def _slice(builder: GraphBuilder, node: SourceNode) -> Refs:
    x = node.required()
    shape = builder.shape_of(x)
    lists = []
    for place in range(1, 5):
        ref = node.input(place)
        sizes = None if ref is None else builder.sizes_of(ref)
        if ref is not None and sizes is None:
            raise NotCanonicalError
        lists.append(None if sizes is None else sizes.reshape(-1).tolist())
    starts, ends, axes, steps = lists
    if starts is None or ends is None:
        raise NotCanonicalError
    axes = list(range(len(starts))) if axes is None else axes
    # An end that is the axis's own size, known or not, means the whole axis.
    whole = 2**63 - 1
    ends = [whole if end == shape[axis] else end for end, axis in zip(ends, axes, strict=True)]
    steps = [1] * len(starts) if steps is None else steps
    if not all(isinstance(place, int) for place in (*starts, *ends, *axes, *steps)):
        raise NotCanonicalError
    return builder.add("Slice", x, starts=starts, ends=ends, axes=axes, steps=steps)


def _pad(builder: GraphBuilder, node: SourceNode) -> Refs:
    x, value, axes = node.required(), node.input(2), node.input(3)
    rank, amounts = len(builder.shape_of(x)), builder.integers(node.required(1))
    places = builder.integers(axes) if axes is not None else tuple(range(rank))
    pads = [0] * 2 * rank
    for number, place in enumerate(places):
        pads[place % rank] = amounts[number]
        pads[place % rank + rank] = amounts[number + len(places)]
    mode = node.attributes.get("mode", "constant")
    filling = builder.number(value) if mode == "constant" and value is not None else 0.0
    return builder.add("Pad", x, mode=mode, pads=tuple(pads), value=filling)


def _reduction(builder: GraphBuilder, node: SourceNode) -> Refs:
    x, axes_ref = node.required(), node.input(1)
    axes = builder.integers(axes_ref) if axes_ref is not None else node.attributes.get("axes", ())
    if not axes:
        if node.attributes.get("noop_with_empty_axes", 0):
            raise NotCanonicalError
        axes = tuple(range(len(builder.shape_of(x))))
    return builder.add(node.op, x, axes=axes, keepdims=node.attributes.get("keepdims", 1))


def _conv(builder: GraphBuilder, node: SourceNode) -> Refs:
    """Add a Conv or ConvTranspose without its kernel_shape, which the weight's shape contains."""
    inputs, attributes = node.all_inputs(), node.attributes
    kernel = builder.shape_of(inputs[1])[2:]
    if tuple(attributes.get("kernel_shape", kernel)) != kernel:
        raise NotCanonicalError
    settings = {"group": attributes.get("group", 1)}
    if node.op == "ConvTranspose":
        if "output_shape" in attributes or attributes.get("auto_pad", "NOTSET") != "NOTSET":
            raise NotCanonicalError
        settings["output_padding"] = attributes.get("output_padding", (0,) * len(kernel))
    return builder.add(node.op, *inputs, **_window(builder, node, kernel), **settings)


def _pool(builder: GraphBuilder, node: SourceNode) -> Refs:
    """Add a MaxPool or AveragePool with one output."""
    kernel = tuple(node.attributes["kernel_shape"])
    window = _window(builder, node, kernel)
    others = {"kernel_shape": kernel, "ceil_mode": node.attributes.get("ceil_mode", 0)}
    if node.op == "AveragePool":
        others["count_include_pad"] = node.attributes.get("count_include_pad", 0)
    if others["ceil_mode"] and node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        raise NotCanonicalError
    return builder.add(node.op, node.required(), **window, **others)


def _window(builder: GraphBuilder, node: SourceNode, kernel: Sequence[Any]) -> dict[str, Any]:
    """Return the attributes `dilations`, `pads` and `strides` with all their numbers."""
    sizes = builder.shape_of(node.required())[2:]
    if len(sizes) != len(kernel) or not all(isinstance(size, int) for size in kernel):
        raise NotCanonicalError
    ones = (1,) * len(kernel)
    strides = node.attributes.get("strides", ones)
    dilations = node.attributes.get("dilations", ones)
    pads = node.attributes.get("pads", (0,) * 2 * len(kernel))
    match node.attributes.get("auto_pad", "NOTSET"):
        case "NOTSET":
            pass
        case "VALID":
            pads = (0,) * 2 * len(kernel)
        case "SAME_UPPER" | "SAME_LOWER" as mode:
            amounts = [
                _padding(*each) for each in zip(sizes, kernel, strides, dilations, strict=True)
            ]
            smaller = [amount // 2 for amount in amounts]
            larger = [amount - amount // 2 for amount in amounts]
            pads = (*smaller, *larger) if mode == "SAME_UPPER" else (*larger, *smaller)
        case _:
            raise NotCanonicalError
    if min(pads, default=0) < 0:
        raise NotCanonicalError
    return {"dilations": dilations, "pads": pads, "strides": strides}


def _padding(size: int | str, kernel: int, stride: int, dilation: int) -> int:
    """Return the padding of an axis that makes the output's size size / stride, rounded up."""
    reach = dilation * (kernel - 1) + 1
    if stride == 1:
        return reach - 1
    if isinstance(size, str):
        raise NotCanonicalError
    return max((-(-size // stride) - 1) * stride + reach - size, 0)


_FORMS: Mapping[str, Form] = {
    "AveragePool": _pool,
    "BatchNormalization": _batch_normalization,
    "Cast": lambda builder, node: _cast_to(
        builder, node.required(), DTYPES.get(node.attributes.get("to", 0), "")
    ),
    "CastLike": lambda builder, node: _cast_to(
        builder, node.required(), builder.type_of(node.required(1)).dtype
    ),
    "Clip": _clip,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Conv": _conv,
    "ConvTranspose": _conv,
    "Dropout": _dropout,
    "Expand": lambda builder, node: builder.add(
        "Expand", node.required(), shape=_shape(builder, node)
    ),
    "Flatten": lambda builder, node: builder.add(
        "Flatten", node.required(), axis=node.attributes.get("axis", 1)
    ),
    "Gemm": _gemm,
    "Identity": lambda builder, node: (node.required(),),
    "LayerNormalization": _with_default("axis", -1),
    "LogSoftmax": _softmax,
    "Max": _nested("Max"),
    "MaxPool": _pool,
    "Min": _nested("Min"),
    "Pad": _pad,
    **{name: _reduction for name in OPERATORS if name.startswith("Reduce")},
    "Reshape": _reshape,
    "Shape": lambda builder, node: builder.add("Shape", node.required(), **node.attributes),
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sum": _nested("Add"),
    "Tile": lambda builder, node: builder.add(
        "Tile", node.required(), repeats=builder.integers(node.required(1))
    ),
    "Transpose": _transpose,
    "Unsqueeze": lambda builder, node: builder.add(
        "Unsqueeze", node.required(), axes=builder.integers(node.required(1))
    ),
}
