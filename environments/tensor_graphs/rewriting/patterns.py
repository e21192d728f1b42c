"""Sources of rules, compiled: is this expression computed at that node?

A pattern is a flat program that goes through an expression from its root down and never turns back.
Where an operator is commutative, each order of its inputs is a pattern of its own (`orders`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import CONSTANT, Attributes, Node, Ref
from environments.tensor_graphs.operators.operator import OperatorError
from environments.tensor_graphs.operators.table import OPERATORS, complete
from environments.tensor_graphs.rules.language.expressions import Apply, Array, Call, Literal, Name

_VARIABLE, _APPLY, _ARRAY, _ABSENT = range(4)
_MAX_KNOWN = 1 << 14
_UNIFORM: dict[Attributes, bool] = {}
"""Whether the elements of a constant are all the same, by its digest."""


@dataclasses.dataclass(slots=True)
class Found:
    """What a pattern has bound so far.

    Attributes:
      refs: by number of the variable; None where nothing is bound.
      values: of attributes, by number of the name.
      nodes: of the operators, from the root down.
    """

    refs: list[Ref | None]
    values: list[Any]
    nodes: list[int]

    def copy(self) -> Found:
        """Another one, which may be changed."""
        return Found(list(self.refs), list(self.values), list(self.nodes))


class Pattern:
    """One expression of a source, with the inputs of commutative operators in one order.

    Attributes:
      op: of the root.
      output: of the root.
      num_inputs: of the root.
      child: position and operator of an input that is an operator itself; None where there is none.
      depth: number of edges from the root to the farthest leaf.
      paths: by number of the variable: positions of inputs on the shortest path from the root.
    """

    def __init__(self, root: Apply, variables: Sequence[str], names: Sequence[str]) -> None:
        """Compiles.

        Args:
          root: the expression.
          variables: of the rule.
          names: of the rule's attributes.
        """
        self.op, self.output = root.op, root.output
        self.paths: dict[int, tuple[int, ...]] = {}
        self.depth = 0
        self._variables = {name: number for number, name in enumerate(variables)}
        self._names = {name: number for number, name in enumerate(names)}
        self._steps: list[tuple[Any, ...]] = []
        self._checks: list[tuple[int, _AttributeCheck]] = []
        self.num_inputs = len(root.inputs)
        self._compile(root)
        self.child = next(
            ((index, one.op) for index, one in enumerate(root.inputs) if isinstance(one, Apply)),
            None,
        )

    def _compile(self, root: Apply) -> None:
        todo: list[tuple[Apply, int, tuple[int, ...]]] = [(root, 0, ())]
        num_nodes = 1
        leaves: list[tuple[Any, ...]] = []
        for applied, register, path in todo:
            check = _AttributeCheck(applied, self._names)
            if not check.is_idle:
                self._checks.append((register, check))
            for index, given in enumerate(applied.inputs):
                longer = (*path, index)
                self.depth = max(self.depth, len(longer))
                if isinstance(given, Apply):
                    step = (given.op, given.output, len(given.inputs))
                    self._steps.append((_APPLY, register, index, step))
                    todo.append((given, num_nodes, longer))
                    num_nodes += 1
                elif given is None:
                    leaves.append((_ABSENT, register, index, None))
                elif isinstance(given, Array):
                    leaves.append((_ARRAY, register, index, self._array(given)))
                else:
                    number = self._variables[given.name]
                    self.paths.setdefault(number, longer)
                    leaves.append((_VARIABLE, register, index, number))
        self._steps += leaves

    def _array(self, array: Array) -> tuple[int | None, Any]:
        (value,) = array.arguments
        if isinstance(value, Name):
            return self._names[value.name], None
        if not isinstance(value, Literal):
            raise OperatorError(f"{array} in a source: expected a number or a name")
        return None, value.value

    def match(self, nodes: Mapping[int, Node], root: int, found: Found) -> bool:
        """Whether the expression is there.

        Args:
          nodes: of the graph.
          root: number of the node that may be the root.
          found: what is bound already; more is bound here, of no use if the result is False.
        """
        node = nodes[root]
        if node.op != self.op or len(node.inputs) != self.num_inputs:
            return False
        taken = [node]
        found.nodes.append(root)
        refs = found.refs
        for kind, register, index, what in self._steps:
            ref = taken[register].inputs[index]
            if kind == _APPLY:
                op, output, num_inputs = what
                if ref is None or ref.output != output:
                    return False
                node = nodes[ref.node]
                if node.op != op or len(node.inputs) != num_inputs:
                    return False
                taken.append(node)
                found.nodes.append(ref.node)
            elif kind == _VARIABLE:
                if ref is None or (refs[what] is not None and refs[what] != ref):
                    return False
                refs[what] = ref
            elif kind == _ABSENT:
                if ref is not None:
                    return False
            elif ref is None or not _is_array(nodes[ref.node], what, found.values):
                return False
        return all(check.bind(nodes, taken[place], found.values) for place, check in self._checks)


class _AttributeCheck:
    """Binds the attributes of a node, and compares those that are given or left out.

    Attributes:
      is_idle: whether the operator has no attributes.
    """

    def __init__(self, applied: Apply, names: Mapping[str, int]) -> None:
        operator = OPERATORS.get(applied.op)
        if operator is None:
            raise OperatorError(f"no operator is called {applied.op}")
        order = sorted(operator.attributes)
        self._op = applied.op
        self._binds: list[tuple[int, int]] = []
        self._lists: list[tuple[int, tuple[Any, ...]]] = []
        self._fixed: dict[str, Any] = {}
        self._taken: list[tuple[str, int]] = []
        for name, value in applied.attributes:
            if name not in operator.attributes:
                raise OperatorError(f"{applied.op} has no attribute {name}")
            position = order.index(name)
            if isinstance(value, Literal):
                self._fixed[name] = value.value
                continue
            self._taken.append((name, position))
            if isinstance(value, Name):
                self._binds.append((position, names[value.name]))
            else:
                self._lists.append((position, _list_items(value, names)))
        self.is_idle = not operator.attributes
        named = {name for name, _ in applied.attributes}
        self._is_plain = not self._fixed and named == set(operator.attributes)
        self._known: dict[Any, bool] = {}

    def bind(self, nodes: Mapping[int, Node], node: Node, values: list[Any]) -> bool:
        """Whether the attributes are those of the pattern."""
        for position, slot in self._binds:
            value = node.attributes[position][1]
            if values[slot] is None:
                values[slot] = value
            elif values[slot] != value:
                return False
        for position, items in self._lists:
            if not _take_apart(node.attributes[position][1], items, values):
                return False
        return self._is_plain or self._has_defaults(nodes, node)

    def _has_defaults(self, nodes: Mapping[int, Node], node: Node) -> bool:
        """Whether the attributes are those that one gets by naming only what the pattern names."""
        types = tuple(
            None if one is None else nodes[one.node].types[one.output] for one in node.inputs
        )
        key = node.attributes, types
        known = self._known.get(key)
        if known is None:
            if len(self._known) > _MAX_KNOWN:
                self._known.clear()
            known = self._known[key] = self._compare(node.attributes, types)
        return known

    def _compare(self, attributes: Attributes, types: tuple[Any, ...]) -> bool:
        given = {name: attributes[position][1] for name, position in self._taken}
        try:
            return complete(self._op, {**self._fixed, **given}, types) == attributes
        except OperatorError:
            return False


def _list_items(value: Any, names: Mapping[str, int]) -> tuple[Any, ...]:
    """For each element: (number of the name, None) or (None, value)."""
    if not isinstance(value, Call) or value.function != "list":
        raise OperatorError(f"{value} cannot be matched")
    return tuple(
        (names[one.name], None) if isinstance(one, Name) else (None, _literal(one))
        for one in value.arguments
    )


def _literal(value: Any) -> Any:
    if not isinstance(value, Literal):
        raise OperatorError(f"{value} in a list in a source: expected a number or a name")
    return value.value


def _take_apart(value: Any, items: tuple[Any, ...], values: list[Any]) -> bool:
    if not isinstance(value, tuple) or len(value) != len(items):
        return False
    for one, (slot, literal) in zip(value, items, strict=True):
        if slot is None:
            if one != literal:
                return False
        elif values[slot] is None:
            values[slot] = one
        elif values[slot] != one:
            return False
    return True


def _is_array(node: Node, what: tuple[int | None, Any], values: list[Any]) -> bool:
    """Whether a node is a constant whose elements are all the same, and the expected ones."""
    if node.op != CONSTANT or node.value is None or node.value.size == 0:
        return False
    slot, literal = what
    first = node.value.reshape(-1)[0]
    if slot is None and not _is_rounded(first, literal):
        return False
    if node.value.size > 1 and not _is_uniform(node):
        return False
    if slot is not None:
        value = first.item()
        if values[slot] is None:
            values[slot] = value
        return bool(values[slot] == value)
    return True


def _is_rounded(found: Any, expected: Any) -> bool:
    if found.dtype.kind not in "fiub":
        return False
    with np.errstate(over="ignore"):
        return bool(found == np.asarray(expected).astype(found.dtype)) and (
            found.dtype.kind == "f" or float(found) == expected
        )


def _is_uniform(node: Node) -> bool:
    known = _UNIFORM.get(node.attributes)
    if known is None:
        assert node.value is not None
        flat = node.value.reshape(-1)
        if len(_UNIFORM) > _MAX_KNOWN:
            _UNIFORM.clear()
        known = _UNIFORM[node.attributes] = bool(flat[0] == flat[-1] and (flat == flat[0]).all())
    return known
