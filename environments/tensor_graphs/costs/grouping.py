"""Divide a graph into groups of nodes that onnxruntime may fuse into one kernel.

The costs of single operators do not tell what onnxruntime makes of several together. With version
1.31 on a CPU, for tensors of rank 3, an Add after a matrix product is free, but the same Add before
a LayerNormalization makes that much slower. Therefore groups of nodes are measured, and onnxruntime
itself decides how to fuse each group. A group need not be exact. It must contain all nodes that
might be fused, and it should be small, so that equal groups occur often and are measured once.

A node joins the group of its users if all of them are in the same group and `_JOINS` allows it. The
last node of a group is its leader. A group thus depends only on a few neighbouring nodes, and
`changed` finds the nodes whose group an edit has changed.
"""

from __future__ import annotations

from collections.abc import Iterable

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, OPAQUE, Change, Node

_ACTIVATIONS = frozenset(
    {"Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus",
     "Softsign", "Tanh", "ThresholdedRelu"}
)  # fmt: skip
# Pairs (operator, user): mostly parts of layer normalisation and of Gelu, where a model spells them
# out as single operators. An Add that computes what they work on joins them too.
_PIECES = frozenset(
    {("Add", "LayerNormalization"), ("Add", "ReduceMean"), ("Add", "Sub"), ("ReduceMean", "Sub"),
     ("Sub", "Pow"), ("Sub", "Mul"), ("Sub", "Div"), ("Pow", "ReduceMean"), ("Mul", "ReduceMean"),
     ("ReduceMean", "Add"), ("Add", "Sqrt"), ("Sqrt", "Div"), ("Sqrt", "Reciprocal"),
     ("Reciprocal", "Mul"), ("Div", "Mul"), ("Mul", "Add"), ("Div", "Erf"), ("Mul", "Erf"),
     ("Erf", "Add"), ("Add", "Mul"), ("Add", "Div"), ("Mul", "Mul"), ("Mul", "Tanh"),
     ("Tanh", "Add"), ("Sigmoid", "Mul"), ("Add", "Clip"), ("Add", "Relu"), ("Add", "Gelu"),
     ("Reshape", "Reshape"), ("Transpose", "Transpose"), ("Add", "Add")}
)  # fmt: skip
_JOINS = frozenset(
    {
        *_PIECES,
        *(("BatchNormalization", after) for after in _ACTIVATIONS | {"Add"}),
        *(("Conv", after) for after in _ACTIVATIONS | {"Add", "BatchNormalization", "Mul"}),
        *(("Gemm", after) for after in _ACTIVATIONS),
        *(("MatMul", after) for after in ("Add", "BatchNormalization", "Div", "Mul")),
        *((before, "MatMul") for before in ("Div", "Mul", "Transpose")),
        ("Transpose", "Gemm"),
    }
)
_BEFORE_PRODUCTS = frozenset({"Gemm", "MatMul", "Reshape", "Split", "Transpose"})
_BEFORE_CONSTANTS = frozenset({"Erf", "Mul", "ReduceMean", "Tanh"})
_MOST_USERS = 3
_MOST_STEPS = 12


class Groups:
    """The groups of one graph, worked out when they are asked for."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._returned = {ref.node for ref in graph.outputs}
        self._leaders: dict[int, tuple[int, int]] = {}

    def leader(self, number: int) -> int:
        """Return the last node of a node's group."""
        return self._leader(number)[0]

    def members(self, leader: int) -> tuple[int, ...]:
        """Return the nodes of a group, each after its inputs."""
        members: dict[int, None] = {}
        self._collect(leader, leader, members)
        return tuple(members)

    def around(self, numbers: Iterable[int]) -> set[int]:
        """Return all nodes that are in a group with a computed one of the given nodes."""
        leaders = {
            self.leader(number)
            for number in numbers
            if number in self.graph.nodes and self._is_computed(number)
        }
        return {member for leader in leaders for member in self.members(leader)}

    def _leader(self, number: int) -> tuple[int, int]:
        """Return the last node of a node's group, and the largest number of edges to it."""
        if number not in self._leaders:
            self._leaders[number] = self._find(number)
        return self._leaders[number]

    def _find(self, number: int) -> tuple[int, int]:
        graph = self.graph
        node, users = graph.nodes[number], graph.users(number)
        alone = number, 0
        if not users or len(users) > _MOST_USERS or number in self._returned or node.op == OPAQUE:
            return alone
        for user in users:
            later = graph.nodes[user]
            if (node.op, later.op) not in _JOINS or not self._may_join(node, later):
                return alone
        leaders = [self._leader(user) for user in users]
        steps = 1 + max(steps for _, steps in leaders)
        if steps > _MOST_STEPS or any(leader != leaders[0][0] for leader, _ in leaders):
            return alone
        return leaders[0][0], steps

    def _is_computed(self, number: int) -> bool:
        return not self.graph.is_constant(number) and self.graph.nodes[number].op != INPUT

    def _collect(self, number: int, leader: int, members: dict[int, None]) -> None:
        for used in self.graph.nodes[number].used:
            if used not in members and self._is_computed(used) and self.leader(used) == leader:
                self._collect(used, leader, members)
        members[number] = None

    def _may_join(self, node: Node, user: Node) -> bool:
        graph = self.graph
        if user.op == "MatMul" and node.op in ("Mul", "Div"):
            # A scale may be fused into the product after it. If the scale may end a group of its
            # own, it stays there, since that group may be long.
            return self._is_scaled(node) and all(
                graph.is_constant(used) or graph.nodes[used].op in _BEFORE_PRODUCTS
                for used in node.used
            )
        if node.op == "MatMul":
            # A product of two matrices and any Add after it may become one Gemm. Other products
            # are fused only with a constant bias or scale, or a BatchNormalization.
            is_sum = user.op == "Add" and self._has_rank(node, 2)
            return is_sum or self._has_constant(user) or user.op == "BatchNormalization"
        if node.op == user.op == "Add":
            # A bias of images (rank 4) may be fused into the convolution along with the next Add.
            return self._has_constant(node) and self._has_rank(node, 4)
        if user.op == "Add" and node.op in _BEFORE_CONSTANTS:
            # Within normalisation or Gelu a constant is added. A sum of two computed values begins
            # another group.
            return self._has_constant(user)
        return True

    def _has_constant(self, node: Node) -> bool:
        return any(self.graph.is_constant(used) for used in node.used)

    def _is_scaled(self, node: Node) -> bool:
        """Return whether an input is a constant of one element."""
        constants = (ref for ref in node.inputs if ref and self.graph.is_constant(ref.node))
        tensors = (self.graph.type_of(ref) for ref in constants)
        return any(
            tensor is not None and tensor.shape is not None and set(tensor.shape) <= {1}
            for tensor in tensors
        )

    def _has_rank(self, node: Node, rank: int) -> bool:
        return all(kind is not None and len(kind.shape or ()) == rank for kind in node.types)


def changed(before: Groups, after: Groups, change: Change) -> set[int]:
    """Return the nodes of the graph after an edit whose group the edit may have changed."""
    old = {*change.removed, *change.rewired}
    new = {*change.added, *change.rewired}
    # A node that has lost or gained a user may join another group now, or become a leader.
    used = {used for number in old for used in before.graph.nodes[number].used}
    used.update(used for number in new for used in after.graph.nodes[number].used)
    # A node that the model returns joins no users, so these matter where they differ.
    used.update(ref.node for ref in {*before.graph.outputs} ^ {*after.graph.outputs})
    touched = before.around(old | used) | after.around(new | used)
    return {number for number in touched if number in after.graph.nodes}
