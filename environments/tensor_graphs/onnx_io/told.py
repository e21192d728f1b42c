"""What a file says of a node."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import onnx

from environments.tensor_graphs.nodes import Ref
from environments.tensor_graphs.onnx_io.site import NotCanonicalError
from environments.tensor_graphs.onnx_io.tensors import dtype_of, is_numpy, to_array

Refs = tuple[Ref, ...]


@dataclasses.dataclass(frozen=True)
class Told:
    """What a file says of a node.

    Attributes:
      op: operator.
      inputs: without those left out at the end.
      attributes: by name; texts are str, tensors arrays.
      num_outputs: up to the last one that is used.
      names: of all outputs.
    """

    op: str
    inputs: tuple[Ref | None, ...]
    attributes: Mapping[str, Any]
    num_outputs: int
    names: tuple[str, ...]

    def input(self, place: int) -> Ref | None:
        """An input, None where it is left out."""
        return self.inputs[place] if place < len(self.inputs) else None

    def tensors(self) -> Refs:
        """All inputs.

        Raises:
          NotCanonicalError: one in between is left out.
        """
        if None in self.inputs:
            raise NotCanonicalError
        return tuple(ref for ref in self.inputs if ref is not None)

    def first(self) -> Ref:
        """The first input.

        Raises:
          NotCanonicalError: it is left out.
        """
        found = self.input(0)
        if found is None:
            raise NotCanonicalError
        return found


def told_attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """The attributes of a node; those that NumPy and Python cannot hold are None."""
    found: dict[str, Any] = {}
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.TENSOR:
            is_held = is_numpy(dtype_of(attribute.t))
            found[attribute.name] = to_array(attribute.t, None) if is_held else None
        elif attribute.type == onnx.AttributeProto.STRING:
            found[attribute.name] = attribute.s.decode("utf-8", "replace")
        elif attribute.type in (onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT):
            found[attribute.name] = onnx.helper.get_attribute_value(attribute)
        elif attribute.type in (onnx.AttributeProto.INTS, onnx.AttributeProto.FLOATS):
            found[attribute.name] = tuple(onnx.helper.get_attribute_value(attribute))
        else:
            found[attribute.name] = None
    return found
