"""Classes of equal tensors, kept by egglog.

Two operations are equal if their operators, attributes and inputs are. egglog draws all conclusions
from that (congruence); this module only translates. It enters each operation as `Number n` and as
`Apply label inputs`, and declares the two equal. Each output of an operation is a tensor.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from environments.errors import UserError
from environments.tensor_graphs.graph.nodes import Node, Ref

_LANGUAGE = """
(sort Operation)
(sort Tensor)
(sort Inputs)
(constructor Nil () Inputs)
(constructor Cons (Tensor Inputs) Inputs)
(constructor Absent () Tensor)
(constructor Number (i64) Operation)
(constructor Apply (i64 Inputs) Operation)
(constructor Output (i64 Operation) Tensor)
"""
# egglog updates its classes after each command, but only once after all actions of one rule.
_ACTIONS_PER_RULE = 24


@dataclasses.dataclass(frozen=True)
class Classes:
    """The classes of equal operations and of equal tensors.

    Attributes:
      operations: the class of each operation, by the operation's number.
      tensors: the class of each output.
    """

    operations: Mapping[int, str]
    tensors: Mapping[Ref, str]


class EGraph:
    """Operations, and which of their outputs are equal."""

    def __init__(self) -> None:
        """Begin without operations.

        Raises:
          UserError: egglog is not installed.
        """
        try:
            from egglog import bindings
        except ImportError:
            raise UserError(
                "the exact bound needs egglog; pip install 'tfrl-systems[exact]'"
            ) from None
        self._egglog: Any = bindings.EGraph()
        self._run(_LANGUAGE)
        self._labels: dict[Any, int] = {}
        self._num_outputs: dict[int, int] = {}
        self._actions: list[str] = []
        self._num_rules = 0

    def add(self, number: int, node: Node) -> None:
        """Add an operation under a number; its inputs must have been added before."""
        label = self._labels.setdefault((node.op, node.attributes), len(self._labels))
        inputs = "(Nil)"
        for ref in reversed(node.inputs):
            inputs = f"(Cons {'(Absent)' if ref is None else _tensor(ref)} {inputs})"
        self._actions.append(f"(union (Number {number}) (Apply {label} {inputs}))")
        self._num_outputs[number] = len(node.types)
        self._actions += [_tensor(Ref(number, k)) for k in range(len(node.types))]

    def union(self, first: Ref, second: Ref) -> None:
        """Declare two tensors equal."""
        self._actions.append(f"(union {_tensor(first)} {_tensor(second)})")

    def classes(self) -> Classes:
        """Return the classes that follow from everything added so far."""
        for first in range(0, len(self._actions), _ACTIONS_PER_RULE):
            self._run_together(self._actions[first : first + _ACTIONS_PER_RULE])
        self._actions.clear()
        nodes = json.loads(self._egglog.serialize([]).to_json())["nodes"]
        operations: dict[int, str] = {}
        outputs: dict[tuple[int, str], str] = {}
        for node in nodes.values():
            children = [nodes[child] for child in node["children"]]
            if node["op"] == "Number":
                operations[int(children[0]["op"])] = node["eclass"]
            elif node["op"] == "Output":
                outputs[int(children[0]["op"]), children[1]["eclass"]] = node["eclass"]
        tensors = {
            Ref(number, k): outputs[k, operations[number]]
            for number, count in self._num_outputs.items()
            for k in range(count)
        }
        return Classes(operations, tensors)

    def _run_together(self, actions: Sequence[str]) -> None:
        name = f"together{self._num_rules}"
        self._num_rules += 1
        self._run(
            f"(ruleset {name}) (rule () ({' '.join(actions)}) :ruleset {name}) (run {name} 1)"
        )

    def _run(self, program: str) -> None:
        self._egglog.run_program(*self._egglog.parse_program(program))


def _tensor(ref: Ref) -> str:
    return f"(Output {ref.output} (Number {ref.node}))"
