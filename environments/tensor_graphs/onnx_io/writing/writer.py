"""Write a graph as an ONNX model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence

import numpy as np
import onnx

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, OPAQUE, Ref, TensorType
from environments.tensor_graphs.onnx_io import opaque, scopes
from environments.tensor_graphs.onnx_io.bodies import Body, control_of, has_bodies
from environments.tensor_graphs.onnx_io.header import ModelHeader, make_header, value_info
from environments.tensor_graphs.onnx_io.tensors import dtype_of, size_bytes, to_array, to_tensor
from environments.tensor_graphs.onnx_io.writing.folding import ConstantFolder
from environments.tensor_graphs.onnx_io.writing.lowering import OnnxNode, lower
from environments.tensor_graphs.onnx_io.writing.placing import MAIN, Placer
from environments.tensor_graphs.operators import contrib


class _Names:
    """The names of one model's values: those from the file, or else free ones.

    Attributes:
      copies: pairs (name of an output, name of its value) for outputs whose value has another name
        already.
    """

    def __init__(self, graph: Graph, header: ModelHeader, nodes: Sequence[int]) -> None:
        """Reserve the names that are fixed: those of inputs and outputs, and those in subgraphs."""
        self._graph, self._header = graph, header
        self._names: dict[Ref, str] = {}
        self.copies: list[tuple[str, str]] = []
        for number in graph.inputs:
            self._names[Ref(number)] = graph.nodes[number].attribute("name")
        self._taken = {*self._names.values(), *graph.output_names}
        for number in nodes:
            node = graph.nodes[number]
            if node.op == OPAQUE and not has_bodies(node):
                self._taken |= opaque.names_within(node)
        self._node_names = {header.nodes[n].name for n in nodes if n in header.nodes}
        for name, ref in zip(graph.output_names, graph.outputs, strict=True):
            if self._names.setdefault(ref, name) != name:
                self.copies.append((name, self._names[ref]))

    def of(self, ref: Ref) -> str:
        """Return the name of a value."""
        if ref not in self._names:
            name = self._header.value_names.get(ref)
            if name is None or name in self._taken:
                name = self.free(f"{self._graph.nodes[ref.node].op}_{ref.node}")
            self._taken.add(name)
            self._names[ref] = name
        return self._names[ref]

    def share(self, ref: Ref, source: Ref) -> None:
        """Give a value the name of another one, which it stands for."""
        self._names[ref] = self.of(source)

    def free(self, wanted: str) -> str:
        """Reserve a name that no value has: the wanted one, or the wanted one with a number."""
        name, count = wanted, 1
        while name in self._taken:
            count += 1
            name = f"{wanted}_{count}"
        self._taken.add(name)
        return name

    def describe(self, node: onnx.NodeProto, number: int | None) -> None:
        """Give a node its name and documentation: those of a node of the graph, if there is one."""
        about = None if number is None else self._header.nodes.get(number)
        if about is not None:
            node.MergeFrom(about)
            return
        name = node.output[0]
        while name in self._node_names:
            name += "_"
        self._node_names.add(name)
        node.name = name

    def described(self, nodes: Collection[int]) -> Iterator[tuple[Ref, str]]:
        """Yield the inner values of these nodes whose types the file gave, with their names."""
        among = set(nodes)
        ends = {*self._graph.output_names, *(self._names[Ref(n)] for n in self._graph.inputs)}
        for ref, name in self._names.items():
            is_described = name in self._header.described and name not in ends
            is_described &= ref.node in among
            if is_described and self._header.value_names.get(ref) == name:
                yield ref, name


_INITIALISERS_ALONE = 4
"""The format since which an initialiser need not be an input too."""

MakeTensor = Callable[[str, np.ndarray, str], onnx.TensorProto]
"""Makes the tensor that holds (name, array, dtype)."""


def write(graph: Graph) -> onnx.ModelProto:
    """Write a graph as a model in the opset of its header, with its constants folded.

    A model of more than 2 GB cannot be serialised; `save` puts its weights into another file.

    Raises:
      UserError: the opset lacks one of the operators.
    """
    return Writer(graph).model(to_tensor)


@dataclasses.dataclass
class _Written:
    """A graph that is written: the model's own, or a body.

    Attributes:
      nodes: its nodes; those with bodies have graphs without nodes.
      initializers: array and dtype of each initialiser by name.
      lists: names of the initialisers with constant lists, by the list.
      inner: the bodies of nodes, by the index of the node.
    """

    nodes: list[onnx.NodeProto] = dataclasses.field(default_factory=list)
    initializers: dict[str, tuple[np.ndarray, str]] = dataclasses.field(default_factory=dict)
    lists: dict[tuple[str, bytes], str] = dataclasses.field(default_factory=dict)
    inner: dict[int, list[_Written]] = dataclasses.field(default_factory=dict)

    def fill(self, graph: onnx.GraphProto, make_tensor: MakeTensor) -> None:
        """Add the nodes and initialisers to a graph, in place."""
        graph.node.extend(self.nodes)
        for number, bodies in self.inner.items():
            for body, inside in zip(bodies, scopes.subgraphs(graph.node[number]), strict=True):
                body.fill(inside, make_tensor)
        for name, (array, dtype) in self.initializers.items():
            graph.initializer.append(make_tensor(name, array, dtype))


class Writer:
    """The nodes and initialisers of a graph that is written.

    Attributes:
      size_bytes: size of all initialisers, those that are an input's default too.

    Raises:
      UserError: the graph's opset lacks one of the operators.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._header: ModelHeader = graph.header or make_header()
        self._folder = ConstantFolder(graph)
        self._places = Placer(graph, self._folder).places()
        numbers = [number for numbers in self._places.values() for number in numbers]
        self._names = _Names(graph, self._header, numbers)
        self.size_bytes = sum(
            size_bytes(dtype_of(default), tuple(default.dims))
            for default in self._header.defaults.values()
        )
        self._main = self._written(MAIN)
        for name, source in self._names.copies:
            self._main.nodes.append(onnx.helper.make_node("Identity", [source], [name]))

    def model(self, make_tensor: MakeTensor) -> onnx.ModelProto:
        """Return the whole model; `make_tensor` makes its initialisers."""
        model = onnx.ModelProto()
        model.CopyFrom(self._header.shell)
        graph = model.graph
        self._main.fill(graph, make_tensor)
        self._import_domain(model)
        for default in self._header.defaults.values():
            graph.initializer.append(
                make_tensor(default.name, to_array(default, None), dtype_of(default))
            )
        self._describe_ends(graph)
        for ref, name in self._names.described(self._places[MAIN]):
            tensor_type = self._graph.type_of(ref)
            if tensor_type is not None and tensor_type.shape is not None:
                graph.value_info.append(value_info(name, tensor_type, self._header.dimensions))
        model.ir_version = model.ir_version or _oldest_format(model)
        if model.ir_version < _INITIALISERS_ALONE:
            for name, (array, dtype) in self._main.initializers.items():
                kind = TensorType(dtype, array.shape)
                graph.input.append(value_info(name, kind, self._header.dimensions))
        return model

    def _import_domain(self, model: onnx.ModelProto) -> None:
        ops = {node.op for node in self._graph.nodes.values()}
        is_declared = any(opset.domain == contrib.DOMAIN for opset in model.opset_import)
        if not is_declared and not ops.isdisjoint(contrib.FORMS):
            model.opset_import.add(domain=contrib.DOMAIN, version=contrib.VERSION)

    def _written(self, name: str) -> _Written:
        written = _Written()
        for number in self._places[name]:
            self._write_node(written, number)
        return written

    def _write_node(self, written: _Written, number: int) -> None:
        node = self._graph.nodes[number]
        if node.op == INPUT:
            return
        outputs = [self._names.of(Ref(number, k)) for k in range(len(node.types))]
        values = self._folder.values(number)
        if values is not None:
            for name, (array, dtype) in zip(outputs, values, strict=True):
                self._add_initializer(written, name, array, dtype)
            return
        if has_bodies(node):
            self._write_control(written, number, outputs)
            return
        inputs = [self._names.of(ref) if ref else "" for ref in node.inputs]
        if node.op == OPAQUE:
            self._emit(written, opaque.to_onnx_node(node, inputs, outputs), number)
            return
        types = [self._graph.type_of(ref) if ref else None for ref in node.inputs]
        *before, last = lower(node, types, self._header.opset)
        for lowered in before:
            name = self._names.free(f"{lowered.op}_{number}")
            self._emit(written, self._node(written, lowered, inputs, [name]), None)
            inputs = [name]
        self._emit(written, self._node(written, last, inputs, outputs), number)

    def _write_control(self, written: _Written, number: int, outputs: Sequence[str]) -> None:
        node = self._graph.nodes[number]
        control = control_of(node)
        inputs = [self._names.of(ref) if ref else "" for ref in control.inputs]
        control_node = opaque.named_node(node, inputs, outputs)
        graphs = scopes.subgraphs(control_node)
        written.inner[len(written.nodes)] = [
            self._write_body(body, graph)
            for body, graph in zip(control.bodies, graphs, strict=True)
        ]
        self._emit(written, control_node, number)

    def _write_body(self, body: Body, graph: onnx.GraphProto) -> _Written:
        """Return what is inside a body; name the inputs and outputs of its graph in place."""
        inputs = {
            self._graph.nodes[number].attribute("place"): Ref(number)
            for number in self._places[body.name]
            if self._graph.nodes[number].op == INPUT
        }
        for place, info in enumerate(graph.input):
            is_used = place in inputs
            info.name = self._names.of(inputs[place]) if is_used else self._names.free(info.name)
        for place, ref in inputs.items():
            outer = body.captured_at(place)
            if outer is not None:
                self._names.share(ref, outer)
        written = self._written(body.name)
        computed = {name for node in written.nodes for name in node.output}
        for info, ref in zip(graph.output, body.outputs, strict=True):
            name = self._names.of(ref)
            if name in computed:
                # Each value is returned once, and only what a node of the body computes.
                computed.discard(name)
                info.name = name
            else:
                info.name = self._names.free(info.name)
                self._emit(written, onnx.helper.make_node("Identity", [name], [info.name]), None)
        return written

    def _node(
        self, written: _Written, lowered: OnnxNode, inputs: list[str], outputs: list[str]
    ) -> onnx.NodeProto:
        lists = [self._list(written, array) for array in lowered.lists]
        node = onnx.helper.make_node(lowered.op, inputs + lists, outputs)
        if lowered.form is not None:
            inputs = lowered.form.placed(inputs, lowered.form.inputs)
            outputs = lowered.form.placed(outputs, lowered.form.outputs)
            node = onnx.helper.make_node(lowered.op, inputs, outputs, domain=contrib.DOMAIN)
        for name, value in lowered.attributes.items():
            node.attribute.append(onnx.helper.make_attribute(name, value))
        return node

    def _emit(self, written: _Written, node: onnx.NodeProto, number: int | None) -> None:
        while node.input and not node.input[-1]:
            node.input.pop()
        self._names.describe(node, number)
        written.nodes.append(node)

    def _list(self, written: _Written, array: np.ndarray | None) -> str:
        """Return the name of the initialiser with this constant list; "" for None."""
        if array is None:
            return ""
        key = f"{array.dtype}{array.shape}", array.tobytes()
        if key not in written.lists:
            written.lists[key] = self._names.free(f"list_{len(written.lists)}")
            self._add_initializer(written, written.lists[key], array, array.dtype.name)
        return written.lists[key]

    def _add_initializer(self, written: _Written, name: str, array: np.ndarray, dtype: str) -> None:
        written.initializers[name] = (array, dtype)
        self.size_bytes += size_bytes(dtype, array.shape)

    def _describe_ends(self, graph: onnx.GraphProto) -> None:
        """Describe the types of inputs and outputs, with the file's own entries if it has any."""
        shell = self._header.shell.graph
        inputs = [(self._names.of(Ref(number)), Ref(number)) for number in self._graph.inputs]
        outputs = list(zip(self._graph.output_names, self._graph.outputs, strict=True))
        for infos, own, ends in (
            (graph.input, shell.input, inputs),
            (graph.output, shell.output, outputs),
        ):
            entries = {info.name: info for info in own}
            del infos[:]
            infos.extend(entries.get(name) or self._described(name, ref) for name, ref in ends)

    def _described(self, name: str, ref: Ref) -> onnx.ValueInfoProto:
        tensor_type = self._graph.type_of(ref)
        if tensor_type is None:
            return onnx.ValueInfoProto(name=name)
        return value_info(name, tensor_type, self._header.dimensions)


def _oldest_format(model: onnx.ModelProto) -> int:
    standard = [opset for opset in model.opset_import if opset.domain in ("", "ai.onnx")]
    return onnx.helper.find_min_ir_version_for(standard, ignore_unknown=True)
