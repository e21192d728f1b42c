"""Operators of older opsets that take as attributes what newer ones take as inputs.

The canonical forms are made from inputs, so these attributes become constant inputs when a node is
read, and attributes again when a node is written in an older opset.
"""

from __future__ import annotations

from collections.abc import Mapping

MOVED: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "Clip": (11, ("min", "max")),
    "Pad": (11, ("pads", "value")),
    "Slice": (10, ("starts", "ends", "axes")),
    "Split": (13, ("split",)),
    "Squeeze": (13, ("axes",)),
    "Unsqueeze": (13, ("axes",)),
}
"""By operator, the opset in which attributes became inputs, and their names.

The names are in the order of the inputs, which follow the first one. Reductions are not among them:
their canonical forms know both.
"""

SOFTMAX_OF_AXIS = 13
"""The opset since which Softmax is about one axis; before, about all axes from that one on."""
