"""Bodies: the graphs inside If, Loop and Scan, which are parts of the graph around them.

The nodes of a body are nodes of the one `Graph`, so rules rewrite them like any others. A body is
kept apart from what is around it by its inputs:

    x ───────────────┐                        captured: the outer value that Input 1 stands for
    cond ───────── If/Loop/Scan ── y          an Opaque node with an id for each of its bodies
                     │    │
    Input 0 ── … ────┘    │                   outputs of the body, as inputs of that node
    Input 1 ── … ─────────┘

An Input node with the attribute `body` is an input of that body: first those that the file lists
(iteration, condition, state), then one for each outer value that the body captures. Constants are
the same everywhere and need no Input. So no node of a body equals a node outside, and a match never
reaches across.

The node that has bodies is Opaque. Its inputs are its own inputs, the captured values of each body,
and the outputs of each body. Besides those of `opaque` it has the attributes

  bodies     the id of each body
  captured   for each body, how many values it captures
  node       the serialised NodeProto, whose graphs have inputs and outputs but no nodes

To be read, a body becomes a model; its captured values become inputs (`body_model`). The types of
its own inputs are those that hold in every iteration. A file may give the shape of a Loop's state
for the first iteration alone, so sizes of a state are kept only if the body returns the same sizes
again (`steady`).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import onnx

from environments.tensor_graphs.graph.nodes import (
    INPUT,
    OPAQUE,
    Attributes,
    Node,
    Ref,
    TensorType,
    attributes_of,
)
from environments.tensor_graphs.onnx_io import opaque, scopes
from environments.tensor_graphs.onnx_io.header import UNKNOWN, value_info
from environments.tensor_graphs.onnx_io.tensors import DTYPES, NUMBERS, to_tensor

OPERATORS = frozenset({"If", "Loop", "Scan"})
"""The operators whose bodies are read."""

Types = Mapping[str, TensorType | None]
"""Types of values by name; None for those that are no tensors."""


@dataclasses.dataclass(frozen=True)
class Body:
    """A body of a node.

    Attributes:
      name: its id, which no other body of the graph has.
      shell: the body in the file, without its nodes and initialisers.
      captured: the outer values for which its last Inputs stand.
      outputs: the values that it returns.
    """

    name: str
    shell: onnx.GraphProto
    captured: tuple[Ref, ...]
    outputs: tuple[Ref, ...]

    def captured_at(self, place: int) -> Ref | None:
        """Return the outer value for which the Input at a place stands; None for the file's own."""
        index = place - len(self.shell.input)
        return self.captured[index] if index >= 0 else None


@dataclasses.dataclass(frozen=True)
class Control:
    """A node that has bodies, in the order of its attributes; inputs that are left out are None."""

    inputs: tuple[Ref | None, ...]
    bodies: tuple[Body, ...]


def has_bodies(node: Node) -> bool:
    """Return whether a node's bodies were read."""
    return node.op == OPAQUE and any(name == "bodies" for name, _ in node.attributes)


def input_attributes(body: str, place: int) -> Attributes:
    """Return the attributes of the Input node at a place of a body."""
    return attributes_of({"body": body, "name": f"{body}[{place}]", "place": place})


def body_of(node: Node) -> str:
    """Return the id of the body that an Input belongs to; "" for an input of the model."""
    return "" if node.op != INPUT or node.is_model_input else node.attribute("body")


def control_attributes(
    node: onnx.NodeProto,
    names: Sequence[str],
    num_captured: Sequence[int],
    functions: Collection[tuple[str, str]],
) -> Attributes:
    """Return the attributes of the Opaque node for a node whose bodies are read.

    `names` are the ids of its bodies; `functions` are as for `opaque.opaque_attributes`.
    """
    bare = onnx.NodeProto()
    bare.CopyFrom(node)
    for graph in scopes.subgraphs(bare):
        for field in ("node", "initializer", "sparse_initializer", "value_info"):
            graph.ClearField(field)
    # The ids make the node unlike all others, so it needs no number of its own.
    plain = dict(opaque.opaque_attributes(bare, (), functions, 0))
    plain.pop("unique", None)
    return attributes_of({**plain, "bodies": tuple(names), "captured": tuple(num_captured)})


def control_of(node: Node) -> Control:
    """Return the inputs and bodies of a node that `has_bodies`."""
    bare = onnx.NodeProto.FromString(node.attribute("node"))
    shells = list(scopes.subgraphs(bare))
    names, counts = node.attribute("bodies"), node.attribute("captured")
    refs = iter(node.inputs)
    num_inner = sum(counts) + sum(len(shell.output) for shell in shells)
    own = tuple(itertools.islice(refs, len(node.inputs) - num_inner))
    captured = [tuple(filter(None, itertools.islice(refs, count))) for count in counts]
    returned = [tuple(filter(None, itertools.islice(refs, len(shell.output)))) for shell in shells]
    parts = zip(names, shells, captured, returned, strict=True)
    return Control(own, tuple(Body(*body) for body in parts))


class UnreadableBodyError(Exception):
    """A body cannot be read as a graph, so its node is read as it is in the file."""


def body_model(
    model: onnx.ModelProto,
    body: onnx.GraphProto,
    formal: Sequence[TensorType],
    captured: Types,
    constants: Mapping[str, np.ndarray],
    dimensions: Mapping[str, str],
) -> onnx.ModelProto:
    """Make a model of a body, with the types of its own inputs and of the values that it captures.

    `constants` are the values of the captured ones that are constant.

    Raises:
      UnreadableBodyError: a captured value is no tensor, or its type is not known.
    """
    result = onnx.ModelProto(ir_version=model.ir_version)
    result.opset_import.extend(model.opset_import)
    result.functions.extend(model.functions)
    result.graph.CopyFrom(body)
    del result.graph.input[:]
    names = [info.name for info in body.input]
    for name, kind in (*zip(names, formal, strict=True), *captured.items()):
        if kind is None:
            raise UnreadableBodyError
        if name in constants:
            result.graph.initializer.append(to_tensor(name, constants[name], kind.dtype))
        else:
            result.graph.input.append(value_info(name, kind, dimensions))
    return result


def formal_types(
    node: onnx.NodeProto, body: onnx.GraphProto, types: Sequence[TensorType | None]
) -> list[TensorType]:
    """Return the types of a body's own inputs, as far as the node's inputs and the file give them.

    Raises:
      UnreadableBodyError: an input is no tensor, or its element type is not known.
    """
    if node.op_type == "If":
        return []
    if node.op_type == "Loop":
        first: list[TensorType | None] = [TensorType("int64", ()), TensorType("bool", ())]
        passed = [*first, *types[2:]]
    else:
        passed = _scanned(node, types)
    if len(passed) < len(body.input):
        raise UnreadableBodyError
    return [_formal(info, kind) for info, kind in zip(body.input, passed, strict=False)]


def states(node: onnx.NodeProto, body: onnx.GraphProto) -> list[tuple[int, int]]:
    """Return the places of each state among a body's inputs and among its outputs."""
    if node.op_type == "Loop":
        return [(place, place - 1) for place in range(2, len(body.input))]
    if node.op_type == "Scan":
        return [(place, place) for place in range(len(body.input) - _num_scanned(node))]
    return []


def steady(before: TensorType, after: TensorType | None) -> TensorType:
    """Return the type of a state that has one type before an iteration, and another one after."""
    if before.shape is None or after is None or after.shape is None:
        return TensorType(before.dtype, None)
    if len(before.shape) != len(after.shape):
        return TensorType(before.dtype, None)
    sizes = zip(before.shape, after.shape, strict=True)
    return TensorType(
        before.dtype, tuple(first if first == second else UNKNOWN for first, second in sizes)
    )


def _num_scanned(node: onnx.NodeProto) -> int:
    return next(attribute.i for attribute in node.attribute if attribute.name == "num_scan_inputs")


def _scanned(node: onnx.NodeProto, types: Sequence[TensorType | None]) -> list[TensorType | None]:
    """Return the types that a Scan passes to its body: without the axis that it goes along."""
    count = _num_scanned(node)
    lists = {attribute.name: list(attribute.ints) for attribute in node.attribute}
    axes = lists.get("scan_input_axes") or [0] * count
    passed = list(types[: len(types) - count])
    for kind, axis in zip(types[len(types) - count :], axes, strict=True):
        if kind is None or kind.shape is None or not kind.shape:
            passed.append(kind)
            continue
        shape = list(kind.shape)
        del shape[axis]
        passed.append(TensorType(kind.dtype, tuple(shape)))
    return passed


def _formal(info: onnx.ValueInfoProto, passed: TensorType | None) -> TensorType:
    """Return the type that is passed to a body's input; if it is not known, the file's.

    Names of sizes are left out: within the body they may stand for something else.
    """
    if passed is None:
        number = info.type.tensor_type.elem_type
        if info.type.WhichOneof("value") != "tensor_type" or DTYPES.get(number) not in NUMBERS:
            raise UnreadableBodyError
        return TensorType(DTYPES[number], None)
    if passed.shape is None:
        return passed
    return TensorType(
        passed.dtype, tuple(size if isinstance(size, int) else UNKNOWN for size in passed.shape)
    )
