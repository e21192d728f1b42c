"""Nodes that onnxruntime makes one kernel of, as far as it matters for what they cost.

Single operators say nothing about what onnxruntime makes of them together: an Add after a matrix
product is free, and the same Add before a LayerNormalization makes it ten times slower (of version
1.31, on a CPU, where both are of rank 3). So nodes are measured in groups, and onnxruntime itself
decides what becomes of each. Who is in a group need not be exact, then: a group has to contain what
might be fused, and should be small, for the same groups have to come again and again.

A node joins those that use it, if they are in one group, and if `_JOINS` has it so. The last node
of a group leads it. Groups therefore depend on a few neighbours only, and `changed` tells which
nodes an edit has put into other groups.
"""

from __future__ import annotations

from collections.abc import Iterable

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, OPAQUE, Change, Node, Ref

_ACTIVATIONS = frozenset(
    {"Clip", "Elu", "HardSigmoid", "HardSwish", "LeakyRelu", "Relu", "Selu", "Sigmoid", "Softplus",
     "Softsign", "Tanh", "ThresholdedRelu"}
)  # fmt: skip
# Parts of layer normalisation and of Gelu where a model has them in pieces; Gelu's first Mul or Div
# and normalisation's first Sub are joined by what they normalise.
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
    """The groups of one graph.

    Attributes:
      graph: that they are of.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self._returned = {ref.node for ref in graph.outputs}
        self._leaders: dict[int, tuple[int, int]] = {}

    def leader(self, number: int) -> int:
        """The last node of a node's group."""
        return self._leader(number)[0]

    def members(self, leader: int) -> tuple[int, ...]:
        """The nodes of a group, each after its inputs."""
        found: dict[int, None] = {}
        self._collect(leader, leader, found)
        return tuple(found)

    def around(self, numbers: Iterable[int]) -> set[int]:
        """All nodes of the groups that nodes are in."""
        leaders = {
            self.leader(number)
            for number in numbers
            if number in self.graph.nodes and self._is_computed(number)
        }
        return {member for leader in leaders for member in self.members(leader)}

    def _leader(self, number: int) -> tuple[int, int]:
        """The last node of a node's group, and how many steps it is to there."""
        found = self._leaders.get(number)
        if found is None:
            found = self._leaders[number] = self._find(number)
        return found

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
        found = [self._leader(user) for user in users]
        steps = 1 + max(steps for _, steps in found)
        if steps > _MOST_STEPS or any(leader != found[0][0] for leader, _ in found):
            return alone
        return found[0][0], steps

    def _is_computed(self, number: int) -> bool:
        return not self.graph.is_constant(number) and self.graph.nodes[number].op != INPUT

    def _collect(self, number: int, leader: int, found: dict[int, None]) -> None:
        for used in self.graph.nodes[number].used:
            if used not in found and self._is_computed(used) and self.leader(used) == leader:
                self._collect(used, leader, found)
        found[number] = None

    def _may_join(self, node: Node, user: Node) -> bool:
        graph = self.graph
        if user.op == "MatMul" and node.op in ("Mul", "Div"):
            # A scale before a product, and not the end of another group: that may be long.
            return self._is_scaled(node) and all(
                graph.is_constant(used) or graph.nodes[used].op in _BEFORE_PRODUCTS
                for used in node.used
            )
        if node.op == "MatMul":
            # Of matrices a sum with whatever else is a product with a bias.
            is_sum = user.op == "Add" and self._has_rank(node, 2)
            return is_sum or self._has_constant(user) or user.op == "BatchNormalization"
        if node.op == user.op == "Add":
            # A bias of images, which goes into the convolution with what is added to that.
            return self._has_constant(node) and self._has_rank(node, 4)
        if user.op == "Add" and node.op in _BEFORE_CONSTANTS:
            # A step of a normalisation or of Gelu; a sum of two results begins another group.
            return self._has_constant(user)
        return True

    def _has_constant(self, node: Node) -> bool:
        return any(self.graph.is_constant(used) for used in node.used)

    def _is_scaled(self, node: Node) -> bool:
        return any(
            ref is not None and self.graph.is_constant(ref.node) and self._is_scalar(ref)
            for ref in node.inputs
        )

    def _has_rank(self, node: Node, rank: int) -> bool:
        return all(one is not None and len(one.shape or ()) == rank for one in node.types)

    def _is_scalar(self, ref: Ref) -> bool:
        tensor = self.graph.type_of(ref)
        if tensor is None or tensor.shape is None:
            return False
        return all(size == 1 for size in tensor.shape)


def changed(before: Groups, after: Groups, change: Change) -> set[int]:
    """Nodes of the new graph that are in another group than before, or in one that changed."""
    old = {*change.removed, *change.rewired}
    new = {*change.added, *change.rewired}
    # Whoever lost or won a user may join a group now, or lead one.
    used = {used for number in old for used in before.graph.nodes[number].used}
    used.update(used for number in new for used in after.graph.nodes[number].used)
    # What is returned joins nobody.
    used.update(ref.node for ref in {*before.graph.outputs} ^ {*after.graph.outputs})
    touched = before.around(old | used) | after.around(new | used)
    return {number for number in touched if number in after.graph.nodes}
