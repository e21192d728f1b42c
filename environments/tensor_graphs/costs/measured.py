"""Measure what operators cost on this machine, and keep the results on disk.

The cost of operators depends on what the backend makes of them:

  - Operators that the backend may fuse are looked at together, as a group (see `grouping`).
  - The backend optimises the group, and each resulting kernel is measured by itself (see
    `kernels`). If a backend does not show its kernels, the group is measured as a whole.
  - A measurement runs several copies one after another. They share the overhead of calling a model.
    Each copy has its own weights and inputs, so that the caches hold them no more than in a large
    model.
  - The last operator of a group gets the cost of the group; the others cost 0.

Sizes that a model leaves open are those of a `Sizes`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence

import onnx

from environments.errors import UserError
from environments.tensor_graphs.costs.analytic import VIEWS, AnalyticObjective, input_types
from environments.tensor_graphs.costs.grouping import Groups, changed
from environments.tensor_graphs.costs.kernels import Kernel, kernels_of
from environments.tensor_graphs.costs.stopwatch import Stopwatch
from environments.tensor_graphs.costs.table import CostTable
from environments.tensor_graphs.execution.backends import Arrays, Backend
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.execution.sizes import NONE_OPEN, Sizes
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, OPAQUE, Change, Node, Ref, TensorType
from environments.tensor_graphs.onnx_io import part_model
from environments.tensor_graphs.operators.building import add
from environments.tensor_graphs.operators.table import OPERATORS, bytes_moved

_MOST_GRAPHS = 4
_MOST_COPIES = 8
# Copies together take up about this much memory, more than the caches hold, unless that would need
# more than `_MOST_COPIES`.
_SPREAD_BYTES = 48 << 20
_COMMUTATIVE = frozenset(name for name, operator in OPERATORS.items() if operator.commutative)


class _LateError(Exception):
    """There is no time left to measure."""


class MeasuredObjective:
    """The measured costs of operators on this machine.

    Attributes:
      num_measured: number of kernels or groups that this objective has measured itself.
      num_estimated: number of operators or groups whose cost was estimated by a formula, because
        the backend could not run them or the time for measuring was over.
      deadline_s: from this time of `time.monotonic` on, nothing more is measured.
    """

    def __init__(
        self, backend: Backend, table: CostTable, sizes: Sizes = NONE_OPEN, fused: bool = True
    ) -> None:
        """Make the objective; nothing is measured before a cost is asked for.

        With `fused`, operators that the backend may fuse are measured together. Without it, the
        cost of a node depends only on the node and the types of its inputs.
        """
        self.table = table
        self.sizes = sizes
        self.num_measured = self.num_estimated = 0
        self.deadline_s = math.inf
        self._backend = backend
        self._fused = fused and backend.fuses
        self._formula = _Formula(sizes)
        self._stopwatch = Stopwatch(backend, table)
        self._groups: deque[Groups] = deque(maxlen=_MOST_GRAPHS)
        self._costs_ms: dict[tuple, float] = {}

    @property
    def alone(self) -> MeasuredObjective:
        """An objective with the same table, but without groups: it measures each node by itself."""
        objective = MeasuredObjective(self._backend, self.table, self.sizes, fused=False)
        objective.deadline_s = self.deadline_s
        return objective

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        """Return the cost of a node in ms.

        The last node of a group has the cost of the whole group; its other nodes cost 0.
        """
        members = self._members(graph, number)
        return self._cost_ms(graph, members) if members else 0.0

    def _members(self, graph: Graph, number: int) -> tuple[int, ...]:
        """Return the group that a node leads; empty if it costs nothing or another node leads."""
        if graph.nodes[number].op == INPUT or graph.is_constant(number):
            return ()
        if not self._fused:
            return (number,)
        groups = self._groups_of(graph)
        return groups.members(number) if groups.leader(number) == number else ()

    def affected(self, before: Graph, after: Graph, change: Change) -> set[int]:
        """Return the nodes of the graph after an edit that it added, or whose cost it may change.

        All nodes that it added are in that graph.
        """
        if not self._fused:
            users = (user for number in change.rewired for user in after.users(number))
            return {*change.added, *change.rewired, *users}
        return changed(self._groups_of(before), self._groups_of(after), change)

    def _groups_of(self, graph: Graph) -> Groups:
        # A search applies many matches to one graph, so the graphs used last keep their groups.
        groups = next((groups for groups in self._groups if groups.graph is graph), None)
        if groups is None:
            groups = Groups(graph)
        else:
            self._groups.remove(groups)
        self._groups.append(groups)
        return groups

    def _cost_ms(self, graph: Graph, members: tuple[int, ...]) -> float:
        if len(members) == 1 and graph.nodes[members[0]].op in VIEWS:
            return self._start_ms
        key = _key(graph, members)
        if key not in self._costs_ms:
            cost_ms = self._look_up(graph, members, key)
            if cost_ms is None:
                self.num_estimated += 1
                cost_ms = self._formula.cost_ms(graph, members)
            else:
                self._formula.learn(graph, members, cost_ms)
            self._costs_ms[key] = cost_ms
        return self._costs_ms[key]

    @functools.cached_property
    def _start_ms(self) -> float:
        """The time to start an operator: that of a Relu of one element.

        It is the cost of a Reshape and the like too, which measured alone would copy their input.
        """
        edit = Graph().edit()
        x = edit.add(INPUT, [], (("name", "x"),), [TensorType("float32", (1,))])
        (y,) = add(edit, "Relu", x)
        edit.set_outputs([y], ["y"])
        graph, _ = edit.finish()
        cost_ms = self._look_up(graph, (y.node,), ())
        return self._formula.cost_ms(graph, (y.node,)) if cost_ms is None else cost_ms

    def _look_up(self, graph: Graph, members: tuple[int, ...], key: tuple) -> float | None:
        """Return the measured cost of a group in ms; None if it cannot be measured any more."""
        names = " ".join(_open_sizes(key))
        sizes = sorted(pair for pair in self.sizes.symbols if pair[0] in names)
        place = _digest(repr((key, getattr(graph.header, "opset", 0), sizes)))
        cost_ms = self.table.get(place)
        if cost_ms is None and not self._is_late:
            measured_ms = self._measure(graph, members)
            if measured_ms is not None:
                cost_ms = self.table.put(place, measured_ms, _description(graph, members))
        return cost_ms

    @property
    def _is_late(self) -> bool:
        return time.monotonic() >= self.deadline_s

    def _measure(self, graph: Graph, members: tuple[int, ...]) -> float | None:
        """Measure the cost of some nodes in ms; return None where that is not possible.

        The backend cannot run them, or the time is over before all kernels are measured.
        """
        for measure_ms in (self._sum_of_kernels_ms, self._whole_ms):
            if self._is_late:
                return None
            with contextlib.suppress(UserError, ValueError, _LateError):
                cost_ms = measure_ms(graph, members)
                if cost_ms is not None:
                    return cost_ms
        return None

    def _feeds(self, part: onnx.ModelProto, types: Mapping[str, TensorType]) -> Arrays:
        shapes = tuple(
            (name, tuple(max(1, self.sizes.value(size)) for size in kind.shape))
            for name, kind in types.items()
            if kind.shape is not None
        )
        return random_inputs(part, sizes=Sizes(shapes=shapes))

    def _sum_of_kernels_ms(self, graph: Graph, members: tuple[int, ...]) -> float | None:
        """Measure each kernel by itself; return None if the backend does not show its kernels."""
        part, types = part_model(graph, members)
        rewritten = self._backend.rewritten(part)
        if rewritten is None:
            return None
        optimised, plain = rewritten
        feeds = self._feeds(part, types)
        kernels = kernels_of(optimised, feeds, plain)
        return sum(self._kernel_ms(kernel, plain) for kernel in kernels)

    def _kernel_ms(self, kernel: Kernel, plain: Backend) -> float:
        if kernel.is_view:
            return self._start_ms
        digest = _digest(kernel.key)
        cost_ms = self.table.get(digest)
        if cost_ms is None:
            if self._is_late:
                raise _LateError
            copies = _num_copies(kernel.size_bytes)
            model, feeds = kernel.model(copies)
            self.num_measured += 1
            measured_ms = self._time_ms(plain, model, feeds) / copies
            cost_ms = self.table.put(digest, measured_ms, kernel.description)
        return cost_ms

    def _whole_ms(self, graph: Graph, members: tuple[int, ...]) -> float:
        """Measure some nodes as one model, and return the time in ms of one copy."""
        nodes = [graph.nodes[number] for number in members]
        copies = _num_copies(sum(bytes_moved(input_types(graph, n), n.types) for n in nodes))
        model, types = part_model(graph, members, copies)
        self.num_measured += 1
        return self._time_ms(self._backend, model, self._feeds(model, types)) / copies

    def _time_ms(self, backend: Backend, model: onnx.ModelProto, feeds: Arrays) -> float:
        return self._stopwatch.measure_ms(backend.open(model).timer(feeds, bound=True))


class _Formula:
    """Estimates what was not measured: the analytic cost, scaled as that of similar operators was.

    The analytic costs are those of another machine. Unless they are scaled, an operator that is
    estimated could not be compared with one that was measured.
    """

    def __init__(self, sizes: Sizes) -> None:
        self._analytic = AnalyticObjective(sizes=sizes)
        # Measured and analytic ms in all, by the last operator of the group; "" for all groups.
        self._sums: dict[str, tuple[float, float]] = {}
        self._scales: dict[str, float] = {}

    def learn(self, graph: Graph, members: Sequence[int], cost_ms: float) -> None:
        """Remember how the measured cost of a group compares with the analytic one."""
        plain_ms = self._plain_ms(graph, members)
        for op in (graph.nodes[members[-1]].op, ""):
            measured_ms, analytic_ms = self._sums.get(op, (0.0, 0.0))
            self._sums[op] = measured_ms + cost_ms, analytic_ms + plain_ms

    def cost_ms(self, graph: Graph, members: Sequence[int]) -> float:
        """Estimate the cost of a group in ms."""
        op = graph.nodes[members[-1]].op
        # Estimates are compared with earlier ones, so an operator keeps the scale it had first.
        if op not in self._scales:
            measured_ms, analytic_ms = self._sums.get(op) or self._sums.get("", (1.0, 1.0))
            is_known = analytic_ms and measured_ms
            self._scales[op] = measured_ms / analytic_ms if is_known else 1.0
        return self._scales[op] * self._plain_ms(graph, members)

    def _plain_ms(self, graph: Graph, members: Sequence[int]) -> float:
        return sum(self._analytic.node_cost_ms(graph, member) for member in members)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _num_copies(size_bytes: int) -> int:
    """Return how many copies to run: one if it is too large for the caches, more if it is small."""
    return max(1, min(_MOST_COPIES, _SPREAD_BYTES // max(1, size_bytes)))


def _key(graph: Graph, members: Sequence[int]) -> tuple:
    """Return what the cost of nodes depends on: operators, attributes, types, and connections."""
    names: dict[Ref | None, tuple | None] = {None: None}
    parts = []
    for place, number in enumerate(members):
        node = graph.nodes[number]
        refs = _sorted_inputs(graph, node)
        for ref in refs:
            if ref is not None and ref not in names:
                names[ref] = _outer(graph, ref, len(names) - 1)
        # The output types follow from the input types and the attributes, except those of Opaque.
        types = node.types if len(node.types) > 1 or node.op == OPAQUE else ()
        parts.append((node.op, node.attributes, tuple(names[ref] for ref in refs), types))
        if len(members) > 1:
            names.update((Ref(number, k), (place, k)) for k in range(len(node.types)))
    return tuple(parts)


def _sorted_inputs(graph: Graph, node: Node) -> tuple[Ref | None, ...]:
    """Return a node's inputs, a constant second if the operator is commutative.

    Both orders then have the same key, and are measured once.
    """
    first = node.inputs[0] if node.inputs else None
    is_commutative = len(node.inputs) == 2 and node.op in _COMMUTATIVE
    if is_commutative and first is not None and graph.is_constant(first.node):
        return node.inputs[::-1]
    return node.inputs


def _outer(graph: Graph, ref: Ref, place: int) -> tuple:
    tensor = graph.type_of(ref)
    if not graph.is_constant(ref.node):
        return place, tensor
    node = graph.nodes[ref.node]
    # The value of a constant with one element may decide what the backend makes of the operator.
    is_number = node.value is not None and node.value.size == 1
    return place, tensor, node.attributes if is_number else "constant"


def _open_sizes(key: tuple) -> list[str]:
    """Return the sizes that are not known: the cost depends on the numbers that stand for them."""
    return [
        size
        for _, _, inputs, types in key
        for tensor in (*types, *(source[1] for source in inputs if source is not None))
        if isinstance(tensor, TensorType)
        for size in tensor.shape or ()
        if isinstance(size, str)
    ]


def _description(graph: Graph, members: Sequence[int]) -> str:
    texts = []
    for node in (graph.nodes[number] for number in members):
        types = input_types(graph, node)
        shapes = ("?" if kind is None else f"{list(kind.shape or ())}" for kind in types)
        texts.append(f"{node.op}({', '.join(shapes)})")
    return "; ".join(texts)
