"""From a graph to an ONNX model."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.nodes import INPUT, OPAQUE, Ref
from environments.tensor_graphs.onnx_io import opaque
from environments.tensor_graphs.onnx_io.folding import Folder
from environments.tensor_graphs.onnx_io.header import ModelHeader, make_header, value_info
from environments.tensor_graphs.onnx_io.naming import Names
from environments.tensor_graphs.onnx_io.spelling import Step, spelled
from environments.tensor_graphs.onnx_io.tensors import size_bytes, to_tensor

Store = Callable[[str, np.ndarray, str], onnx.TensorProto]


def write(graph: Graph) -> onnx.ModelProto:
    """The model of a graph, in the opset of its header; what is constant has been computed.

    A model of more than 2 GB cannot be serialised: `save` puts its weights into another file.

    Raises:
      UserError: a node has no form in that opset.
    """
    return Writer(graph).model(to_tensor)


class Writer:
    """Writes one graph.

    Attributes:
      size_bytes: of all weights.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._header: ModelHeader = graph.header or make_header()
        self._folder = Folder(graph)
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

    def model(self, store: Store) -> onnx.ModelProto:
        """The whole model; `store` makes the tensor of name, array and dtype."""
        model = onnx.ModelProto()
        model.CopyFrom(self._header.shell)
        graph = model.graph
        graph.node.extend(self._emitted)
        for name, (array, dtype) in self._initializers.items():
            graph.initializer.append(store(name, array, dtype))
        graph.initializer.extend(self._header.defaults.values())
        self._describe_ends(graph)
        for ref, name in self._names.described():
            tensor_type = self._graph.type_of(ref)
            if tensor_type is not None and tensor_type.shape is not None:
                graph.value_info.append(value_info(name, tensor_type, self._header.dimensions))
        # Formats before 4 wanted initialisers among the inputs.
        model.ir_version = max(model.ir_version, _oldest_format(model))
        return model

    def _needed(self) -> list[int]:
        """The nodes to be written, in order; of what is constant only what is used as such."""
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
            self._emit(opaque.restored(node, inputs, outputs), number)
            return
        types = [self._graph.type_of(ref) if ref else None for ref in node.inputs]
        *before, last = spelled(node, types, self._header.opset)
        for step in before:
            name = self._names.free(f"{step.op}_{number}")
            self._emit(self._node(step, inputs, [name]), None)
            inputs = [name]
        self._emit(self._node(last, inputs, outputs), number)

    def _node(self, step: Step, inputs: list[str], outputs: list[str]) -> onnx.NodeProto:
        lists = [self._list(array) for array in step.lists]
        node = onnx.helper.make_node(step.op, inputs + lists, outputs)
        for name, value in step.attributes.items():
            node.attribute.append(onnx.helper.make_attribute(name, value))
        return node

    def _emit(self, node: onnx.NodeProto, number: int | None) -> None:
        while node.input and not node.input[-1]:
            node.input.pop()
        self._names.describe(node, number)
        self._emitted.append(node)

    def _list(self, array: np.ndarray | None) -> str:
        """The name of the initialiser that holds what the graph has as an attribute."""
        if array is None:
            return ""
        key = f"{array.dtype}{array.shape}", array.tobytes()
        if key not in self._lists:
            self._lists[key] = self._names.free(f"list_{len(self._lists)}")
            self._initializers[self._lists[key]] = (array, array.dtype.name)
        return self._lists[key]

    def _describe_ends(self, graph: onnx.GraphProto) -> None:
        """Says the types of inputs and outputs, as the file did where they come from it."""
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
