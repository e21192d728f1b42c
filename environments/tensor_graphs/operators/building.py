"""Add nodes in their canonical form to an edit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from environments.tensor_graphs.graph.graph import Edit
from environments.tensor_graphs.graph.nodes import Ref, TensorType
from environments.tensor_graphs.operators import layout, table
from environments.tensor_graphs.operators.operator import OperatorError, Shape

_RESHAPES = ("Flatten", "Squeeze", "Unsqueeze")


def add(edit: Edit, op: str, *inputs: Ref, **attributes: Any) -> tuple[Ref, ...]:
    """Add a node in its canonical form.

    Args:
      edit: what the node is added to.
      op: one of `table.OPERATORS`, or Flatten, Squeeze or Unsqueeze, which become Reshape.
      *inputs: values that the node uses.
      **attributes: attributes that differ from their defaults; axes may be counted from the end.

    Returns:
      The node's outputs.

    Raises:
      OperatorError: the operator does not take such inputs or attributes.
    """
    types = tuple([edit.type_of(ref) for ref in inputs])
    if op in _RESHAPES:
        op, attributes = "Reshape", {"shape": _target(op, types, attributes)}
    completed = table.complete(op, attributes, types)
    outputs = table.infer(op, types, completed)
    node = edit.add(op, inputs, completed, outputs).node
    return tuple([Ref(node, output) for output in range(len(outputs))])


def _target(op: str, types: Sequence[TensorType | None], attributes: Mapping[str, Any]) -> Shape:
    if len(types) != 1 or types[0] is None or types[0].shape is None:
        raise OperatorError(f"{op}: expected one input of known rank")
    return layout.reshaped(op, types[0].shape, attributes)
