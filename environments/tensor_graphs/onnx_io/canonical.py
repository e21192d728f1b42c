"""From a file's node to nodes in their canonical form.

`operators` says what that is. A rule here takes what the file says and adds nodes to the graph, or
raises NotCanonicalError: then the node becomes Opaque, which is never wrong.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx

from environments.tensor_graphs.nodes import Ref
from environments.tensor_graphs.onnx_io.site import NotCanonicalError, Site
from environments.tensor_graphs.onnx_io.sizes import are_known
from environments.tensor_graphs.onnx_io.tensors import DTYPES, is_numpy
from environments.tensor_graphs.onnx_io.told import Refs, Told
from environments.tensor_graphs.onnx_io.windows import read_conv, read_conv_transpose, read_pool
from environments.tensor_graphs.operators.table import OPERATORS

NEWEST_VERSION = 26
"""Operators whose meaning was last changed in a later opset are Opaque: nobody looked at them."""


def canonical(site: Site, told: Told) -> Refs:
    """Adds the canonical form of a node of ONNX's own domain.

    Returns:
      Its outputs, as many as are used or more.

    Raises:
      NotCanonicalError: it has none.
    """
    if onnx.defs.get_schema(told.op, site.opset).since_version > NEWEST_VERSION:
        raise NotCanonicalError
    rule = _RULES.get(told.op, _as_it_is)
    try:
        outputs = rule(site, told)
    except (LookupError, OverflowError, ValueError):
        raise NotCanonicalError from None  # OperatorError, or numbers that make no sense.
    if len(outputs) < told.num_outputs:
        raise NotCanonicalError
    return outputs


def _as_it_is(site: Site, told: Told) -> Refs:
    """All attributes are known by the same names, or say nothing."""
    if told.op not in OPERATORS:
        raise NotCanonicalError
    known = OPERATORS[told.op].attributes
    attributes = {}
    for name, value in told.attributes.items():
        if name in known:
            attributes[name] = value
        elif value != _SAYING_NOTHING.get((told.op, name), _ANYTHING):
            raise NotCanonicalError
    return site.add(told.op, *told.tensors(), **attributes)


_ANYTHING = object()
_SAYING_NOTHING: Mapping[tuple[str, str], Any] = {
    ("ArgMax", "select_last_index"): 0,
    ("ArgMin", "select_last_index"): 0,
    ("BatchNormalization", "training_mode"): 0,
    ("LayerNormalization", "stash_type"): 1,
}
"""Values of attributes that no canonical form has."""


def _identity(site: Site, told: Told) -> Refs:
    return (told.first(),)


def _dropout(site: Site, told: Told) -> Refs:
    mode = told.input(2)
    if mode is not None:
        value = site.value_of(mode)
        if value is None or value.any():
            raise NotCanonicalError
    return (told.first(),)


def _nested(op: str) -> Callable[[Site, Told], Refs]:
    """An operator of any number of inputs, one by one from the left."""

    def read(site: Site, told: Told) -> Refs:
        result, *others = told.tensors()
        for other in others:
            (result,) = site.add(op, result, other)
        return (result,)

    return read


def _batch_normalization(site: Site, told: Told) -> Refs:
    if site.opset < 14 and len(told.names) > 1:
        raise NotCanonicalError  # In training, as the number of outputs said then.
    attributes = {name: value for name, value in told.attributes.items() if name != "momentum"}
    return _as_it_is(site, dataclasses.replace(told, attributes=attributes))


def _layer_normalization(site: Site, told: Told) -> Refs:
    attributes = {"axis": -1, **told.attributes}
    return _as_it_is(site, dataclasses.replace(told, attributes=attributes))


def _softmax(site: Site, told: Told) -> Refs:
    return site.add(told.op, told.first(), axis=told.attributes.get("axis", -1))


def _gemm(site: Site, told: Told) -> Refs:
    attributes = dict(told.attributes)
    if len(told.inputs) < 3:
        attributes["beta"] = 1.0
    return _as_it_is(site, dataclasses.replace(told, attributes=attributes))


def _cast(site: Site, told: Told) -> Refs:
    to = DTYPES.get(told.attributes.get("to", 0), "")
    return _cast_to(site, told.first(), to)


def _cast_like(site: Site, told: Told) -> Refs:
    like = told.input(1)
    if like is None:
        raise NotCanonicalError
    return _cast_to(site, told.first(), site.type_of(like).dtype)


def _cast_to(site: Site, x: Ref, to: str) -> Refs:
    dtype = site.type_of(x).dtype
    if not is_numpy(to) or not is_numpy(dtype):
        raise NotCanonicalError
    return (x,) if to == dtype else site.add("Cast", x, to=to)


def _clip(site: Site, told: Told) -> Refs:
    bounds = {}
    for place, name in ((1, "min"), (2, "max")):
        bound = told.input(place)
        if bound is not None:
            bounds[name] = site.number(bound)
            if bounds[name] != bounds[name]:
                raise NotCanonicalError
    return site.add("Clip", told.first(), **bounds)


def _reshape(site: Site, told: Told) -> Refs:
    shape = site.sizes_of(told.input(1))
    if shape is None or (told.attributes.get("allowzero", 0) and 0 in shape.tolist()):
        raise NotCanonicalError
    return site.add("Reshape", told.first(), shape=tuple(shape.tolist()))


def _flatten(site: Site, told: Told) -> Refs:
    return site.add("Flatten", told.first(), axis=told.attributes.get("axis", 1))


def _unsqueeze(site: Site, told: Told) -> Refs:
    axes = told.input(1)
    if axes is None:
        raise NotCanonicalError
    return site.add("Unsqueeze", told.first(), axes=site.integers(axes))


def _squeeze(site: Site, told: Told) -> Refs:
    axes = told.input(1)
    if axes is not None:
        return site.add("Squeeze", told.first(), axes=site.integers(axes))
    if not site.type_of(told.first()).is_static:
        raise NotCanonicalError
    return site.add("Squeeze", told.first())


def _expand(site: Site, told: Told) -> Refs:
    shape = site.sizes_of(told.input(1))
    if shape is None:
        raise NotCanonicalError
    return site.add("Expand", told.first(), shape=tuple(shape.tolist()))


def _constant_of_shape(site: Site, told: Told) -> Refs:
    shape = site.sizes_of(told.first())
    value = told.attributes.get("value", np.zeros(1, np.float32))
    if shape is None or not are_known(shape) or value is None:
        raise NotCanonicalError
    filling = site.edit.add_constant(value.reshape(()))
    sizes = tuple(shape.tolist())
    return site.add("Expand", filling, shape=sizes) if sizes else (filling,)


def _tile(site: Site, told: Told) -> Refs:
    repeats = told.input(1)
    if repeats is None:
        raise NotCanonicalError
    return site.add("Tile", told.first(), repeats=site.integers(repeats))


def _transpose(site: Site, told: Told) -> Refs:
    x = told.first()
    perm = told.attributes.get("perm", tuple(reversed(range(site.rank_of(x)))))
    return site.add("Transpose", x, perm=perm)


def _concat(site: Site, told: Told) -> Refs:
    inputs = told.tensors()
    return inputs if len(inputs) == 1 else site.add("Concat", *inputs, **told.attributes)


def _split(site: Site, told: Told) -> Refs:
    x, axis = told.first(), told.attributes.get("axis", 0)
    sizes = told.input(1)
    if sizes is not None:
        return site.add("Split", x, axis=axis, split=site.integers(sizes))
    size, count = site.shape_of(x)[axis], len(told.names)
    if not isinstance(size, int):
        raise NotCanonicalError
    part = -(-size // count)
    parts = (*[part] * (count - 1), size - part * (count - 1))
    if parts[-1] < 1 or ("num_outputs" not in told.attributes and parts[-1] != part):
        raise NotCanonicalError
    return site.add("Split", x, axis=axis, split=parts)


def _slice(site: Site, told: Told) -> Refs:
    x = told.first()
    shape = site.shape_of(x)
    lists = []
    for place in range(1, 5):
        ref = told.input(place)
        sizes = None if ref is None else site.sizes_of(ref)
        if ref is not None and sizes is None:
            raise NotCanonicalError
        lists.append(None if sizes is None else sizes.reshape(-1).tolist())
    starts, ends, axes, steps = lists
    if starts is None or ends is None:
        raise NotCanonicalError
    axes = list(range(len(starts))) if axes is None else axes
    # Up to the size of the axis, whatever that will be.
    whole = 2**63 - 1
    ends = [whole if end == shape[axis] else end for end, axis in zip(ends, axes, strict=True)]
    steps = [1] * len(starts) if steps is None else steps
    if not all(isinstance(place, int) for place in (*starts, *ends, *axes, *steps)):
        raise NotCanonicalError
    return site.add("Slice", x, starts=starts, ends=ends, axes=axes, steps=steps)


def _pad(site: Site, told: Told) -> Refs:
    x, given, value, axes = told.first(), told.input(1), told.input(2), told.input(3)
    rank = site.rank_of(x)
    if given is None:
        raise NotCanonicalError
    amounts = site.integers(given)
    places = site.integers(axes) if axes is not None else tuple(range(rank))
    pads = [0] * 2 * rank
    for number, place in enumerate(places):
        pads[place % rank] = amounts[number]
        pads[place % rank + rank] = amounts[number + len(places)]
    mode = told.attributes.get("mode", "constant")
    filling = site.number(value) if mode == "constant" and value is not None else 0.0
    return site.add("Pad", x, mode=mode, pads=tuple(pads), value=filling)


def _reduction(site: Site, told: Told) -> Refs:
    x, given = told.first(), told.input(1)
    axes = site.integers(given) if given is not None else told.attributes.get("axes", ())
    if not axes:
        if told.attributes.get("noop_with_empty_axes", 0):
            raise NotCanonicalError
        axes = tuple(range(site.rank_of(x)))
    return site.add(told.op, x, axes=axes, keepdims=told.attributes.get("keepdims", 1))


def _shape(site: Site, told: Told) -> Refs:
    return site.add("Shape", told.first(), **told.attributes)


_RULES: Mapping[str, Callable[[Site, Told], Refs]] = {
    "AveragePool": read_pool,
    "BatchNormalization": _batch_normalization,
    "Cast": _cast,
    "CastLike": _cast_like,
    "Clip": _clip,
    "Concat": _concat,
    "ConstantOfShape": _constant_of_shape,
    "Conv": read_conv,
    "ConvTranspose": read_conv_transpose,
    "Dropout": _dropout,
    "Expand": _expand,
    "Flatten": _flatten,
    "Gemm": _gemm,
    "Identity": _identity,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _softmax,
    "Max": _nested("Max"),
    "MaxPool": read_pool,
    "Min": _nested("Min"),
    "Pad": _pad,
    **{name: _reduction for name in OPERATORS if name.startswith("Reduce")},
    "Reshape": _reshape,
    "Shape": _shape,
    "Slice": _slice,
    "Softmax": _softmax,
    "Split": _split,
    "Squeeze": _squeeze,
    "Sum": _nested("Add"),
    "Tile": _tile,
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
}
