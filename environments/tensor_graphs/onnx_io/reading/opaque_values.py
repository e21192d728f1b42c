"""Work out what nodes without a canonical form give, where onnx's inference knows less.

`constants_of` computes the integers that such nodes derive from short constants. Exporters compute
shapes with any operator (Mod, TopK, CumSum …). A shape that stays unknown makes all that follows it
Opaque, so onnxruntime, which folds such nodes too, runs them once. Weights that are not integers
stay what they are: quantised ones are to be kept so.

`refined` works out the shapes of other such nodes. onnx does not compute with the names of sizes:
what it says about the output of a Resize or of a Flatten with open sizes is a rank at most. Nodes
that come later would then be Opaque too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from environments.tensor_graphs.graph.nodes import Dimension, Ref, TensorType
from environments.tensor_graphs.onnx_io import scopes
from environments.tensor_graphs.onnx_io.opaque import may_differ
from environments.tensor_graphs.onnx_io.reading.graph_builder import (
    GraphBuilder,
    NotCanonicalError,
    SourceNode,
)
from environments.tensor_graphs.onnx_io.reading.inference import session_of
from environments.tensor_graphs.onnx_io.reading.shape_values import INTEGERS, MAX_ELEMENTS
from environments.tensor_graphs.onnx_io.tensors import to_tensor
from environments.tensor_graphs.operators import dimensions, layout
from environments.tensor_graphs.operators.operator import Shape, num_elements


def constants_of(
    builder: GraphBuilder,
    node: onnx.NodeProto,
    inputs: Sequence[Ref | None],
    types: Mapping[str, TensorType | None],
) -> dict[str, np.ndarray] | None:
    """Return what a node gives, by name; None if that depends on more than short constants.

    The node is one of ONNX's own operators, and `types` are those of its outputs, if known.
    """
    names = [name for name in node.output if name]
    if not all(_is_short(types.get(name)) for name in names):
        return None
    if any(scopes.subgraphs(node)) or not inputs or may_differ(node, ()):
        return None
    arrays = {}
    for name, ref in zip(node.input, inputs, strict=False):
        value = None if ref is None else builder.value_of(ref)
        if ref is not None and value is None:
            return None
        if value is not None:
            arrays[name] = value
    return _run(builder.model, node, names, arrays)


def _is_short(kind: TensorType | None) -> bool:
    """Whether values of a type are short lists of integers; what is longer is not even computed."""
    is_known = kind is not None and kind.is_static and kind.dtype in INTEGERS
    return is_known and num_elements(kind) <= MAX_ELEMENTS


def _run(
    model: onnx.ModelProto,
    node: onnx.NodeProto,
    names: Sequence[str],
    arrays: Mapping[str, np.ndarray],
) -> dict[str, np.ndarray] | None:
    single = onnx.ModelProto(ir_version=max(model.ir_version, 4))
    single.opset_import.extend(model.opset_import)
    single.graph.name = "node"
    single.graph.node.append(node)
    single.graph.initializer.extend(
        to_tensor(name, array, array.dtype.name) for name, array in arrays.items()
    )
    single.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = session_of(single)
    if session is None:
        return None
    try:
        outputs = session.run(names, {})
    except Exception:
        # onnxruntime's exceptions have no base class other than Exception.
        return None
    return dict(zip(names, outputs, strict=True))


def refined(
    builder: GraphBuilder, node: SourceNode, inferred: TensorType | None
) -> TensorType | None:
    """Return the type of an Opaque node's first output, with all sizes known here or to onnx.

    Where the two contradict each other, it is what onnx inferred.
    """
    find = _SHAPES.get(node.op)
    if find is None or inferred is None:
        return inferred
    try:
        shape = find(builder, node)
    except (NotCanonicalError, LookupError, OverflowError, ValueError):
        return inferred
    if shape is None:
        return inferred
    if inferred.shape is None:
        return TensorType(inferred.dtype, shape)
    if not may_be_equal(shape, inferred.shape):
        return inferred
    pairs = zip(shape, inferred.shape, strict=True)
    merged = tuple(theirs if isinstance(theirs, int) else own for own, theirs in pairs)
    return TensorType(inferred.dtype, merged)


def may_be_equal(first: Shape, second: Shape) -> bool:
    """Return whether two shapes have the same rank, and the same sizes where both are known."""
    return len(first) == len(second) and all(
        a == b or isinstance(a, str) or isinstance(b, str)
        for a, b in zip(first, second, strict=True)
    )


def _flatten(builder: GraphBuilder, node: SourceNode) -> Shape:
    return layout.reshaped("Flatten", builder.shape_of(node.required()), node.attributes)


def _reshape(builder: GraphBuilder, node: SourceNode) -> Shape | None:
    shape, target = builder.shape_of(node.required()), builder.sizes_of(node.input(1))
    if target is None or node.attributes.get("allowzero", 0) or 0 in shape:
        return None
    sizes = [shape[place] if size == 0 else size for place, size in enumerate(target.tolist())]
    if -1 in sizes:
        others = dimensions.product([size for size in sizes if size != -1])
        sizes[sizes.index(-1)] = dimensions.quotient(dimensions.product(shape), others)
    return tuple(sizes)


def _filled(place: int) -> Callable[[GraphBuilder, SourceNode], Shape | None]:
    """Make the shape of an operator whose input at a place is the shape of its output."""

    def find(builder: GraphBuilder, node: SourceNode) -> Shape | None:
        sizes = builder.sizes_of(node.input(place))
        return None if sizes is None else tuple(sizes.tolist())

    return find


def _resize(builder: GraphBuilder, node: SourceNode) -> Shape | None:
    shape, scales, sizes = builder.shape_of(node.required()), node.input(2), node.input(3)
    special = node.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    policy = node.attributes.get("keep_aspect_ratio_policy", "stretch")
    if special or policy != "stretch" or "axes" in node.attributes:
        return None
    if sizes is not None:
        target = builder.sizes_of(sizes)
        return None if target is None else tuple(target.tolist())
    factors = None if scales is None else builder.value_of(scales)
    if factors is None or factors.shape != (len(shape),):
        return None
    return tuple(_scaled(size, factor) for size, factor in zip(shape, factors, strict=True))


def _scaled(size: Dimension, factor: np.float32) -> Dimension:
    """Multiply a size by a factor as onnxruntime does, rounding down in float32.

    Raises:
      ValueError: the size is not known, and neither the factor nor its inverse is a whole number.
    """
    if isinstance(size, int):
        return int(np.float32(size) * factor)
    if factor >= 1 and float(factor).is_integer():
        return dimensions.product([size, int(factor)])
    if factor in (0.5, 0.25, 0.125):  # Others are not exact, so rounding down may differ.
        return dimensions.rounded_down(size, int(1 / factor))
    raise ValueError(factor)


_SHAPES: Mapping[str, Callable[[GraphBuilder, SourceNode], Any]] = {
    "ConstantOfShape": _filled(0),
    "Flatten": _flatten,
    "Reshape": _reshape,
    "Resize": _resize,
}
