"""Find a model's constants and inputs, and an order in which its nodes can be computed."""

from __future__ import annotations

import contextlib
import graphlib
import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np
import onnx

from environments.errors import UserError
from environments.tensor_graphs.onnx_io import scopes
from environments.tensor_graphs.onnx_io.tensors import (
    DataPlace,
    dtype_of,
    storage,
    to_array,
    to_dense,
    to_tensor,
)


class Wiring:
    """The values and nodes of a model.

    Attributes:
      constants: array and dtype of each constant by name: initialisers and outputs of Constant
        nodes.
      defaults: values of the inputs that a caller may leave out, by name.
      nodes: all nodes but Constants, each after those that it depends on.
      num_uses: for each value, by how many nodes, subgraphs and outputs it is used.
    """

    def __init__(self, model: onnx.ModelProto, place: DataPlace | None) -> None:
        """Read the constants of a model and sort its nodes.

        Raises:
          UserError: a value is missing, has the name of another one, or depends on itself.
        """
        graph = model.graph
        self._place = place
        self._functions = {(function.domain, function.name) for function in model.functions}
        self.constants: dict[str, tuple[np.ndarray, str]] = {}
        self.defaults: dict[str, onnx.TensorProto] = {}
        input_names = {info.name for info in graph.input}
        # Since format 4, an initialiser with the name of an input is that input's default.
        may_be_given = input_names if model.ir_version >= 4 else set()
        for tensor in graph.initializer:
            array = to_array(tensor, place)
            if tensor.name in may_be_given:
                self.defaults[tensor.name] = to_tensor(tensor.name, array, dtype_of(tensor))
            else:
                self._define(tensor.name, array, dtype_of(tensor))
        for sparse in graph.sparse_initializer:
            array = to_dense(sparse, place)
            self._define(sparse.values.name, array, dtype_of(sparse.values))
        self.inputs = [info for info in graph.input if info.name not in self.constants]
        others = [node for node in graph.node if not self._is_constant(node)]
        self.nodes = _sorted(others, self.constants.keys() | {info.name for info in self.inputs})
        self.num_uses = Counter(info.name for info in graph.output)
        for node in self.nodes:
            self.num_uses.update([*node.input, *scopes.captured(node)])
        self._check_outputs(graph)

    def _define(self, name: str, array: np.ndarray, dtype: str) -> None:
        if name in self.constants:
            raise UserError(f"two values of the model are called {name!r}; give each its own name")
        self.constants[name] = (array, dtype)

    def _is_constant(self, node: onnx.NodeProto) -> bool:
        """Return whether a node is a Constant; if so, add its value to `constants`."""
        is_standard = node.domain in ("", "ai.onnx") and node.op_type == "Constant"
        if not is_standard or (node.domain, node.op_type) in self._functions:
            return False
        value = _value_of(node, self._place)
        if value is None or len(node.output) != 1:
            raise UserError(f"node {node.name!r}: a Constant without a value")
        self._define(node.output[0], *value)
        return True

    def _check_outputs(self, graph: onnx.GraphProto) -> None:
        available = self.constants.keys() | {info.name for info in self.inputs}
        available |= {name for node in self.nodes for name in node.output}
        for output in graph.output:
            if output.name not in available:
                raise UserError(
                    f"output {output.name!r} of the model is given by no node; the model is "
                    "incomplete"
                )
        if not graph.output:
            raise UserError("the model has no outputs")


def _value_of(node: onnx.NodeProto, place: DataPlace | None) -> tuple[np.ndarray, str] | None:
    for attribute in node.attribute:
        match attribute.name:
            case "value":
                return to_array(attribute.t, place), dtype_of(attribute.t)
            case "sparse_value":
                sparse = attribute.sparse_tensor
                return to_dense(sparse, place), dtype_of(sparse.values)
            case name if name in _OTHER_VALUES:
                field, dtype = _OTHER_VALUES[name]
                return np.array(getattr(attribute, field), storage(dtype)), dtype
    return None


_OTHER_VALUES = {
    "value_float": ("f", "float32"),
    "value_floats": ("floats", "float32"),
    "value_int": ("i", "int64"),
    "value_ints": ("ints", "int64"),
    "value_string": ("s", "string"),
    "value_strings": ("strings", "string"),
}
"""For each attribute of a Constant that is no tensor, its field and element type."""


def _sorted(nodes: Sequence[onnx.NodeProto], available: Iterable[str]) -> list[onnx.NodeProto]:
    """Sort nodes so that each comes after those it depends on; otherwise keep the file's order."""
    ready = set(available) | {""}
    makers = _makers(nodes, ready)
    sorter: graphlib.TopologicalSorter[int] = graphlib.TopologicalSorter()
    for number, node in enumerate(nodes):
        names = [name for name in (*node.input, *scopes.captured(node)) if name not in ready]
        for name in names:
            if name not in makers:
                raise UserError(
                    f"{describe_node(node)} uses {name!r}, which no input, initialiser or node "
                    "gives; the model is incomplete"
                )
        sorter.add(number, *(makers[name] for name in names))
    with contextlib.suppress(graphlib.CycleError):
        sorter.prepare()  # In spite of a cycle it gives all nodes that depend on none.
    # The next node is the first one in the file whose inputs are all known.
    heap: list[int] = []
    ordered: list[int] = []
    while sorter.is_active():
        for number in sorter.get_ready():
            heapq.heappush(heap, number)
        ordered.append(heapq.heappop(heap))
        sorter.done(ordered[-1])
    if len(ordered) < len(nodes):
        stuck = min({*range(len(nodes))} - {*ordered})
        raise UserError(
            f"the model has a cycle: {describe_node(nodes[stuck])} depends on itself, or on a node "
            "that does"
        )
    return [nodes[number] for number in ordered]


def _makers(nodes: Sequence[onnx.NodeProto], available: Collection[str]) -> dict[str, int]:
    makers: dict[str, int] = {}
    for number, node in enumerate(nodes):
        for name in node.output:
            if name and (name in makers or name in available):
                raise UserError(
                    f"two values of the model are called {name!r}; give each its own name"
                )
            makers[name] = number
    return makers


def describe_node(node: onnx.NodeProto) -> str:
    """Return words that identify a node in an error message."""
    name = f" {node.name!r}" if node.name else f" that gives {', '.join(map(repr, node.output))}"
    return f"the {node.op_type}{name}"
