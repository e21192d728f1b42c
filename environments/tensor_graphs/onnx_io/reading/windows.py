"""Canonical forms of convolutions and pools: pads, strides and dilations written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from environments.tensor_graphs.onnx_io.reading.graph_builder import GraphBuilder, NotCanonicalError
from environments.tensor_graphs.onnx_io.reading.source_node import Refs, SourceNode


def add_conv(builder: GraphBuilder, node: SourceNode) -> Refs:
    """Add a Conv or ConvTranspose without its kernel_shape, which the weight's shape contains.

    Raises:
      NotCanonicalError: the kernel_shape differs from the weight's; the window has no canonical
        form; or the pads of a ConvTranspose are not given as numbers.
    """
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


def add_pool(builder: GraphBuilder, node: SourceNode) -> Refs:
    """Add a MaxPool or AveragePool with one output.

    Raises:
      NotCanonicalError: the window has no canonical form.
    """
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
