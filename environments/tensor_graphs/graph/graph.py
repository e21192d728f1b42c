"""Immutable graphs of tensor operations.

A graph is a set of numbered nodes. A node's operator and attributes say what it computes from its
inputs; `operators` defines their meaning. A node has one or more outputs, each with a type, and
`Ref(node, output)` refers to one of them. Three operators are special:

  Input      an input of the model, or of a body inside a node. Attributes: name, and for a body's
             input that body (see `onnx_io.bodies`).
  Constant   an array, `Node.value`, that never changes. Attribute: a digest of the array.
  Opaque     any operator that `operators` does not know, kept as it is in the file. Attributes: see
             `onnx_io.opaque`.

Equal nodes are one node: a graph never contains two nodes with the same operator, attributes and
inputs. So common subexpressions are always shared.

A graph never changes. `Graph.edit` begins an `Edit`, which makes another graph; all nodes that the
edit leaves alone keep their numbers. The `Change` that it returns lists the others, so that what
is known about a graph (its matches, its cost) can be updated instead of computed again.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import (
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
    """A node of a graph would depend on itself."""


class Graph:
    """An immutable graph; see the module's docstring.

    Graphs are equal, and have equal hashes, if they have the same structure, whatever the numbers
    of their nodes.

    Attributes:
      nodes: by number.
      inputs: numbers of the model's own Input nodes, in its order.
      outputs: the values that the model returns, in its order.
      output_names: a name for each of these.
      header: everything else in the model's file (`onnx_io.ModelHeader`); not used here.
    """

    __slots__ = (
        "_constants", "_dependencies", "_hash", "_keys", "_next", "_order", "_users",
        "header", "inputs", "nodes", "output_names", "outputs",
    )  # fmt: skip

    def __init__(self, header: Any = None) -> None:
        """Make an empty graph."""
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
        self._dependencies: dict[int, int] = {}

    def edit(self) -> Edit:
        """Begin an edit, which makes another graph from this one."""
        return Edit(self)

    def type_of(self, ref: Ref) -> TensorType | None:
        """Return the type of a node's output; None if it is no tensor."""
        return self.nodes[ref.node].types[ref.output]

    def users(self, node: int) -> tuple[int, ...]:
        """Return the nodes that use an output of this one, in ascending order."""
        return self._users.get(node, ())

    def is_constant(self, node: int) -> bool:
        """Return whether a node depends on constants alone, and is computed on writing a model."""
        return node in self._constants

    def dependencies(self, node: int) -> int:
        """Return what a node depends on, itself included: bit k is set for node k.

        What it depends on must hold no cycle. The sets of all nodes below are kept, so that asking
        again costs nothing.
        """
        masks = self._dependencies
        todo = [node]
        while todo:
            number = todo.pop()
            if number in masks:
                continue
            below = {ref.node for ref in self.nodes[number].inputs if ref is not None}
            if missing := [used for used in below if used not in masks]:
                todo += (number, *missing)
                continue
            mask = 1 << number
            for used in below:
                mask |= masks[used]
            masks[number] = mask
        return masks[node]

    def order(self) -> tuple[int, ...]:
        """Return what outputs depend on, and the model's inputs: each node after its own inputs.

        Raises:
          CycleError: a node depends on itself.
        """
        if self._order is None:
            self._order = tuple(ordered(self.nodes, self.outputs, first=self.inputs))
        return self._order

    def __hash__(self) -> int:
        """Hash the structure; the hash is the same in every process."""
        if self._hash is None:
            hashes: dict[int, int] = {}
            for number in self.order():
                node = self.nodes[number]
                inputs = [
                    -7 if ref is None else hash((hashes[ref.node], ref.output))
                    for ref in node.inputs
                ]
                hashes[number] = hash((node.label, *inputs))
            self._hash = hash(tuple(hash((hashes[ref.node], ref.output)) for ref in self.outputs))
        return self._hash

    def __eq__(self, value: object) -> bool:
        """Whether the other graph has the same 64-bit hash, and so the same structure."""
        return isinstance(value, Graph) and hash(self) == hash(value)


class Edit:
    """Makes another graph of a given one, which does not change.

    edit = graph.edit()
    relu = edit.add("Relu", [x], (), [edit.type_of(x)])
    edit.replace({y: relu})
    graph, change = edit.finish()

    `nodes` are those so far, by number.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self.nodes: dict[int, Node] = dict(graph.nodes)
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
        """Return the type of a node's output; None if it is no tensor."""
        return self.nodes[ref.node].types[ref.output]

    def is_constant(self, node: int) -> bool:
        """Whether a node depends on constants alone."""
        return node in self._constants

    def add(
        self,
        op: str,
        inputs: Sequence[Ref | None],
        attributes: Attributes,
        types: Sequence[TensorType | None],
        value: np.ndarray | None = None,
    ) -> Ref:
        """Add a node unless there is an equal one; return the first output of either."""
        node = Node(op, tuple(inputs), attributes, tuple(types), value)
        twin = self._keys.get(node.key)
        if twin is not None:
            return Ref(twin)
        number = self._next
        self._next += 1
        self.nodes[number] = node
        self._keys[node.key] = number
        self._added.add(number)
        for used in node.used:
            self._add_user(used, number)
        if self._depends_on_constants(node):
            self._constants.add(number)
        if node.is_model_input:
            self._inputs = (*self._inputs, number)
        return Ref(number)

    def add_constant(self, value: np.ndarray, dtype: str | None = None) -> Ref:
        """Add a Constant; `dtype` is its element type, if that is not the array's own.

        bfloat16 is held in uint16.
        """
        value = np.asarray(value)
        dtype = dtype or value.dtype.name
        digest = hashlib.sha256(f"{dtype}{value.shape}".encode())
        if value.dtype == object:
            digest.update(repr(value.tolist()).encode())
        else:
            digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
        attributes = (("digest", digest.hexdigest()),)
        return self.add(CONSTANT, (), attributes, [TensorType(dtype, value.shape)], value)

    def set_outputs(self, outputs: Sequence[Ref], names: Sequence[str]) -> None:
        """Set the values that the model returns, and their names."""
        self._outputs, self._output_names = tuple(outputs), tuple(names)

    def replace(self, replacements: Mapping[Ref, Ref], built: Collection[int] = ()) -> None:
        """Replace values by others, wherever they are used.

        The nodes in `built`, which compute the new values, go on using the old ones, so that
        Relu(x) can be replaced by Relu(Relu(x)).

        Raises:
          ValueError: the types of an old and a new value differ.
        """
        self._may_have_cycles |= len(replacements) > 1
        todo = list(replacements.items())
        moved: dict[Ref, Ref] = {}
        while todo:
            old, new = todo.pop()
            while new in moved:
                new = moved[new]
            if old == new:
                continue
            if self.type_of(old) != self.type_of(new):
                raise ValueError(f"{self.type_of(old)} is replaced by {self.type_of(new)}")
            moved[old] = new
            self._outputs = tuple(new if ref == old else ref for ref in self._outputs)
            for user in self._users.get(old.node, ()):
                if user not in built:
                    todo += self._rewire(user, old, new)
            # The old node is removed at the end: later replacements may still use it.
            self._unused.append(old.node)

    def finish(self, is_acyclic: bool = False) -> tuple[Graph, Change]:
        """Return the new graph, without the nodes that no output depends on, and what changed.

        Raises:
          CycleError: a node depends on itself; with `is_acyclic`, the caller knows that none does.
        """
        self._remove_unused([*self._unused, *self._added])
        graph = Graph(self._graph.header)
        graph.nodes, graph._users, graph._keys = self.nodes, self._users, self._keys
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
        """Replace an input of a node; return the replacements that follow from it.

        If the node now equals another one, they are pairs of its outputs and those of the other.
        """
        node = self.nodes[user]
        if old not in node.inputs:
            return []
        if self._keys.get(node.key) == user:
            del self._keys[node.key]
        inputs = tuple(new if ref == old else ref for ref in node.inputs)
        rewired = dataclasses.replace(node, inputs=inputs)
        self.nodes[user] = rewired
        self._rewired.add(user)
        if old.node not in rewired.used:
            self._users[old.node] = tuple(
                number for number in self._users[old.node] if number != user
            )
        self._add_user(new.node, user)
        twin = self._keys.setdefault(rewired.key, user)
        if twin != user:
            return [(Ref(user, k), Ref(twin, k)) for k in range(len(node.types))]
        self._spread_constancy([user])
        return []

    def _spread_constancy(self, numbers: list[int]) -> None:
        while numbers:
            number = numbers.pop()
            is_constant = self._depends_on_constants(self.nodes[number])
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
            node = self.nodes.get(number)
            if node is None or node.is_model_input or number in returned:
                continue
            if self._users.get(number):
                continue
            del self.nodes[number]
            self._users.pop(number, None)
            self._constants.discard(number)
            self._removed.add(number)
            if self._keys.get(node.key) == number:
                del self._keys[node.key]
            for used in node.used:
                self._users[used] = tuple(user for user in self._users[used] if user != number)
                numbers.append(used)


def ordered(
    nodes: Mapping[int, Node],
    outputs: Iterable[Ref],
    needed: Callable[[Node], Sequence[int]] = lambda node: node.used,
    first: Iterable[int] = (),
) -> Iterator[int]:
    """Yield what outputs depend on, each node after those that it needs, which begin with `first`.

    Raises:
      CycleError: a node depends on itself.
    """
    done = set(first)
    yield from first
    # Depth-first: a node is met before its inputs, and again when all of them are done.
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
            for used in reversed(needed(nodes[number])):
                if used in open_nodes:
                    raise CycleError(f"node {used} ({nodes[used].op}) depends on itself")
                if used not in done:
                    todo.append(used)
