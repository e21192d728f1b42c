"""From an ONNX model to a graph."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx

from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.nodes import INPUT, OPAQUE, Ref, TensorType
from environments.tensor_graphs.onnx_io import loading, scopes
from environments.tensor_graphs.onnx_io.canonical import canonical
from environments.tensor_graphs.onnx_io.conversion import OLDEST_OPSET, converted
from environments.tensor_graphs.onnx_io.header import DimensionNames, ModelHeader, opset_of
from environments.tensor_graphs.onnx_io.inference import infer_types
from environments.tensor_graphs.onnx_io.opaque import opaque_attributes
from environments.tensor_graphs.onnx_io.site import NotCanonicalError, Site
from environments.tensor_graphs.onnx_io.sizes import Sizes, are_known, computed
from environments.tensor_graphs.onnx_io.told import Told, told_attributes
from environments.tensor_graphs.onnx_io.wiring import Wiring

_INTEGERS = ("int32", "int64", "bool")


def read(source: loading.Source) -> Graph:
    """Reads a model.

    Operators of `operators.OPERATORS` come into their canonical form; all others become Opaque and
    pass through. Dropout and Identity are left out, and shapes that the model computes from what is
    known of them are computed.

    Args:
      source: a file, its content, or a model. Only from a file are external data found.

    Raises:
      UserError: it is no ONNX model, damaged, of an opset that is not understood, or it makes no
        sense.
    """
    model, directory = loading.load(source)
    if opset_of(model) < OLDEST_OPSET:
        infer_types(model, Wiring(model, directory), DimensionNames())
        model = converted(model, directory)
    return _Reader(model, directory).graph()


class _Reader:
    """Reads one model.

    Attributes:
      edit: the graph that comes into being.
      values: what has been read, by the file's name.
      types: of all values, by the file's name, as far as they are known.
    """

    def __init__(self, model: onnx.ModelProto, directory: pathlib.Path | None) -> None:
        self._model = model
        self._wiring = Wiring(model, directory)
        self._names = DimensionNames()
        self._types = infer_types(model, self._wiring, self._names)
        self._functions = {(one.domain, one.name) for one in model.functions}
        self._edit = Graph().edit()
        self._site = Site(self._edit, opset_of(model))
        self._values: dict[str, Ref] = {}
        self._value_names: dict[Ref, str] = {}
        self._nodes: dict[int, onnx.NodeProto] = {}

    def graph(self) -> Graph:
        """The graph, with a header that says all else."""
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
        told = Told(
            node.op_type,
            tuple(self._values[name] if name else None for name in _trimmed(node.input)),
            told_attributes(node),
            max(used, default=0),
            tuple(node.output),
        )
        sizes = self._sizes(told)
        output = self._types.get(node.output[0])
        if sizes is not None and output is not None and are_known(sizes):
            value = np.array(sizes.tolist(), output.dtype)
            self._name(self._edit.add_constant(value), node.output[0])
            return
        if not self._read_canonical(node, told):
            self._read_opaque(node, number)
        if sizes is not None:
            self._site.note_sizes(self._values[node.output[0]], sizes)

    def _read_canonical(self, node: onnx.NodeProto, told: Told) -> bool:
        """Adds a node in its canonical form, if it has one."""
        try:
            outputs = canonical(self._site, told)
        except NotCanonicalError:
            return False
        pairs = [(ref, name) for ref, name in zip(outputs, node.output, strict=False) if name]
        if not all(self._agree(ref, name) for ref, name in pairs):
            return False
        for ref, name in pairs:
            self._name(ref, name)
        self._nodes.setdefault(outputs[0].node, _about(node))
        return True

    def _sizes(self, told: Told) -> Sizes | None:
        """The value of a node that computes with sizes, as far as it is known."""
        types = [None if ref is None else self._edit.type_of(ref) for ref in told.inputs]
        output = self._types.get(told.names[0])
        if output is None or output.dtype not in _INTEGERS:
            return None
        if told.op not in ("Shape", "Size") and not all(
            one is not None and one.dtype in _INTEGERS for one in types
        ):
            return None
        inputs = [self._site.sizes_of(ref) for ref in told.inputs]
        found = computed(told.op, inputs, types, told.attributes)
        largest = np.iinfo(np.int32 if output.dtype == "int32" else np.int64).max
        numbers = [] if found is None else [one for one in found.flat if isinstance(one, int)]
        return found if all(abs(one) <= largest for one in numbers) else None

    def _agree(self, ref: Ref, name: str) -> bool:
        """Whether onnx has the same type for a value, as far as both know it.

        Where sizes are 0 operators have odd meanings: such nodes stay as they are.
        """
        mine, told = self._edit.type_of(ref), self._types.get(name)
        if mine is None or told is None:
            return True
        if mine.shape is None or 0 in mine.shape or mine.dtype != told.dtype:
            return False
        if told.shape is None:
            return True
        return len(mine.shape) == len(told.shape) and all(
            one == other or isinstance(one, str) or isinstance(other, str)
            for one, other in zip(mine.shape, told.shape, strict=True)
        )

    def _read_opaque(self, node: onnx.NodeProto, number: int) -> None:
        captured = scopes.captured(node)
        names = (*_trimmed(node.input), *captured)
        inputs = [self._values[name] if name else None for name in names]
        attributes = opaque_attributes(node, captured, self._functions, number)
        types = [self._type_of(name) for name in node.output]
        first = self._edit.add(OPAQUE, inputs, attributes, types)
        for output, name in enumerate(node.output):
            if name:
                self._name(Ref(first.node, output), name)
        self._nodes.setdefault(first.node, _about(node))

    def _type_of(self, name: str) -> TensorType | None:
        return self._types.get(name)

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
    """Without those that are left out at the end."""
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
    """What a node says of itself besides what it computes."""
    about = onnx.NodeProto()
    for field, value in node.ListFields():
        if field.name in ("name", "doc_string", "metadata_props"):
            _copy(about, field.name, value)
    return about
