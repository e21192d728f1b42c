"""Add nodes of a file in their canonical form: one way to write a node, whatever the file's opset.

`operators.table` defines the forms. A function here takes a node of the file and adds its form to
the graph, or raises NotCanonicalError. The node then becomes Opaque, which is always right.
"""

from __future__ import annotations

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
from environments.tensor_graphs.operators import contrib
from environments.tensor_graphs.operators.table import OPERATORS

Form = Callable[[GraphBuilder, SourceNode], Refs]

NEWEST_VERSION = 26
"""Operators whose meaning changed in a later opset are Opaque: these functions may not fit them."""


def add_canonical(builder: GraphBuilder, node: SourceNode) -> Refs:
    """Add a node in its canonical form; return its outputs that are used.

    Raises:
      NotCanonicalError: the node has no canonical form.
    """
    if node.domain == contrib.DOMAIN:
        add: Form = _contrib
    elif onnx.defs.get_schema(node.op, builder.opset).since_version > NEWEST_VERSION:
        raise NotCanonicalError
    else:
        add = _FORMS.get(node.op, _unchanged)
    try:
        outputs = add(builder, node)
    except (LookupError, OverflowError, TypeError, ValueError, ZeroDivisionError):
        raise NotCanonicalError from None  # The cause is an OperatorError, or invalid numbers.
    if len(outputs) < node.num_outputs:
        raise NotCanonicalError
    return outputs


def _unchanged(builder: GraphBuilder, node: SourceNode, **more: Any) -> Refs:
    """Add an operator whose attributes are canonical by the same names, or have no effect."""
    if node.op not in OPERATORS:
        raise NotCanonicalError
    values = _with_effect(node.op, {**node.attributes, **more})
    return builder.add(node.op, *node.all_inputs(), **values)


def _with_effect(op: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the attributes that the canonical form has.

    Raises:
      NotCanonicalError: another one has an effect.
    """
    canonical = OPERATORS[op].attributes
    for name in values.keys() - canonical.keys():
        if name not in _WITHOUT_EFFECT or _WITHOUT_EFFECT[name] not in (None, values[name]):
            raise NotCanonicalError
    return {name: value for name, value in values.items() if name in canonical}


_WITHOUT_EFFECT: Mapping[str, int | None] = {
    "mask_filter_value": None,
    "momentum": None,
    "select_last_index": 0,
    "spatial": 1,
    "stash_type": 1,
    "training_mode": 0,
    "transBatchA": 0,
    "transBatchB": 0,
    "unidirectional": 0,
}
"""Attributes without a canonical form, and the value with which each may be left out; None: any."""

# Where the defaults of onnxruntime's own operators differ from those of their canonical forms.
_CONTRIB_DEFAULTS: Mapping[str, Mapping[str, Any]] = {
    "Attention": {"scale": 0.0},
    "MultiHeadAttention": {"scale": 0.0},
    "QuickGelu": {"alpha": 1.702},
    "SkipLayerNormalization": {"epsilon": 1e-12},
}


def _contrib(builder: GraphBuilder, node: SourceNode) -> Refs:
    """Add a node of onnxruntime's own domain; return its outputs, in the node's order."""
    inputs = {place for place, ref in enumerate(node.inputs) if ref is not None}
    outputs = {place for place, name in enumerate(node.output_names) if name}
    fitting = [
        op
        for op, form in contrib.FORMS.items()
        if form.op == node.op and inputs <= {*form.inputs} and outputs <= {*form.outputs}
    ]
    if not fitting:
        raise NotCanonicalError
    op, form = fitting[0], contrib.FORMS[fitting[0]]
    values = _with_effect(op, {**_CONTRIB_DEFAULTS.get(node.op, {}), **node.attributes})
    refs = [ref for ref in map(node.input, form.inputs) if ref is not None]
    if refs != [node.input(place) for place in form.inputs[: len(refs)]]:
        raise NotCanonicalError
    if not values.get("scale", 1.0):
        place, parts = (1, 3) if op == "Attention" else (0, 1)
        width = builder.shape_of(refs[place])[-1] / parts
        values["scale"] = (width / values["num_heads"]) ** -0.5
    added = builder.add(op, *refs, **values)
    by_place = dict(zip(form.outputs, added, strict=True))
    return tuple(by_place.get(place, added[0]) for place in range(max(form.outputs) + 1))


def _dropout(builder: GraphBuilder, node: SourceNode) -> Refs:
    mode = node.input(2)
    if mode is not None:
        value = builder.value_of(mode)
        if value is None or value.any():
            raise NotCanonicalError
    return (node.required(),)


def _nested(builder: GraphBuilder, node: SourceNode) -> Refs:
    """Add an operator with many inputs: nested nodes of two inputs, from the left."""
    result, *others = node.all_inputs()
    for operand in others:
        (result,) = builder.add("Add" if node.op == "Sum" else node.op, result, operand)
    return (result,)


def _batch_normalization(builder: GraphBuilder, node: SourceNode) -> Refs:
    if builder.opset < 14 and len(node.output_names) > 1:
        raise NotCanonicalError  # In these opsets, more outputs mean training.
    return _unchanged(builder, node)


def _softmax(builder: GraphBuilder, node: SourceNode) -> Refs:
    x = node.required()
    if builder.opset >= SOFTMAX_OF_AXIS:
        return builder.add(node.op, x, axis=node.attributes.get("axis", -1))
    axis, last = node.attributes.get("axis", 1), len(builder.shape_of(x)) - 1
    if axis not in (last, -1):
        raise NotCanonicalError
    return builder.add(node.op, x, axis=last)


def _gemm(builder: GraphBuilder, node: SourceNode) -> Refs:
    has_bias = len(node.inputs) == 3
    return _unchanged(builder, node) if has_bias else _unchanged(builder, node, beta=1.0)


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
    "Flatten": lambda builder, node: builder.add("Flatten", node.required(), **node.attributes),
    "Gemm": _gemm,
    "Identity": lambda builder, node: (node.required(),),
    "LayerNormalization": lambda builder, node: _unchanged(
        builder, node, axis=node.attributes.get("axis", -1)
    ),
    "LogSoftmax": _softmax,
    "Max": _nested,
    "MaxPool": _pool,
    "Min": _nested,
    "Pad": _pad,
    **{name: _reduction for name in OPERATORS if name.startswith("Reduce")},
    "Reshape": _reshape,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sum": _nested,
    "Tile": lambda builder, node: builder.add(
        "Tile", node.required(), repeats=builder.integers(node.required(1))
    ),
    "Transpose": _transpose,
    "Unsqueeze": lambda builder, node: builder.add(
        "Unsqueeze", node.required(), axes=builder.integers(node.required(1))
    ),
}
