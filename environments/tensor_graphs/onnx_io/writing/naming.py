"""Choose the names of values and nodes in a model that is being written."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import onnx

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, OPAQUE, Ref
from environments.tensor_graphs.onnx_io import opaque
from environments.tensor_graphs.onnx_io.bodies import has_bodies
from environments.tensor_graphs.onnx_io.header import ModelHeader


class Names:
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
        copied: list[tuple[str, Ref]] = []
        for name, ref in zip(graph.output_names, graph.outputs, strict=True):
            if ref not in self._names and graph.nodes[ref.node].op != INPUT:
                self._names[ref] = name
            elif self._names[ref] != name:
                copied.append((name, ref))
        self.copies += [(name, self._names[ref]) for name, ref in copied]

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
        """Give a node its name, documentation and metadata, in place.

        `number` is that of the node in the graph; None if the graph has no such node.
        """
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
