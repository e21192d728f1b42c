"""Immutable graphs of tensor operations.

A graph is a set of nodes with numbers. What a node computes from its inputs is said by its operator
and attributes; `operators` has their meaning. A node has one or more outputs, each with a type;
`Ref(node, output)` names one of them.

  Input      attributes: name. What the model is given.
  Constant   attributes: a digest of `Node.value`, an array that is never changed.
  Opaque     any operator that `operators` does not know, carried along untouched; attributes are
             `onnx_io`'s matter.

Equal nodes are one node: of the same operator, attributes and inputs there is only one in a graph,
so common subexpressions are shared without anybody looking for them.

A graph never changes. `edit` gives an `Edit`, and that another graph, in which all nodes that were
left alone keep their numbers. What one edit changed is told by a `Change`: whoever keeps something
about a graph (its matches, its cost) brings it up to date from there.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.nodes import (
    CONSTANT,
    INPUT,
    OPAQUE,
    Attributes,
    Change,
    Node,
    Ref,
    TensorType,
)


class CycleError(ValueError):
    """A graph or an edit that has a node depend on itself."""


class Graph:
    """A model.

    Attributes:
      nodes: by number.
      inputs: numbers of the Input nodes, in the model's order.
      outputs: in the model's order.
      output_names: one for each.
      header: what else the model's file says; nothing here reads it.
    """

    __slots__ = (
        "_constants", "_hash", "_keys", "_next", "_order", "_users",
        "header", "inputs", "nodes", "output_names", "outputs",
    )  # fmt: skip

    def __init__(self, header: Any = None) -> None:
        """The empty graph."""
        self.nodes: Mapping[int, Node] = {}
        self.inputs: tuple[int, ...] = ()
        self.outputs: tuple[Ref, ...] = ()
        self.output_names: tuple[str, ...] = ()
        self.header = header
        self._users: dict[int, tuple[int, ...]] = {}
        self._keys: dict[Any, int] = {}
        self._constants: frozenset[int] = frozenset()
        self._next = 0
        self._order: tuple[int, ...] | None = None
        self._hash: int | None = None

    def edit(self) -> Edit:
        """Begins another graph."""
        return Edit(self)

    def type_of(self, ref: Ref) -> TensorType | None:
        """The type of an output; None for what is no tensor."""
        return self.nodes[ref.node].types[ref.output]

    def users(self, node: int) -> tuple[int, ...]:
        """Nodes that have an output of this one as an input, ascending."""
        return self._users.get(node, ())

    def is_constant(self, node: int) -> bool:
        """Whether it depends on constants alone: it will be computed when the model is written."""
        return node in self._constants

    def order(self) -> tuple[int, ...]:
        """The nodes that outputs depend on, each after its inputs; Input nodes are all there.

        The order depends on the structure alone, not on the numbers.

        Raises:
          CycleError: a node depends on itself.
        """
        if self._order is None:
            self._order = tuple(_ordered(self.nodes, self.inputs, self.outputs))
        return self._order

    def __hash__(self) -> int:
        """The same for graphs of the same structure, in every process, whatever the numbers."""
        if self._hash is None:
            found: dict[int, int] = {}
            for number in self.order():
                node = self.nodes[number]
                inputs = [
                    -7 if ref is None else hash((found[ref.node], ref.output))
                    for ref in node.inputs
                ]
                found[number] = hash((node.label, *inputs))
            self._hash = hash(tuple(hash((found[ref.node], ref.output)) for ref in self.outputs))
        return self._hash

    def __eq__(self, other: object) -> bool:
        """Whether the other graph has the same structure, as far as a hash of 64 bits tells."""
        return isinstance(other, Graph) and hash(self) == hash(other)

    def __repr__(self) -> str:
        return f"Graph of {len(self.nodes)} nodes, hash {hash(self):016x}"


class Edit:
    """Makes another graph of one; the one it began with stays as it is.

    edit = graph.edit()
    relu = edit.add("Relu", [x], (), [edit.type_of(x)])
    edit.replace({y: relu})
    graph, change = edit.finish()
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._nodes = dict(graph.nodes)
        self._users = dict(graph._users)
        self._keys = dict(graph._keys)
        self._constants = set(graph._constants)
        self._inputs = graph.inputs
        self._outputs = graph.outputs
        self._output_names = graph.output_names
        self._next = graph._next
        self._added: set[int] = set()
        self._removed: set[int] = set()
        self._rewired: set[int] = set()
        self._unused: list[int] = []
        self._may_have_cycles = False

    def type_of(self, ref: Ref) -> TensorType | None:
        """The type of an output; None for what is no tensor."""
        return self._nodes[ref.node].types[ref.output]

    def is_constant(self, node: int) -> bool:
        """Whether a node depends on constants alone."""
        return node in self._constants

    def node(self, number: int) -> Node:
        """The node of that number."""
        return self._nodes[number]

    def add(
        self,
        op: str,
        inputs: Sequence[Ref | None],
        attributes: Attributes,
        types: Sequence[TensorType | None],
        value: np.ndarray | None = None,
    ) -> Ref:
        """The first output of such a node: a new one, or the one that is there already."""
        node = Node(op, tuple(inputs), attributes, tuple(types), value)
        known = self._keys.get(node.key)
        if known is not None:
            return Ref(known)
        number = self._next
        self._next += 1
        self._nodes[number] = node
        self._keys[node.key] = number
        self._added.add(number)
        for used in node.used:
            self._add_user(used, number)
        if self._depends_on_constants(node):
            self._constants.add(number)
        if op == INPUT:
            self._inputs = (*self._inputs, number)
        return Ref(number)

    def add_constant(self, value: np.ndarray, dtype: str | None = None) -> Ref:
        """A Constant; `dtype` names a type that NumPy holds in another (bfloat16 in uint16)."""
        value = np.asarray(value)
        dtype = dtype or value.dtype.name
        digest = hashlib.sha256(f"{dtype}{value.shape}".encode())
        digest.update(_bytes(value))
        attributes = (("digest", digest.hexdigest()),)
        return self.add(CONSTANT, (), attributes, [TensorType(dtype, value.shape)], value)

    def set_outputs(self, outputs: Sequence[Ref], names: Sequence[str]) -> None:
        """Says what the model returns."""
        self._outputs, self._output_names = tuple(outputs), tuple(names)

    def replace(self, replacements: Mapping[Ref, Ref], built: Collection[int] = ()) -> None:
        """Whoever uses one output uses another one from now on.

        Args:
          replacements: new outputs by old ones.
          built: nodes that the new outputs are computed with. They keep what they use: Relu(x) can
            so be replaced by Relu(Relu(x)).

        Raises:
          ValueError: their types differ.
        """
        self._may_have_cycles |= len(replacements) > 1
        todo = list(replacements.items())
        moved: dict[Ref, Ref] = {}
        while todo:
            old, new = todo.pop()
            new = _last(moved, new)
            if old == new:
                continue
            if self.type_of(old) != self.type_of(new):
                raise ValueError(f"{self.type_of(old)} is replaced by {self.type_of(new)}")
            moved[old] = new
            self._outputs = tuple(new if ref == old else ref for ref in self._outputs)
            for user in self._users.get(old.node, ()):
                if user not in built:
                    todo += self._rewire(user, old, new)
            # Not removed yet: what is still to be put in place may be computed with it.
            self._unused.append(old.node)

    def finish(self, is_acyclic: bool = False) -> tuple[Graph, Change]:
        """The new graph, without what no output depends on, and what changed.

        Args:
          is_acyclic: whether it is known that no node depends on itself: then nobody looks.

        Raises:
          CycleError: a node depends on itself.
        """
        self._remove_unused([*self._unused, *self._added])
        graph = Graph(self._graph.header)
        graph.nodes, graph._users, graph._keys = self._nodes, self._users, self._keys
        graph.inputs, graph.outputs = self._inputs, self._outputs
        graph.output_names = self._output_names
        graph._constants = frozenset(self._constants)
        graph._next = self._next
        if self._may_have_cycles and not is_acyclic:
            graph.order()
        change = Change(
            tuple(sorted(self._added - self._removed)),
            tuple(sorted(self._removed - self._added)),
            tuple(sorted(self._rewired - self._removed - self._added)),
        )
        return graph, change

    def _rewire(self, user: int, old: Ref, new: Ref) -> list[tuple[Ref, Ref]]:
        """Gives a node another input; if it then equals one that is there, it will be replaced."""
        node = self._nodes[user]
        if old not in node.inputs:
            return []
        if self._keys.get(node.key) == user:
            del self._keys[node.key]
        inputs = tuple(new if ref == old else ref for ref in node.inputs)
        rewired = dataclasses.replace(node, inputs=inputs)
        self._nodes[user] = rewired
        self._rewired.add(user)
        if old.node not in rewired.used:
            self._users[old.node] = tuple(one for one in self._users[old.node] if one != user)
        self._add_user(new.node, user)
        twin = self._keys.setdefault(rewired.key, user)
        if twin != user:
            return [(Ref(user, k), Ref(twin, k)) for k in range(len(node.types))]
        self._spread_constancy([user])
        return []

    def _spread_constancy(self, numbers: list[int]) -> None:
        while numbers:
            number = numbers.pop()
            is_constant = self._depends_on_constants(self._nodes[number])
            if is_constant and number not in self._constants:
                self._constants.add(number)
                self._rewired.add(number)
                numbers += self._users.get(number, ())

    def _depends_on_constants(self, node: Node) -> bool:
        if node.op in (INPUT, OPAQUE):
            return False
        return node.op == CONSTANT or all(used in self._constants for used in node.used)

    def _add_user(self, used: int, user: int) -> None:
        users = self._users.get(used, ())
        if user not in users:
            self._users[used] = tuple(sorted((*users, user)))

    def _remove_unused(self, numbers: list[int]) -> None:
        returned = {ref.node for ref in self._outputs}
        while numbers:
            number = numbers.pop()
            node = self._nodes.get(number)
            if node is None or node.op == INPUT or number in returned or self._users.get(number):
                continue
            del self._nodes[number]
            self._users.pop(number, None)
            self._constants.discard(number)
            self._removed.add(number)
            if self._keys.get(node.key) == number:
                del self._keys[node.key]
            for used in node.used:
                self._users[used] = tuple(one for one in self._users[used] if one != number)
                numbers.append(used)


def _last(moved: Mapping[Ref, Ref], ref: Ref) -> Ref:
    while ref in moved:
        ref = moved[ref]
    return ref


def _bytes(value: np.ndarray) -> Any:
    if value.dtype == object:
        return repr(value.tolist()).encode()
    return np.ascontiguousarray(value).reshape(-1).view(np.uint8)


def _ordered(
    nodes: Mapping[int, Node], inputs: Iterable[int], outputs: Iterable[Ref]
) -> Iterator[int]:
    done = set(inputs)
    yield from inputs
    # A node is met twice: on the way down, and when all of its inputs are done.
    open_nodes: set[int] = set()
    todo = [ref.node for ref in reversed(tuple(outputs))]
    while todo:
        number = todo[-1]
        if number in done:
            todo.pop()
        elif number in open_nodes:
            todo.pop()
            open_nodes.discard(number)
            done.add(number)
            yield number
        else:
            open_nodes.add(number)
            for used in reversed(nodes[number].used):
                if used in open_nodes:
                    raise CycleError(f"node {used} ({nodes[used].op}) depends on itself")
                if used not in done:
                    todo.append(used)
