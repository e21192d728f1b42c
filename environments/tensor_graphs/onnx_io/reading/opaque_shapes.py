"""Work out the shapes of some Opaque nodes, where onnx's inference knows less.

onnx does not compute with the names of sizes: what it says about the output of a Resize or of a
Flatten with open sizes is a rank at most. Nodes that come later would then be Opaque too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import Dimension, TensorType
from environments.tensor_graphs.onnx_io.reading.graph_builder import (
    GraphBuilder,
    NotCanonicalError,
    SourceNode,
)
from environments.tensor_graphs.operators import dimensions, layout

Shape = tuple[Dimension, ...]


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
    if len(shape) != len(inferred.shape):
        return inferred
    pairs = list(zip(shape, inferred.shape, strict=True))
    if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        return inferred
    merged = tuple(theirs if isinstance(theirs, int) else own for own, theirs in pairs)
    return TensorType(inferred.dtype, merged)


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
