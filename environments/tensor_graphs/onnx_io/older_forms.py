"""Operators of older opsets that take as attributes what newer ones take as inputs.

The canonical forms are made from inputs, so these attributes become constant inputs when a node is
read, and attributes again when a node is written in an older opset.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Moved(NamedTuple):
    """Attributes of an operator that became inputs.

    Attributes:
      since: the opset in which they did.
      names: the attributes' names, in the order of the inputs, which follow the first one.
    """

    since: int
    names: tuple[str, ...]


MOVED: Mapping[str, Moved] = {
    "Clip": Moved(11, ("min", "max")),
    "Pad": Moved(11, ("pads", "value")),
    "Slice": Moved(10, ("starts", "ends", "axes")),
    "Split": Moved(13, ("split",)),
    "Squeeze": Moved(13, ("axes",)),
    "Unsqueeze": Moved(13, ("axes",)),
}
"""By name of the operator. Reductions are not among them: their canonical forms know both."""

SOFTMAX_OF_AXIS = 13
"""The opset since which Softmax is about one axis; before, about all axes from that one on."""

OPTIONAL_BIAS = 11
"""The opset since which Gemm may have no third input."""
