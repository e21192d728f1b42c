"""Find and rename the values, tensors and operators in a model and in the subgraphs of nodes.

A subgraph (a branch of an If, the body of a Loop) may use values of the graphs around it by name:
it captures them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import onnx


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """Yield the graphs among a node's attributes."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def tensors(node: onnx.NodeProto) -> Iterator[onnx.TensorProto]:
    """Yield all tensors in a node's attributes and subgraphs; of sparse ones, their parts."""
    for attribute in node.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        if attribute.HasField("sparse_tensor"):
            yield from _parts([attribute.sparse_tensor])
        yield from _parts(attribute.sparse_tensors)
    for graph in subgraphs(node):
        yield from graph_tensors(graph)


def graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yield all tensors of a graph: its initialisers, and those in its nodes."""
    yield from graph.initializer
    yield from _parts(graph.sparse_initializer)
    for node in graph.node:
        yield from tensors(node)


def model_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield all tensors of a model, those of its functions and of its training too."""
    yield from graph_tensors(model.graph)
    for function in model.functions:
        for node in function.node:
            yield from tensors(node)
    for training in model.training_info:
        yield from graph_tensors(training.initialization)
        yield from graph_tensors(training.algorithm)


def _parts(sparse: Iterable[onnx.SparseTensorProto]) -> Iterator[onnx.TensorProto]:
    for tensor in sparse:
        yield from (tensor.values, tensor.indices)


def captured(node: onnx.NodeProto) -> list[str]:
    """Return the names of outer values that a node's subgraphs use, in the order of use."""
    return list(dict.fromkeys(name for graph in subgraphs(node) for name in captured_by(graph)))


def captured_by(graph: onnx.GraphProto) -> list[str]:
    """Return the names of outer values that a subgraph uses, in the order of use."""
    defined = _defined(graph) | {""}
    used = [name for node in graph.node for name in (*node.input, *captured(node))]
    used += [output.name for output in graph.output]
    return [name for name in dict.fromkeys(used) if name not in defined]


def names_within(nodes: Iterable[onnx.NodeProto]) -> set[str]:
    """Return all names of values that occur in the subgraphs of nodes."""
    names: set[str] = set()
    for node in nodes:
        for graph in subgraphs(node):
            names |= _defined(graph)
            names.update(output.name for output in graph.output)
            for inner in graph.node:
                names.update(inner.input)
            names |= names_within(graph.node)
    return names


def operators(node: onnx.NodeProto) -> Iterator[tuple[str, str]]:
    """Yield domain and name of a node's operator and of all operators in its subgraphs."""
    yield node.domain, node.op_type
    for graph in subgraphs(node):
        for inner in graph.node:
            yield from operators(inner)


def rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename the outer values that a node's subgraphs use, in place."""
    if not names:
        return
    for graph in subgraphs(node):
        defined = _defined(graph)
        visible = {old: new for old, new in names.items() if old not in defined}
        for inner in graph.node:
            for number, name in enumerate(inner.input):
                inner.input[number] = visible.get(name, name)
            rename(inner, visible)
        for output in graph.output:
            output.name = visible.get(output.name, output.name)


def _defined(graph: onnx.GraphProto) -> set[str]:
    defined = {info.name for info in graph.input} | {info.name for info in graph.initializer}
    defined |= {tensor.values.name for tensor in graph.sparse_initializer}
    for node in graph.node:
        defined.update(node.output)
    return defined
