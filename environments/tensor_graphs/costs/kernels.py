"""Split a model that onnxruntime has optimised into kernels, which can be measured one by one.

onnxruntime rewrites a model when it opens it, and can write the result to a file. So a part of a
graph is opened once, and each node of the result is measured by itself. The same kernel has the
same cost in every part. Therefore a rule that only does what onnxruntime does anyway gains nothing,
not even by noise. And a search needs few measurements, however many parts of graphs it meets.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from environments.tensor_graphs.costs.analytic import VIEWS
from environments.tensor_graphs.execution.backends import Arrays, Backend

# Operators that convert between onnxruntime's own layout for convolutions and the model's.
_REORDER_INPUT, _REORDER_OUTPUT = "ReorderInput", "ReorderOutput"
# The values of single numbers (a factor of 1) and of small integer weights (axes, sizes) may decide
# what a kernel does. Weights of up to this many elements are small.
_SMALL = 16


@dataclasses.dataclass(frozen=True, eq=False)
class Kernel:
    """A node of an optimised model, with the arrays that it works on.

    Attributes:
      inputs: the arrays that it works on; None for one that is left out.
      is_weight: for each input, whether it is an initialiser.
      opsets: opset version of each operator domain.
    """

    node: onnx.NodeProto
    inputs: tuple[np.ndarray | None, ...]
    is_weight: tuple[bool, ...]
    opsets: Mapping[str, int]

    @property
    def is_view(self) -> bool:
        """Whether it only gives its input another shape; measured alone, it would copy that."""
        return self.node.op_type in VIEWS and not self.node.domain

    @functools.cached_property
    def key(self) -> str:
        """A text that is the same for kernels that take the same time."""
        opset = self.opsets.get(self.node.domain, 0)
        usual = _defaults(self.node.op_type, self.node.domain, opset)
        attributes = sorted(
            attribute.SerializeToString()
            for attribute in self.node.attribute
            if attribute.SerializeToString() != usual.get(attribute.name)
        )
        inputs = [
            "" if array is None else _key_of(array, is_weight)
            for array, is_weight in zip(self.inputs, self.is_weight, strict=True)
        ]
        is_used = [bool(name) for name in self.node.output]
        name = f"{self.node.domain}.{self.node.op_type}-{opset}"
        return f"{name}{inputs}{self._places}{is_used}{attributes}"

    @property
    def _places(self) -> list[int]:
        """For each input, the index of the first input that has the same name."""
        names = list(self.node.input)
        return [names.index(name) for name in names]

    @property
    def description(self) -> str:
        """The operator and the shapes of its inputs, for people to read."""
        shapes = ("?" if array is None else f"{list(array.shape)}" for array in self.inputs)
        return f"{self.node.op_type}({', '.join(shapes)})"

    @property
    def size_bytes(self) -> int:
        """Size of all inputs in bytes."""
        return sum(0 if array is None else array.nbytes for array in self.inputs)

    def model(self, copies: int) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
        """Make a model of several copies of the kernel, and its inputs by name.

        Each copy has its own inputs and weights.
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


def kernels_of(optimised: onnx.ModelProto, feeds: Arrays, plain: Backend) -> list[Kernel]:
    """Return the kernels of a model that onnxruntime has optimised, as it runs on `feeds`.

    Conversions of layout at the model's inputs and outputs are left out: within a larger model, the
    neighbouring kernels may use the same layout. `plain` runs models without optimising further.

    Raises:
      ValueError: a node contains a subgraph, or one of its inputs is no array.
    """
    nodes = list(optimised.graph.node)
    if any(attribute.g.node or attribute.graphs for node in nodes for attribute in node.attribute):
        raise ValueError("a node has a graph of its own")
    weights = {weight.name: numpy_helper.to_array(weight) for weight in optimised.graph.initializer}
    values = {**feeds, **_values(optimised, feeds, plain), **weights}
    inputs, outputs = (
        {value.name for value in ends} for ends in (optimised.graph.input, optimised.graph.output)
    )
    opsets = {opset.domain: opset.version for opset in optimised.opset_import}
    kernels = []
    for node in nodes:
        if node.op_type == _REORDER_INPUT and node.input[0] in inputs:
            continue
        if node.op_type == _REORDER_OUTPUT and node.output[0] in outputs:
            continue
        arrays = tuple(values[name] if name else None for name in node.input)
        if not all(array is None or isinstance(array, np.ndarray) for array in arrays):
            raise ValueError(f"an input of {node.op_type} is no array")
        kernels.append(Kernel(node, arrays, tuple(name in weights for name in node.input), opsets))
    return kernels


def _values(optimised: onnx.ModelProto, feeds: Arrays, plain: Backend) -> Arrays:
    """Run a model; return all values that one node computes for another, by name."""
    used = {name for node in optimised.graph.node for name in node.input}
    inner = [name for node in optimised.graph.node for name in node.output if name in used]
    if not inner:
        return {}
    exposed = onnx.ModelProto()
    exposed.CopyFrom(optimised)
    del exposed.graph.output[:]
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in inner)
    return plain.open(exposed).run(feeds)


@functools.cache
def _defaults(op: str, domain: str, opset: int) -> Mapping[str, bytes]:
    """Return an operator's attributes that have a default, serialised with it, by name.

    onnxruntime writes some attributes that have their defaults, but not always, so keys of kernels
    leave them out.
    """
    try:
        schema = onnx.defs.get_schema(op, opset, domain)
    except onnx.defs.SchemaError:
        return {}
    return {
        name: attribute.default_value.SerializeToString()
        for name, attribute in schema.attributes.items()
    }


def _key_of(array: np.ndarray, is_weight: bool) -> str:
    described = f"{array.dtype}{list(array.shape)}"
    if not is_weight:
        return described
    decides = array.size == 1 or (array.dtype.kind != "f" and array.size <= _SMALL)
    return f"{described}={array.ravel().tolist()}" if decides else f"{described}=constant"
