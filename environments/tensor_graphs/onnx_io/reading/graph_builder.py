"""The graph that is being read, what of its values is known by then, and the nodes of the file."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import CONSTANT, Ref, TensorType
from environments.tensor_graphs.onnx_io.header import DimensionNames, opset_of
from environments.tensor_graphs.onnx_io.older_forms import MOVED
from environments.tensor_graphs.onnx_io.reading.shape_values import (
    MAX_ELEMENTS,
    Sizes,
    are_known,
    as_sizes,
)
from environments.tensor_graphs.onnx_io.tensors import DataPlace, dtype_of, is_numpy, to_array
from environments.tensor_graphs.operators import building
from environments.tensor_graphs.operators.operator import num_elements
from environments.tensor_graphs.operators.table import OPERATORS, evaluate

Refs = tuple[Ref, ...]

_LARGEST = float(np.finfo(np.float32).max)
"""Older opsets write bounds as large as this where Clip has none."""

OLDEST_OPSET = 7
"""The oldest version of ONNX's operators that has canonical forms."""


class NotCanonicalError(Exception):
    """A node of the file has no canonical form, so it is read as Opaque."""


@dataclasses.dataclass(frozen=True)
class SourceNode:
    """A node in the file's form.

    `all_inputs` and `required` raise NotCanonicalError if an input is left out.

    Attributes:
      domain: that of the operator; "" or "ai.onnx" is ONNX's own.
      inputs: the values that the node uses; None for each that is left out, except at the end,
        where they are dropped.
      attributes: values by name; texts are str, tensors are arrays, and lists are tuples. Values of
        other kinds, such as graphs, are None.
      num_outputs: number of outputs up to the last one that is used.
      output_names: the file's names of all outputs; "" for those that are left out.
    """

    domain: str
    op: str
    inputs: tuple[Ref | None, ...]
    attributes: Mapping[str, Any]
    num_outputs: int
    output_names: tuple[str, ...]

    def input(self, place: int) -> Ref | None:
        """Return an input by its index; None if it is left out."""
        return self.inputs[place] if place < len(self.inputs) else None

    def all_inputs(self) -> Refs:
        """Return all inputs."""
        if None in self.inputs:
            raise NotCanonicalError
        return tuple(ref for ref in self.inputs if ref is not None)

    def required(self, place: int = 0) -> Ref:
        """Return an input by its index."""
        ref = self.input(place)
        if ref is None:
            raise NotCanonicalError
        return ref


class GraphBuilder:
    """Adds nodes in their canonical form, and keeps what all readers of a model's nodes share.

    Methods raise NotCanonicalError if what they should return is known only when the model runs.

    Attributes:
      place: where the model's external data are; None if there is no file.
      is_strict: whether onnx takes the model for valid.
      opset: version of ONNX's operators that the file uses.
      functions: domain and name of the operators that the model defines itself.
      names: gives the sizes of tensors their names.
      value_names: the file's name of each value, the first if there are several.
      nodes: names, documentation and metadata of nodes, by the graph's numbers.
      numbers: numbers that no other node has.
    """

    def __init__(self, model: onnx.ModelProto, place: DataPlace | None, is_strict: bool) -> None:
        self.model, self.place, self.is_strict = model, place, is_strict
        self.edit = Graph().edit()
        self.opset = opset_of(model)
        self.functions = {(function.domain, function.name) for function in model.functions}
        self.names = DimensionNames()
        self.value_names: dict[Ref, str] = {}
        self.nodes: dict[int, onnx.NodeProto] = {}
        self.numbers = itertools.count()
        self._sizes: dict[Ref, Sizes] = {}
        self._values: dict[Ref, np.ndarray | None] = {}

    def knows(self, op: str) -> bool:
        """Return whether ONNX's opset has an operator, and the canonical forms say what it means.

        onnxruntime has operators of its own in ONNX's domain, some by names that ONNX gave to
        operators of later opsets.
        """
        is_understood = OLDEST_OPSET <= self.opset <= onnx.defs.onnx_opset_version()
        return is_understood and onnx.defs.has(op, self.opset)

    def add(self, op: str, *inputs: Ref, **attributes: Any) -> tuple[Ref, ...]:
        """Add a node in its canonical form, and return its outputs.

        Raises:
          OperatorError: the operator does not take these inputs or attributes.
          NotCanonicalError: an input has no elements; operators have special meanings for those.
        """
        for ref in inputs:
            if 0 in self.shape_of(ref):
                raise NotCanonicalError
        return building.add(self.edit, op, *inputs, **attributes)

    def type_of(self, ref: Ref) -> TensorType:
        """Return the type of a tensor of known rank."""
        tensor_type = self.edit.type_of(ref)
        if tensor_type is None or tensor_type.shape is None:
            raise NotCanonicalError
        return tensor_type

    def shape_of(self, ref: Ref) -> tuple[Any, ...]:
        """Return the shape of a tensor of known rank."""
        return self.type_of(ref).shape or ()

    def set_sizes(self, ref: Ref, sizes: Sizes) -> None:
        """Remember the value of a tensor of sizes."""
        self._sizes[ref] = sizes

    def sizes_of(self, ref: Ref | None) -> Sizes | None:
        """Return the value of a tensor of integers or truth values, as numbers and names of sizes.

        None if it is not known, or has another type.
        """
        if ref is None:
            return None
        if ref not in self._sizes:
            value = self.value_of(ref)
            if value is None or value.dtype.kind not in "ib":
                return None
            self._sizes[ref] = as_sizes(value)
        return self._sizes[ref]

    def value_of(self, ref: Ref) -> np.ndarray | None:
        """Return the value of a short constant, computed if necessary; None for other values."""
        if ref not in self._values:
            self._values[ref] = self._compute(ref)
        return self._values[ref]

    def integers(self, ref: Ref) -> tuple[int, ...]:
        """Return the value of a list of integers."""
        sizes = self.sizes_of(ref)
        if sizes is None or not are_known(sizes):
            raise NotCanonicalError
        return tuple(int(size) for size in sizes.reshape(-1))

    def number(self, ref: Ref) -> float:
        """Return the value of a tensor with one element, to be used as an attribute.

        Raises:
          NotCanonicalError: the value is not known, or not exact in float32, the type of
            attributes.
        """
        value = self.value_of(ref)
        if value is None or value.size != 1 or value.dtype.kind not in "iuf":
            raise NotCanonicalError
        number = value.item()
        # An integer may change when it is converted to a float and back.
        if float(np.float32(value.reshape(()))) != float(number) or (
            isinstance(number, int) and int(float(number)) != number
        ):
            raise NotCanonicalError
        return float(number)

    def _compute(self, ref: Ref) -> np.ndarray | None:
        node, tensor_type = self.edit.nodes[ref.node], self.edit.type_of(ref)
        if not self.edit.is_constant(ref.node) or tensor_type is None or not tensor_type.is_static:
            return None
        if not is_numpy(tensor_type.dtype) or num_elements(tensor_type) > MAX_ELEMENTS:
            return None
        if node.op == CONSTANT:
            return node.value
        if node.op not in OPERATORS:
            return None
        inputs = [None if used is None else self.value_of(used) for used in node.inputs]
        arrays = [array for array in inputs if array is not None]
        if len(arrays) < len(inputs):
            return None
        return evaluate(node.op, arrays, node.attributes)[ref.output]


def with_inputs(builder: GraphBuilder, node: SourceNode) -> SourceNode:
    """Return a node whose attributes are inputs as in newer opsets (`older_forms`).

    The constants are added to the graph. A node without such attributes is returned itself.
    """
    names = MOVED[node.op][1] if node.op in MOVED else ()
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
