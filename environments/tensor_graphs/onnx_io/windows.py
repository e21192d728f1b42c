"""Canonical forms of convolutions and pools: padding, strides and dilations written out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from environments.tensor_graphs.onnx_io.site import NotCanonicalError, Site
from environments.tensor_graphs.onnx_io.told import Refs, Told


def read_conv(site: Site, told: Told) -> Refs:
    """Conv; the weight says the size of the window."""
    inputs = told.tensors()
    kernel = site.shape_of(inputs[1])[2:]
    if tuple(told.attributes.get("kernel_shape", kernel)) != kernel:
        raise NotCanonicalError
    window = _window(site, told, kernel)
    return site.add("Conv", *inputs, **window, group=told.attributes.get("group", 1))


def read_conv_transpose(site: Site, told: Told) -> Refs:
    """ConvTranspose that says its padding."""
    inputs = told.tensors()
    kernel = site.shape_of(inputs[1])[2:]
    if tuple(told.attributes.get("kernel_shape", kernel)) != kernel:
        raise NotCanonicalError
    if "output_shape" in told.attributes or told.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        raise NotCanonicalError
    window = _window(site, told, kernel)
    padding = told.attributes.get("output_padding", (0,) * len(kernel))
    group = told.attributes.get("group", 1)
    return site.add("ConvTranspose", *inputs, **window, group=group, output_padding=padding)


def read_pool(site: Site, told: Told) -> Refs:
    """MaxPool and AveragePool of one output."""
    kernel = tuple(told.attributes["kernel_shape"])
    window = _window(site, told, kernel)
    others = {"kernel_shape": kernel, "ceil_mode": told.attributes.get("ceil_mode", 0)}
    if told.op == "AveragePool":
        others["count_include_pad"] = told.attributes.get("count_include_pad", 0)
    if others["ceil_mode"] and told.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        raise NotCanonicalError
    return site.add(told.op, told.first(), **window, **others)


def _window(site: Site, told: Told, kernel: Sequence[Any]) -> dict[str, Any]:
    """`dilations`, `pads` and `strides`."""
    sizes = site.shape_of(told.first())[2:]
    if len(sizes) != len(kernel) or not all(isinstance(size, int) for size in kernel):
        raise NotCanonicalError
    ones = (1,) * len(kernel)
    strides = told.attributes.get("strides", ones)
    dilations = told.attributes.get("dilations", ones)
    pads = told.attributes.get("pads", (0,) * 2 * len(kernel))
    match told.attributes.get("auto_pad", "NOTSET"):
        case "NOTSET":
            pass
        case "VALID":
            pads = (0,) * 2 * len(kernel)
        case "SAME_UPPER" | "SAME_LOWER" as way:
            amounts = [
                _padding(*each) for each in zip(sizes, kernel, strides, dilations, strict=True)
            ]
            smaller = [amount // 2 for amount in amounts]
            larger = [amount - amount // 2 for amount in amounts]
            pads = (*smaller, *larger) if way == "SAME_UPPER" else (*larger, *smaller)
        case _:
            raise NotCanonicalError
    if min(pads, default=0) < 0:
        raise NotCanonicalError
    return {"dilations": dilations, "pads": pads, "strides": strides}


def _padding(size: int | str, kernel: int, stride: int, dilation: int) -> int:
    """What is to be added for the output to have size / stride places, rounded up."""
    reach = dilation * (kernel - 1) + 1
    if stride == 1:
        return reach - 1
    if isinstance(size, str):
        raise NotCanonicalError
    return max((-(-size // stride) - 1) * stride + reach - size, 0)
