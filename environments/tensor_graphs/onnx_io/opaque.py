"""Opaque nodes: operators that `operators` does not know, kept to be written as they were.

Attributes of an Opaque node:

  captured  names under which the node's subgraphs use its last inputs
  node      the serialised NodeProto without names of values, its own name and documentation
  operator  "Loop", or "domain:Name"
  outputs   1 for each output that has a name, 0 for each that is left out
  unique    a number that no other node has, if equal nodes may give different values; else missing
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import onnx

from environments.tensor_graphs.graph.nodes import Attribute, Attributes, Node, attributes_of
from environments.tensor_graphs.onnx_io import scopes

_RANDOM = {
    *("Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike"),
    *("RandomUniform", "RandomUniformLike"),
}
_TRAINING = {"BatchNormalization", "Dropout"}
"""In training Dropout is random, and BatchNormalization changes its statistics."""


def opaque_attributes(
    node: onnx.NodeProto,
    captured: Sequence[str],
    functions: Collection[tuple[str, str]],
    number: int,
) -> Attributes:
    """Return the attributes of the Opaque node for a node of a file.

    `captured` are the outer values that its subgraphs use, `functions` are domain and name of the
    operators that the model defines itself, and `number` is one that no other node has.
    """
    bare = onnx.NodeProto()
    bare.CopyFrom(node)
    for field in ("input", "output", "name", "doc_string", "metadata_props"):
        bare.ClearField(field)
    values: dict[str, Attribute] = {
        "captured": tuple(captured),
        "node": bare.SerializeToString(deterministic=True),
        "operator": f"{node.domain}:{node.op_type}" if node.domain else node.op_type,
        "outputs": tuple(int(bool(name)) for name in node.output),
    }
    if may_differ(node, functions):
        values["unique"] = number
    return attributes_of(values)


def to_onnx_node(node: Node, names: Sequence[str], outputs: Sequence[str]) -> onnx.NodeProto:
    """Make the node of a file for an Opaque node.

    In `names` the captured inputs come last, and "" stands for an input that is left out. `outputs`
    has names even for outputs that are left out.
    """
    captured = node.attribute("captured")
    num_inputs = len(names) - len(captured)
    result = named_node(node, names[:num_inputs], outputs)
    renamed: Mapping[str, str] = {
        old: new for old, new in zip(captured, names[num_inputs:], strict=True) if old != new
    }
    scopes.rename(result, renamed)
    return result


def named_node(node: Node, inputs: Sequence[str], outputs: Sequence[str]) -> onnx.NodeProto:
    """Make the node of a file, with its subgraphs as they are; see `to_onnx_node`."""
    result = onnx.NodeProto.FromString(node.attribute("node"))
    result.input.extend(inputs)
    result.output.extend(
        name if has_name else ""
        for name, has_name in zip(outputs, node.attribute("outputs"), strict=True)
    )
    return result


def names_within(node: Node) -> set[str]:
    """Return all names of values in the subgraphs of an Opaque node, without the captured ones."""
    original = onnx.NodeProto.FromString(node.attribute("node"))
    return scopes.names_within([original]) - set(node.attribute("captured"))


def may_differ(node: onnx.NodeProto, functions: Collection[tuple[str, str]]) -> bool:
    """Return whether equal nodes may give different values, as random or custom operators do."""
    return any(
        domain not in ("", "ai.onnx", "ai.onnx.ml")
        or (domain, name) in functions
        or name in _RANDOM | _TRAINING
        for domain, name in scopes.operators(node)
    )
