"""Write a graph as an ONNX model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, OPAQUE, Ref
from environments.tensor_graphs.onnx_io import opaque
from environments.tensor_graphs.onnx_io.header import ModelHeader, make_header, value_info
from environments.tensor_graphs.onnx_io.tensors import size_bytes, to_tensor
from environments.tensor_graphs.onnx_io.writing.folding import ConstantFolder
from environments.tensor_graphs.onnx_io.writing.lowering import OnnxNode, lower
from environments.tensor_graphs.onnx_io.writing.naming import Names

MakeTensor = Callable[[str, np.ndarray, str], onnx.TensorProto]
"""Makes the tensor that holds (name, array, dtype)."""


def write(graph: Graph) -> onnx.ModelProto:
    """Write a graph as a model in the opset of its header, with its constants folded.

    A model of more than 2 GB cannot be serialised; `save` puts its weights into another file.

    Raises:
      UserError: the opset lacks one of the operators.
    """
    return Writer(graph).model(to_tensor)


class Writer:
    """The nodes and initialisers of a graph that is written.

    Attributes:
      size_bytes: size of all initialisers.

    Args:
      graph: the graph.

    Raises:
      UserError: the graph's opset lacks one of the operators.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._header: ModelHeader = graph.header or make_header()
        self._folder = ConstantFolder(graph)
        self._nodes = self._needed()
        self._names = Names(graph, self._header, self._nodes)
        self._emitted: list[onnx.NodeProto] = []
        self._initializers: dict[str, tuple[np.ndarray, str]] = {}
        self._lists: dict[tuple[str, bytes], str] = {}
        for number in self._nodes:
            self._write_node(number)
        for name, source in self._names.copies:
            self._emitted.append(onnx.helper.make_node("Identity", [source], [name]))
        self.size_bytes = sum(
            size_bytes(dtype, array.shape) for array, dtype in self._initializers.values()
        )

    def model(self, make_tensor: MakeTensor) -> onnx.ModelProto:
        """Return the whole model; `make_tensor` makes its initialisers."""
        model = onnx.ModelProto()
        model.CopyFrom(self._header.shell)
        graph = model.graph
        graph.node.extend(self._emitted)
        for name, (array, dtype) in self._initializers.items():
            graph.initializer.append(make_tensor(name, array, dtype))
        graph.initializer.extend(self._header.defaults.values())
        self._describe_ends(graph)
        for ref, name in self._names.described():
            tensor_type = self._graph.type_of(ref)
            if tensor_type is not None and tensor_type.shape is not None:
                graph.value_info.append(value_info(name, tensor_type, self._header.dimensions))
        # Formats before 4 require initialisers to be inputs too.
        model.ir_version = max(model.ir_version, _oldest_format(model))
        return model

    def _needed(self) -> list[int]:
        """Return the nodes to write, in order; folded nodes only if a written node uses them."""
        needed = {ref.node for ref in self._graph.outputs}
        found = []
        for number in reversed(self._graph.order()):
            node = self._graph.nodes[number]
            if number in needed or node.op == INPUT:
                found.append(number)
                if not self._folder.is_folded(number):
                    needed.update(node.used)
        return found[::-1]

    def _write_node(self, number: int) -> None:
        node = self._graph.nodes[number]
        if node.op == INPUT:
            return
        outputs = [self._names.of(Ref(number, k)) for k in range(len(node.types))]
        if self._folder.is_folded(number):
            for name, value in zip(outputs, self._folder.values(number), strict=True):
                self._initializers[name] = value
            return
        inputs = [self._names.of(ref) if ref else "" for ref in node.inputs]
        if node.op == OPAQUE:
            self._emit(opaque.to_onnx_node(node, inputs, outputs), number)
            return
        types = [self._graph.type_of(ref) if ref else None for ref in node.inputs]
        *before, last = lower(node, types, self._header.opset)
        for one in before:
            name = self._names.free(f"{one.op}_{number}")
            self._emit(self._node(one, inputs, [name]), None)
            inputs = [name]
        self._emit(self._node(last, inputs, outputs), number)

    def _node(self, lowered: OnnxNode, inputs: list[str], outputs: list[str]) -> onnx.NodeProto:
        lists = [self._list(array) for array in lowered.lists]
        node = onnx.helper.make_node(lowered.op, inputs + lists, outputs)
        for name, value in lowered.attributes.items():
            node.attribute.append(onnx.helper.make_attribute(name, value))
        return node

    def _emit(self, node: onnx.NodeProto, number: int | None) -> None:
        while node.input and not node.input[-1]:
            node.input.pop()
        self._names.describe(node, number)
        self._emitted.append(node)

    def _list(self, array: np.ndarray | None) -> str:
        """Return the name of the initialiser with this constant list; "" for None."""
        if array is None:
            return ""
        key = f"{array.dtype}{array.shape}", array.tobytes()
        if key not in self._lists:
            self._lists[key] = self._names.free(f"list_{len(self._lists)}")
            self._initializers[self._lists[key]] = (array, array.dtype.name)
        return self._lists[key]

    def _describe_ends(self, graph: onnx.GraphProto) -> None:
        """Describe the types of inputs and outputs, with the file's own entries if it has any."""
        for infos, ends in (
            (graph.input, [(self._names.of(Ref(n)), Ref(n)) for n in self._graph.inputs]),
            (graph.output, list(zip(self._graph.output_names, self._graph.outputs, strict=True))),
        ):
            known = {info.name: info for info in infos}
            described = [known.get(name) or self._described(name, ref) for name, ref in ends]
            copies = [onnx.ValueInfoProto.FromString(one.SerializeToString()) for one in described]
            del infos[:]
            infos.extend(copies)

    def _described(self, name: str, ref: Ref) -> onnx.ValueInfoProto:
        tensor_type = self._graph.type_of(ref)
        if tensor_type is None:
            return onnx.ValueInfoProto(name=name)
        return value_info(name, tensor_type, self._header.dimensions)


def _oldest_format(model: onnx.ModelProto) -> int:
    standard = [one for one in model.opset_import if one.domain in ("", "ai.onnx")]
    return onnx.helper.find_min_ir_version_for(standard, ignore_unknown=True)
