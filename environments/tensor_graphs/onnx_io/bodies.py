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
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Sequence

import onnx

from environments.tensor_graphs.graph.nodes import (
    INPUT,
    OPAQUE,
    Attributes,
    Node,
    Ref,
    attributes_of,
)
from environments.tensor_graphs.onnx_io import opaque, scopes

OPERATORS = frozenset({"If", "Loop", "Scan"})
"""The operators whose bodies are read."""


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
