"""Compile the expressions of a rule's source, and check whether a node computes one of them.

A pattern is a flat list of steps. It checks an expression from the root down, without backtracking.
Each order of a commutative operator's inputs is a pattern of its own (see `starts.orders`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import CONSTANT, Attributes, Node, Ref
from environments.tensor_graphs.operators.operator import OperatorError
from environments.tensor_graphs.operators.table import OPERATORS, complete
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Literal,
    Name,
    Term,
    Variable,
)

Nodes = Mapping[int, Node] | Sequence[Node]
"""Nodes by number."""

Used = tuple[str, int, int]
"""An operator, the index of its output that is used, and its number of inputs."""

_VARIABLE, _ARRAY, _ABSENT = range(3)
_MAX_KNOWN = 1 << 14
_UNIFORM: dict[Attributes, bool] = {}
"""Whether all elements of a constant are equal, by the digest of the constant."""


@dataclasses.dataclass(slots=True)
class Found:
    """What patterns have bound so far.

    Attributes:
      refs: the value bound to each variable, by its number; None if it is not bound.
      values: the attribute value bound to each name, by its number; None if it is not bound.
      nodes: numbers of the nodes that the operators matched, from each root down.
    """

    refs: list[Ref | None]
    values: list[Any]
    nodes: list[int]

    def copy(self) -> Found:
        """Return a copy that can be changed independently."""
        return Found(list(self.refs), list(self.values), list(self.nodes))


class Pattern:
    """One expression of a source, with the inputs of commutative operators in one order.

    Attributes:
      output: index of the root's output that the expression stands for.
      operators: for each operator below the root: the number of the operator that uses it (0 is the
        root), the position of that input, and what it must be.
      depth: number of edges from the root to the farthest leaf.
      paths: for each variable, by its number: the positions of inputs along the shortest path from
        the root.
    """

    def __init__(self, root: Apply, variables: Sequence[str], names: Sequence[str]) -> None:
        """Compile an expression.

        Raises:
          OperatorError: the expression uses an operator or attribute that does not exist, or a term
            that cannot be matched.
        """
        self.op, self.output = root.op, root.output
        self.paths: dict[int, tuple[int, ...]] = {}
        self.depth = 0
        self._variables = {name: number for number, name in enumerate(variables)}
        self._names = {name: number for number, name in enumerate(names)}
        self.operators: list[tuple[int, int, Used]] = []
        self._leaves: list[tuple[Any, ...]] = []
        self._checks: list[tuple[int, _AttributeCheck]] = []
        self.num_inputs = len(root.inputs)
        self._compile(root)

    def _compile(self, root: Apply) -> None:
        todo: list[tuple[Apply, int, tuple[int, ...]]] = [(root, 0, ())]
        num_nodes, leaves = 1, self._leaves
        for applied, register, path in todo:
            check = _AttributeCheck(applied, self._names)
            if not check.is_idle:
                self._checks.append((register, check))
            for index, operand in enumerate(applied.inputs):
                longer = (*path, index)
                self.depth = max(self.depth, len(longer))
                if isinstance(operand, Apply):
                    used = (operand.op, operand.output, len(operand.inputs))
                    self.operators.append((register, index, used))
                    todo.append((operand, num_nodes, longer))
                    num_nodes += 1
                elif operand is None:
                    leaves.append((_ABSENT, register, index, None))
                elif isinstance(operand, Array):
                    slot = _slot(operand.arguments[0], self._names)
                    leaves.append((_ARRAY, register, index, slot))
                else:
                    number = self._variables[operand.name]
                    self.paths.setdefault(number, longer)
                    leaves.append((_VARIABLE, register, index, number))

    def match(self, nodes: Nodes, root: int, bound: Found) -> bool:
        """Whether the node `root` computes the expression.

        The call adds to `bound`; if the result is False, what it has added is meaningless.
        """
        node = nodes[root]
        if node.op != self.op or len(node.inputs) != self.num_inputs:
            return False
        numbers = [root]
        for register, index, used in self.operators:
            ref = nodes[numbers[register]].inputs[index]
            if ref is None or used_by(nodes, ref) != used:
                return False
            numbers.append(ref.node)
        return self.match_below(nodes, numbers, bound)

    def match_below(self, nodes: Nodes, numbers: Sequence[int], bound: Found) -> bool:
        """Whether all else fits too where the operators do, which are `numbers`, the root first."""
        bound.nodes.extend(numbers)
        refs = bound.refs
        for kind, register, index, what in self._leaves:
            ref = nodes[numbers[register]].inputs[index]
            if kind == _VARIABLE:
                if ref is None or (refs[what] is not None and refs[what] != ref):
                    return False
                refs[what] = ref
            elif kind == _ABSENT:
                if ref is not None:
                    return False
            elif ref is None or not _is_array(nodes[ref.node], what, bound.values):
                return False
        return all(
            check.bind(nodes, nodes[numbers[place]], bound.values) for place, check in self._checks
        )


def used_by(nodes: Nodes, ref: Ref) -> Used:
    """Return what `Pattern.operators` says of the node that a reference points to."""
    node = nodes[ref.node]
    return node.op, ref.output, len(node.inputs)


class _AttributeCheck:
    """Checks one operator's attributes: binds those that have names, and compares the others.

    Attributes:
      is_idle: whether there is nothing to check, because the operator has no attributes.
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
                items = tuple(_slot(element, names) for element in value.arguments)
                self._lists.append((position, items))
        self.is_idle = not operator.attributes
        named = {name for name, _ in applied.attributes}
        self._is_plain = not self._fixed and named == set(operator.attributes)
        self._known: dict[Any, bool] = {}

    def bind(self, nodes: Nodes, node: Node, values: list[Any]) -> bool:
        """Whether a node's attributes fit the pattern; bind the named ones in `values`."""
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

    def _has_defaults(self, nodes: Nodes, node: Node) -> bool:
        """Whether every attribute that the pattern leaves out has its default.

        The test completes the attributes that the pattern mentions by their defaults, and compares
        the result with the node's attributes.
        """
        types = tuple(
            None if ref is None else nodes[ref.node].types[ref.output] for ref in node.inputs
        )
        key = node.attributes, types
        is_default = self._known.get(key)
        if is_default is None:
            if len(self._known) > _MAX_KNOWN:
                self._known.clear()
            is_default = self._known[key] = self._compare(node.attributes, types)
        return is_default

    def _compare(self, attributes: Attributes, types: tuple[Any, ...]) -> bool:
        values = {name: attributes[position][1] for name, position in self._taken}
        try:
            return complete(self._op, {**self._fixed, **values}, types) == attributes
        except OperatorError:
            return False


def _slot(value: Term | Variable, names: Mapping[str, int]) -> tuple[int | None, Any]:
    """Return (number of a name, None), or (None, value of a literal)."""
    if isinstance(value, Name):
        return names[value.name], None
    if not isinstance(value, Literal):
        raise OperatorError(f"{value} in a source: expected a number or a name")
    return None, value.value


def _take_apart(value: Any, items: tuple[Any, ...], values: list[Any]) -> bool:
    if not isinstance(value, tuple) or len(value) != len(items):
        return False
    for element, (slot, literal) in zip(value, items, strict=True):
        if slot is None:
            if element != literal:
                return False
        elif values[slot] is None:
            values[slot] = element
        elif values[slot] != element:
            return False
    return True


def _is_array(node: Node, what: tuple[int | None, Any], values: list[Any]) -> bool:
    """Whether a node is a Constant whose elements all equal one number, and that number fits.

    `what` is (number of a name, None) to bind or compare the number, or (None, expected number).
    `values` are the attribute values bound so far, by number of the name.
    """
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


def _is_rounded(number: Any, expected: Any) -> bool:
    if number.dtype.kind not in "fiub":
        return False
    with np.errstate(over="ignore"):
        return bool(number == np.asarray(expected).astype(number.dtype)) and (
            number.dtype.kind == "f" or float(number) == expected
        )


def _is_uniform(node: Node) -> bool:
    is_uniform = _UNIFORM.get(node.attributes)
    if is_uniform is None:
        assert node.value is not None
        flat = node.value.reshape(-1)
        if len(_UNIFORM) > _MAX_KNOWN:
            _UNIFORM.clear()
        is_uniform = _UNIFORM[node.attributes] = bool(
            flat[0] == flat[-1] and (flat == flat[0]).all()
        )
    return is_uniform
