"""A node of the file, with its inputs and attributes in the types of this package."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import onnx

from environments.tensor_graphs.graph.nodes import Ref
from environments.tensor_graphs.onnx_io.reading.graph_builder import NotCanonicalError
from environments.tensor_graphs.onnx_io.tensors import dtype_of, is_numpy, to_array

Refs = tuple[Ref, ...]


@dataclasses.dataclass(frozen=True)
class SourceNode:
    """A node in the file's form.

    Attributes:
      op: name of the operator.
      inputs: the values that the node uses; None for each that is left out, except at the end,
        where they are dropped.
      attributes: values by name; texts are str, tensors are arrays, and lists are tuples. Values of
        other kinds, such as graphs, are None.
      num_outputs: number of outputs up to the last one that is used.
      output_names: the file's names of all outputs; "" for those that are left out.
    """

    op: str
    inputs: tuple[Ref | None, ...]
    attributes: Mapping[str, Any]
    num_outputs: int
    output_names: tuple[str, ...]

    def input(self, place: int) -> Ref | None:
        """Return an input by its index; None if it is left out."""
        return self.inputs[place] if place < len(self.inputs) else None

    def all_inputs(self) -> Refs:
        """Return all inputs.

        Raises:
          NotCanonicalError: one of them is left out.
        """
        if None in self.inputs:
            raise NotCanonicalError
        return tuple(ref for ref in self.inputs if ref is not None)

    def first(self) -> Ref:
        """Return the first input.

        Raises:
          NotCanonicalError: the input is left out.
        """
        found = self.input(0)
        if found is None:
            raise NotCanonicalError
        return found


def attribute_values(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes, as `SourceNode.attributes` holds them."""
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
