"""What onnxruntime makes of a part of a graph, kernel by kernel.

onnxruntime rewrites a model when it opens it, and can be asked for what came of it. A part of a
graph is therefore opened once, and each node of the result measured by itself: the same kernel has
the same cost in whichever part it is found. Rules that only do what onnxruntime does anyway then
gain nothing, not even by chance, and few kernels are to be measured however many parts a search
meets.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from environments.tensor_graphs.costs.analytic import VIEWS
from environments.tensor_graphs.execution.backends import Arrays

# Change between onnxruntime's own layout for convolutions and that of the model.
_REORDER_INPUT, _REORDER_OUTPUT = "ReorderInput", "ReorderOutput"
# Weights of so many elements may decide what a kernel does: axes, sizes, a factor of one.
_SMALL = 16

Run = Callable[[onnx.ModelProto, Arrays], Mapping[str, np.ndarray]]
"""Runs a model as it is."""


@dataclasses.dataclass(frozen=True, eq=False)
class Kernel:
    """A node that onnxruntime runs.

    Attributes:
      node: as onnxruntime writes it.
      inputs: arrays that it works on; None for one that is left out.
      is_weight: which of them are initialisers.
      opsets: versions of operators, by domain.
    """

    node: onnx.NodeProto
    inputs: tuple[np.ndarray | None, ...]
    is_weight: tuple[bool, ...]
    opsets: Mapping[str, int]

    @property
    def is_view(self) -> bool:
        """Whether it computes nothing; measured by itself, it would copy."""
        return self.node.op_type in VIEWS and not self.node.domain

    @functools.cached_property
    def key(self) -> str:
        """Kernels of one key take the same time."""
        usual = _defaults(self.node.op_type, self.node.domain, self.opsets.get(self.node.domain, 0))
        attributes = sorted(
            one.SerializeToString()
            for one in self.node.attribute
            if one.SerializeToString() != usual.get(one.name)
        )
        inputs = [
            "" if array is None else _key_of(array, is_weight)
            for array, is_weight in zip(self.inputs, self.is_weight, strict=True)
        ]
        asked = [bool(name) for name in self.node.output]
        opset = self.opsets.get(self.node.domain, 0)
        name = f"{self.node.domain}.{self.node.op_type}-{opset}"
        return f"{name}{inputs}{self._places}{asked}{attributes}"

    @property
    def _places(self) -> list[int]:
        """For each input the first place where the same is given."""
        names = list(self.node.input)
        return [names.index(name) for name in names]

    @property
    def description(self) -> str:
        """For people."""
        shapes = ("?" if one is None else f"{list(one.shape)}" for one in self.inputs)
        return f"{self.node.op_type}({', '.join(shapes)})"

    @property
    def size_bytes(self) -> int:
        """Of all that goes in."""
        return sum(0 if one is None else one.nbytes for one in self.inputs)

    def model(self, copies: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """A model of several copies of the kernel, each with its own inputs and weights.

        Args:
          copies: how many.

        Returns:
          The model, and its inputs by name.
        """
        nodes, weights, feeds, outputs = [], [], {}, []
        for copy in range(copies):
            node = onnx.NodeProto()
            node.CopyFrom(self.node)
            node.name = f"kernel{copy}"
            for place, first in enumerate(self._places):
                array = self.inputs[place]
                name = node.input[place] = "" if array is None else f"x{copy}_{first}"
                if array is None or first != place:
                    continue
                if self.is_weight[place]:
                    weights.append(numpy_helper.from_array(array, name))
                else:
                    feeds[name] = array.copy()
            for place, name in enumerate(node.output):
                node.output[place] = name and f"y{copy}_{place}"
                if name:
                    outputs.append(onnx.ValueInfoProto(name=f"y{copy}_{place}"))
            nodes.append(node)
        inputs = [
            helper.make_tensor_value_info(
                name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
            )
            for name, array in feeds.items()
        ]
        graph = helper.make_graph(nodes, "kernel", inputs, outputs, weights)
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        return helper.make_model(graph, ir_version=8, opset_imports=opsets), feeds


def kernels_of(made: onnx.ModelProto, feeds: Arrays, run: Run) -> list[Kernel]:
    """The kernels of a model, without changes of layout at its border.

    Args:
      made: what onnxruntime made of a model.
      feeds: its inputs.
      run: without optimising any more.

    Raises:
      ValueError: a node has a graph of its own, or a value is no array.
    """
    nodes = list(made.graph.node)
    if any(one.g.node or one.graphs for node in nodes for one in node.attribute):
        raise ValueError("a node has a graph of its own")
    weights = {one.name: numpy_helper.to_array(one) for one in made.graph.initializer}
    values = {**feeds, **_values(made, feeds, run), **weights}
    inputs, outputs = ({one.name for one in ends} for ends in (made.graph.input, made.graph.output))
    opsets = {one.domain: one.version for one in made.opset_import}
    found = []
    for node in nodes:
        if node.op_type == _REORDER_INPUT and node.input[0] in inputs:
            continue
        if node.op_type == _REORDER_OUTPUT and node.output[0] in outputs:
            continue
        arrays = tuple(values[name] if name else None for name in node.input)
        if not all(one is None or isinstance(one, np.ndarray) for one in arrays):
            raise ValueError(f"an input of {node.op_type} is no array")
        found.append(Kernel(node, arrays, tuple(name in weights for name in node.input), opsets))
    return found


def _values(made: onnx.ModelProto, feeds: Arrays, run: Run) -> Mapping[str, np.ndarray]:
    """All that the nodes compute for each other, by name."""
    used = {name for node in made.graph.node for name in node.input}
    inner = [name for node in made.graph.node for name in node.output if name in used]
    if not inner:
        return {}
    exposed = onnx.ModelProto()
    exposed.CopyFrom(made)
    del exposed.graph.output[:]
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
    return run(exposed, feeds)


@functools.cache
def _defaults(op: str, domain: str, opset: int) -> Mapping[str, bytes]:
    """Attributes that may as well be left out: onnxruntime writes some of them, not always."""
    try:
        schema = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return {}
    return {name: one.default_value.SerializeToString() for name, one in schema.attributes.items()}


def _key_of(array: np.ndarray, is_weight: bool) -> str:
    described = f"{array.dtype}{list(array.shape)}"
    if not is_weight:
        return described
    decides = array.size == 1 or (array.dtype.kind != "f" and array.size <= _SMALL)
    return f"{described}={array.ravel().tolist()}" if decides else f"{described}=constant"
