"""Read an ONNX model into a graph: node by node, each in its canonical form or as Opaque."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, OPAQUE, Ref
from environments.tensor_graphs.onnx_io import scopes
from environments.tensor_graphs.onnx_io.header import DimensionNames, ModelHeader, opset_of
from environments.tensor_graphs.onnx_io.opaque import opaque_attributes
from environments.tensor_graphs.onnx_io.reading import loading
from environments.tensor_graphs.onnx_io.reading.canonical import add_canonical
from environments.tensor_graphs.onnx_io.reading.conversion import OLDEST_OPSET, to_oldest_opset
from environments.tensor_graphs.onnx_io.reading.graph_builder import GraphBuilder, NotCanonicalError
from environments.tensor_graphs.onnx_io.reading.inference import infer_types
from environments.tensor_graphs.onnx_io.reading.shape_values import Sizes, are_known, compute
from environments.tensor_graphs.onnx_io.reading.source_node import SourceNode, attribute_values
from environments.tensor_graphs.onnx_io.reading.wiring import Wiring

_INTEGERS = ("int32", "int64", "bool")


def read(source: loading.Source) -> Graph:
    """Read a model into a graph.

    Operators of `operators.table.OPERATORS` get their canonical form; all others become Opaque
    nodes, which are written as they were. Dropout and Identity are left out. Shapes that the model
    computes are replaced by their values as far as these are known.

    Args:
      source: a path, the content of a file, or a model. External data are found only with a path.

    Returns:
      The graph; its `header` keeps everything else in the file.

    Raises:
      UserError: the source is not an ONNX model, is damaged or not valid, or uses an opset that is
        not understood.
    """
    model, directory = loading.load(source)
    if opset_of(model) < OLDEST_OPSET:
        infer_types(model, Wiring(model, directory), DimensionNames())
        model = to_oldest_opset(model, directory)
    return _Reader(model, directory).graph()


class _Reader:
    """Reads one model; `graph` may be called once."""

    def __init__(self, model: onnx.ModelProto, directory: pathlib.Path | None) -> None:
        self._model = model
        self._wiring = Wiring(model, directory)
        self._names = DimensionNames()
        self._types = infer_types(model, self._wiring, self._names)
        self._functions = {(one.domain, one.name) for one in model.functions}
        self._edit = Graph().edit()
        self._builder = GraphBuilder(self._edit, opset_of(model))
        # The values that have been read, by the file's names, and the first name of each.
        self._values: dict[str, Ref] = {}
        self._value_names: dict[Ref, str] = {}
        # Names, documentation and metadata of nodes, by the graph's numbers.
        self._nodes: dict[int, onnx.NodeProto] = {}

    def graph(self) -> Graph:
        """Read all nodes; return the graph, whose header keeps everything else in the file."""
        for given in self._wiring.inputs:
            tensor_type = self._names.type_of(given.type)
            ref = self._edit.add(INPUT, [], (("name", given.name),), [tensor_type])
            self._name(ref, given.name)
        for name in self._wiring.constants:
            if self._wiring.num_uses[name]:
                self._name(self._edit.add_constant(*self._wiring.constants[name]), name)
        for number, node in enumerate(self._wiring.nodes):
            self._read_node(node, number)
        outputs = [one.name for one in self._model.graph.output]
        self._edit.set_outputs([self._values[name] for name in outputs], outputs)
        graph, _ = self._edit.finish()
        graph.header = self._header()
        return graph

    def _read_node(self, node: onnx.NodeProto, number: int) -> None:
        if node.domain not in ("", "ai.onnx") or (node.domain, node.op_type) in self._functions:
            self._read_opaque(node, number)
            return
        used = [k for k, name in enumerate(node.output, 1) if name and self._wiring.num_uses[name]]
        source = SourceNode(
            node.op_type,
            tuple(self._values[name] if name else None for name in _trimmed(node.input)),
            attribute_values(node),
            max(used, default=0),
            tuple(node.output),
        )
        sizes = self._sizes(source)
        output = self._types.get(node.output[0])
        if sizes is not None and output is not None and are_known(sizes):
            value = np.array(sizes.tolist(), output.dtype)
            self._name(self._edit.add_constant(value), node.output[0])
            return
        if not self._read_canonical(node, source):
            self._read_opaque(node, number)
        if sizes is not None:
            self._builder.set_sizes(self._values[node.output[0]], sizes)

    def _read_canonical(self, node: onnx.NodeProto, source: SourceNode) -> bool:
        """Add a node in its canonical form; return whether it has one."""
        try:
            outputs = add_canonical(self._builder, source)
        except NotCanonicalError:
            return False
        pairs = [(ref, name) for ref, name in zip(outputs, node.output, strict=False) if name]
        if not all(self._agree(ref, name) for ref, name in pairs):
            return False
        for ref, name in pairs:
            self._name(ref, name)
        self._nodes.setdefault(outputs[0].node, _about(node))
        return True

    def _sizes(self, node: SourceNode) -> Sizes | None:
        """Compute the value of a node that computes with sizes; None if that is not possible."""
        types = [None if ref is None else self._edit.type_of(ref) for ref in node.inputs]
        output = self._types.get(node.output_names[0])
        if output is None or output.dtype not in _INTEGERS:
            return None
        if node.op not in ("Shape", "Size") and not all(
            one is not None and one.dtype in _INTEGERS for one in types
        ):
            return None
        inputs = [self._builder.sizes_of(ref) for ref in node.inputs]
        found = compute(node.op, inputs, types, node.attributes)
        largest = np.iinfo(np.int32 if output.dtype == "int32" else np.int64).max
        numbers = [] if found is None else [one for one in found.flat if isinstance(one, int)]
        return found if all(abs(one) <= largest for one in numbers) else None

    def _agree(self, ref: Ref, name: str) -> bool:
        """Return whether onnx inferred the same type for a value, as far as both types are known.

        The answer is no for values without elements, for which operators have special meanings.
        """
        ours, inferred = self._edit.type_of(ref), self._types.get(name)
        if ours is None or inferred is None:
            return True
        if ours.shape is None or 0 in ours.shape or ours.dtype != inferred.dtype:
            return False
        if inferred.shape is None:
            return True
        return len(ours.shape) == len(inferred.shape) and all(
            one == other or isinstance(one, str) or isinstance(other, str)
            for one, other in zip(ours.shape, inferred.shape, strict=True)
        )

    def _read_opaque(self, node: onnx.NodeProto, number: int) -> None:
        captured = scopes.captured(node)
        names = (*_trimmed(node.input), *captured)
        inputs = [self._values[name] if name else None for name in names]
        attributes = opaque_attributes(node, captured, self._functions, number)
        types = [self._types.get(name) for name in node.output]
        first = self._edit.add(OPAQUE, inputs, attributes, types)
        for output, name in enumerate(node.output):
            if name:
                self._name(Ref(first.node, output), name)
        self._nodes.setdefault(first.node, _about(node))

    def _name(self, ref: Ref, name: str) -> None:
        self._values[name] = ref
        self._value_names.setdefault(ref, name)

    def _header(self) -> ModelHeader:
        shell = onnx.ModelProto()
        graph = self._model.graph
        for field, value in self._model.ListFields():
            if field.name != "graph":
                _copy(shell, field.name, value)
        for field, value in graph.ListFields():
            if field.name not in (
                "node",
                "initializer",
                "sparse_initializer",
                "value_info",
                "input",
            ):
                _copy(shell.graph, field.name, value)
        shell.graph.input.extend(self._wiring.inputs)
        return ModelHeader(
            shell,
            self._value_names,
            self._nodes,
            frozenset(one.name for one in graph.value_info),
            self._wiring.defaults,
            self._names.original,
        )


def _trimmed(names: Sequence[str]) -> Sequence[str]:
    """Drop empty names, which stand for inputs that are left out, from the end."""
    count = len(names)
    while count and not names[count - 1]:
        count -= 1
    return names[:count]


def _copy(target: Any, field: str, value: Any) -> None:
    if isinstance(value, str | int):
        setattr(target, field, value)
    else:
        getattr(target, field).MergeFrom(value)


def _about(node: onnx.NodeProto) -> onnx.NodeProto:
    """Copy a node's name, documentation and metadata."""
    about = onnx.NodeProto()
    for field, value in node.ListFields():
        if field.name in ("name", "doc_string", "metadata_props"):
            _copy(about, field.name, value)
    return about
