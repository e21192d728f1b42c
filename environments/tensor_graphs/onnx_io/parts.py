"""Make a model from a few nodes of a graph, to measure these nodes alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import onnx

from environments.tensor_graphs.graph.graph import Edit, Graph
from environments.tensor_graphs.graph.nodes import INPUT, OPAQUE, Ref, TensorType
from environments.tensor_graphs.onnx_io.header import ModelHeader, make_header
from environments.tensor_graphs.onnx_io.tensors import storage
from environments.tensor_graphs.onnx_io.writing.folding import ConstantFolder
from environments.tensor_graphs.onnx_io.writing.writer import write

_BLOCK = 4093
"""Large weights repeat this many random numbers; a prime, so that no row equals another."""


def part_model(
    graph: Graph, numbers: Sequence[int], copies: int = 1
) -> tuple[onnx.ModelProto, dict[str, TensorType]]:
    """Make a model that computes some nodes of a graph; return it, and its inputs' types by name.

    The model's inputs x0, x1, … are the values of other nodes that these nodes use, with the
    graph's sizes; constants are initialisers. Its outputs y0, y1, … are the values that other nodes
    use, and those that no node uses. The elements of weights are replaced by random numbers in
    (0.01, 1), which are also valid as variances. Single numbers, indices and everything else that
    is not floating-point are kept.

    Args:
      graph: where the nodes are.
      numbers: those of the nodes, each after its inputs; none is an Input or constant.
      copies: how often the model contains the nodes; each copy has its own inputs and weights.

    Raises:
      ValueError: an input is not a tensor of known rank.
      UserError: the graph's opset lacks one of the operators.
    """
    edit, folder = Graph().edit(), ConstantFolder(graph)
    outputs: list[Ref] = []
    place = 0
    for _ in range(copies):
        inputs: dict[Ref, Ref] = {}
        for number in numbers:
            node = graph.nodes[number]
            for ref in node.inputs:
                if ref is not None and ref not in inputs:
                    inputs[ref] = _input(graph, folder, ref, edit, place)
                    place += 1
            used = [None if ref is None else inputs[ref] for ref in node.inputs]
            added = edit.add(node.op, used, node.attributes, node.types).node
            inputs.update((Ref(number, k), Ref(added, k)) for k in range(len(node.types)))
        outputs += [inputs[ref] for ref in _results(graph, numbers)]
    edit.set_outputs(outputs, [f"y{k}" for k in range(len(outputs))])
    small, _ = edit.finish()
    small.header = _header(graph)
    nodes = (small.nodes[number] for number in small.inputs)
    types = {node.attribute("name"): kind for node in nodes for kind in node.types if kind}
    return write(small), types


def _results(graph: Graph, numbers: Sequence[int]) -> list[Ref]:
    """Return the values of these nodes that other nodes use, and those that no node uses."""
    within = {ref for number in numbers for ref in graph.nodes[number].inputs if ref is not None}
    results = []
    for number in numbers:
        node = graph.nodes[number]
        names = node.attribute("outputs") if node.op == OPAQUE else (True,) * len(node.types)
        leaves = any(user not in numbers for user in graph.users(number))
        for k, name in enumerate(names):
            if name and (leaves or Ref(number, k) not in within):
                results.append(Ref(number, k))
    return results


def _input(graph: Graph, folder: ConstantFolder, ref: Ref, edit: Edit, place: int) -> Ref:
    tensor_type = graph.type_of(ref)
    if tensor_type is None or tensor_type.shape is None:
        raise ValueError(f"input {place} is no tensor of known rank")
    dtype, shape = tensor_type
    if not graph.is_constant(ref.node) or not tensor_type.is_static:
        return edit.add(INPUT, [], (("name", f"x{place}"),), [tensor_type])
    if storage(dtype).kind == "f" and math.prod(shape) != 1:  # type: ignore[arg-type]
        numbers = np.random.default_rng(place).uniform(0.01, 1, _BLOCK)
        return edit.add_constant(np.resize(numbers.astype(dtype), shape))  # type: ignore[arg-type]
    values = folder.values(ref.node)
    if values is None:
        return edit.add_constant(np.zeros(shape, storage(dtype)), dtype)  # type: ignore[arg-type]
    array, dtype = values[ref.output]
    return edit.add_constant(array, dtype)


def _header(graph: Graph) -> ModelHeader:
    """Return the graph's header without the entries for its own inputs, outputs and nodes."""
    if graph.header is None:
        return make_header()
    shell = onnx.ModelProto(ir_version=graph.header.shell.ir_version)
    shell.opset_import.extend(graph.header.shell.opset_import)
    shell.functions.extend(graph.header.shell.functions)
    shell.graph.name = "part"
    return ModelHeader(shell)
