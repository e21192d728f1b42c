"""A node of the file, with its inputs and attributes in the types of this package."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from environments.tensor_graphs.graph.nodes import Ref
from environments.tensor_graphs.onnx_io.older_forms import MOVED
from environments.tensor_graphs.onnx_io.reading.graph_builder import GraphBuilder, NotCanonicalError
from environments.tensor_graphs.onnx_io.tensors import dtype_of, is_numpy, to_array

Refs = tuple[Ref, ...]

_LARGEST = float(np.finfo(np.float32).max)
"""Older opsets write bounds as large as this where Clip has none."""


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

    def required(self, place: int = 0) -> Ref:
        """Return an input by its index.

        Raises:
          NotCanonicalError: the input is left out.
        """
        ref = self.input(place)
        if ref is None:
            raise NotCanonicalError
        return ref


def with_inputs(builder: GraphBuilder, node: SourceNode) -> SourceNode:
    """Return a node whose attributes are inputs as in newer opsets (`older_forms`).

    The constants are added to the graph. A node without such attributes is returned itself.
    """
    names = MOVED[node.op].names if node.op in MOVED else ()
    if not any(name in node.attributes for name in names):
        return node
    x = None if not node.inputs or node.inputs[0] is None else builder.edit.type_of(node.inputs[0])
    if x is None or not is_numpy(x.dtype):
        return node
    inputs = list(node.inputs[:1])
    for name in names:
        value = node.attributes.get(name)
        if isinstance(value, tuple):
            inputs.append(builder.edit.add_constant(np.array(value, np.int64)))
        elif value is None or abs(value) >= _LARGEST:
            inputs.append(None)
        else:
            inputs.append(builder.edit.add_constant(np.array(value, x.dtype)))
    attributes = {name: value for name, value in node.attributes.items() if name not in names}
    return dataclasses.replace(node, inputs=tuple(inputs), attributes=attributes)


def attribute_values(node: onnx.NodeProto) -> dict[str, Any]:
    """Return a node's attributes, as `SourceNode.attributes` holds them."""
    return {attribute.name: _value(attribute) for attribute in node.attribute}


def _value(attribute: onnx.AttributeProto) -> Any:
    kinds = onnx.AttributeProto
    if attribute.type == kinds.TENSOR and is_numpy(dtype_of(attribute.t)):
        return to_array(attribute.t, None)
    if attribute.type == kinds.STRING:
        return attribute.s.decode("utf-8", "replace")
    if attribute.type in (kinds.INT, kinds.FLOAT):
        return onnx.helper.get_attribute_value(attribute)
    if attribute.type in (kinds.INTS, kinds.FLOATS):
        return tuple(onnx.helper.get_attribute_value(attribute))
    return None
