"""The features of nodes, edges and matches in observations of a graph.

Sizes that a model leaves open are those that its costs are estimated at; others count as 1.
Numbers that span orders of magnitude are given as logarithms: lg(x) stands for log1p(x) / 10 below.

Features of a node (`NODE_FEATURES`):

  kind                 index of its operator in KINDS; a node that is constant has that of Constant
  is_constant          whether it depends on constants alone, and so costs nothing at run time
  is_output            whether the model returns one of its outputs
  num_users            lg(number of nodes that use it)
  constant_input_K     whether its input K = 0, 1, 2 is constant
  cost_share           log1p(1000 c / s) / 7; c is its cost, s the cost of the model's first graph;
                       both by the roofline of `analytic` where the setting `shown_costs` says so
  log_cost             lg(cost in microseconds)
  rank                 rank of the first output / 5
  size_K               lg(size of axis K = 0 … 4 of the first output)
  elements             lg(number of elements of the first output)
  is_static            whether the first output's rank is known, and so all its sizes
  is_float, itemsize   whether its elements are floating-point; lg(bytes of one element)
  num_outputs          lg(number of outputs)
  flops, bytes         lg(floating-point operations), lg(bytes read and written)
  kernel_K, stride_K   lg(size of the kernel), lg(stride) along axis K = 0, 1 of an image, or 0
  pads, dilation       lg(sum of the absolute pads), lg(largest dilation)
  group                lg(number of groups)
  axis                 (axis + 1) / 5; for several axes, the sum of 2^axis / 32
  perm_K               (entry K + 1) / 5 of a Transpose's permutation, K = 0 … 4
  trans_a, trans_b     attributes transA and transB of a Gemm

Features of a match (`MATCH_FEATURES`). They describe the work of the nodes that its rule makes,
minus the work of the nodes in its source. Constant nodes count as no work. sl(x) stands for
sign(x) log1p(|x|):

  flops, bytes         sl(floating-point operations) / 10, sl(bytes read and written) / 10
  kernels              number of kernels / 10
  share                sl(1000 t / s) / 7; t is the time by the roofline of `analytic`, s as above

Features of an edge, which leads from the node that makes a tensor to a node that uses it
(`EDGE_FEATURES`):

  input_K              whether the tensor is input K = 0, 1, 2 of the receiver; input_3: K >= 3
  output               lg(index of the sender's output)
  elements             lg(number of elements of the tensor)
  is_constant          whether the sender depends on constants alone
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from environments.tensor_graphs.costs import analytic
from environments.tensor_graphs.execution.sizes import NONE_OPEN, Sizes
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import (
    CONSTANT,
    INPUT,
    OPAQUE,
    Attributes,
    Node,
    TensorType,
)
from environments.tensor_graphs.operators.numbers import NUMBERS
from environments.tensor_graphs.operators.operator import FLOAT_TYPES, num_elements
from environments.tensor_graphs.operators.table import OPERATORS
from environments.tensor_graphs.rewriting.matching import Match
from environments.tensor_graphs.rewriting.plans import Plan

KINDS = ("padding", *sorted(NUMBERS, key=NUMBERS.__getitem__))

CHANGING_FEATURES = (
    "is_constant", "is_output", "num_users", "constant_input_0", "constant_input_1",
    "constant_input_2",
)  # fmt: skip
COST_FEATURES = ("cost_share", "log_cost")
_FIXED_FEATURES = (
    "rank", "size_0", "size_1", "size_2", "size_3", "size_4", "elements", "is_static", "is_float",
    "itemsize", "num_outputs", "flops", "bytes", "kernel_0", "kernel_1", "stride_0", "stride_1",
    "pads", "dilation", "group", "axis", "perm_0", "perm_1", "perm_2", "perm_3", "perm_4",
    "trans_a", "trans_b",
)  # fmt: skip
NODE_FEATURES = ("kind", *CHANGING_FEATURES, *COST_FEATURES, *_FIXED_FEATURES)
EDGE_FEATURES = (
    "input_0", "input_1", "input_2", "input_3", "output", "elements", "is_constant",
)  # fmt: skip

MATCH_FEATURES = ("flops", "bytes", "kernels", "share")

FIRST_CHANGING = 1
FIRST_COST = FIRST_CHANGING + len(CHANGING_FEATURES)
_FIRST_FIXED = FIRST_COST + len(COST_FEATURES)

_MOST_CACHED = 1 << 14
Types = tuple[TensorType | None, ...]
_RANK = 5
_POSITIONS = 4


def node_row(
    graph: Graph, node: Node, is_constant: bool, sizes: Sizes = NONE_OPEN
) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of a node that stay the same as long as the node exists.

    Returns:
      float32 [F], the node's features, with 0 for CHANGING_FEATURES and COST_FEATURES; and float64
      [4], its work: operations, bytes moved, kernels and the roofline's time in ms, all 0 if it
      does not run. Both are cached, so the caller must not write to them.
    """
    if is_constant:
        return _row_and_work(CONSTANT, (), (), _at(node.types, sizes))
    inputs = _at(analytic.input_types(graph, node), sizes)
    return _row_and_work(node.op, node.attributes, inputs, _at(node.types, sizes))


def changing(graph: Graph, number: int, is_output: bool) -> tuple[float, ...]:
    """Return the CHANGING_FEATURES of a node, which depend on the nodes around it."""
    constants = [
        float(ref is not None and graph.is_constant(ref.node))
        for ref in graph.nodes[number].inputs[:3]
    ]
    constants += [0.0] * (3 - len(constants))
    num_users = lg(len(graph.users(number)))
    return float(graph.is_constant(number)), float(is_output), num_users, *constants


def cost_columns(costs_ms: np.ndarray, start_cost_ms: float) -> np.ndarray:
    """Return the COST_FEATURES, float32 [N, 2], of nodes with the given costs, [N] in ms."""
    share = np.log1p(costs_ms * (1000 / start_cost_ms)) / 7 if start_cost_ms else costs_ms
    return np.stack((share, np.log1p(1000 * costs_ms) / 10), axis=1).astype(np.float32)


def match_work(graph: Graph, match: Match, sizes: Sizes = NONE_OPEN) -> np.ndarray:
    """Return the work that applying a match adds, minus the work that it removes.

    All nodes of the source count as removed, even those that other nodes still use. So the result
    does not depend on changes elsewhere in the graph.

    Returns:
      float64 [4]: operations, bytes moved, kernels, and the roofline's time in ms.
    """
    work = _made(graph, match, sizes).copy()
    for number in match.nodes:
        if not graph.is_constant(number):
            node = graph.nodes[number]
            inputs = _at(analytic.input_types(graph, node), sizes)
            work -= _work(node.op, inputs, _at(node.types, sizes), node.attributes)
    return work


def match_columns(work: np.ndarray, start_cost_ms: float) -> np.ndarray:
    """Return the MATCH_FEATURES, float32 [M, 4], of matches with the given `match_work` [M, 4]."""
    scaled = work * (1, 1, 1, 1000 / (start_cost_ms or 1.0))
    columns = np.sign(scaled) * np.log1p(np.abs(scaled)) / (10, 10, 1, 7)
    columns[:, 2] = work[:, 2] / 10
    return columns.astype(np.float32)


def _made(graph: Graph, match: Match, sizes: Sizes) -> np.ndarray:
    """Return the work of the nodes that applying a match makes, float64 [4] as `match_work`."""
    # A plan is for variables of certain types, each constant or not. So the plan decides the work.
    plan = match.plan
    work = _plans.get((plan, sizes))
    if work is None:
        if len(_plans) >= _MOST_CACHED:
            _plans.clear()
        are_constant = [graph.is_constant(ref.node) for ref in match.refs]
        variables = _at([graph.type_of(ref) for ref in match.refs], sizes)
        work = _plans[plan, sizes] = _work_of_plan(plan, variables, are_constant, sizes)
    return work


def _work_of_plan(
    plan: Plan, variables: Types, are_constant: list[bool], sizes: Sizes
) -> np.ndarray:
    total = np.zeros(len(MATCH_FEATURES))
    made_of_constants = list(are_constant)
    for step in plan.steps:
        places = [place for place in step.inputs if place is not None]
        is_constant = all(made_of_constants[place.node] for place in places)
        made_of_constants.append(is_constant)
        if not is_constant:
            inputs = tuple(
                None
                if place is None
                else variables[place.node]
                if place.node < plan.num_variables
                else plan.steps[place.node - plan.num_variables].types[place.output]
                for place in step.inputs
            )
            types = _at(step.types, sizes)
            total += _work(step.op, _at(inputs, sizes), types, step.attributes)
    return total


@functools.lru_cache(maxsize=_MOST_CACHED)
def _work(op: str, inputs: Types, outputs: Types, attributes: Attributes) -> np.ndarray:
    """Return the work of an operator, float64 [4] as `match_work`; callers must not change it."""
    work = analytic.work(op, inputs, outputs, attributes)
    time_ms = _ROOFLINE.work_ms(work)
    return np.array((work.flops, work.bytes_moved, work.num_kernels, time_ms), np.float64)


@functools.lru_cache(maxsize=_MOST_CACHED)
def edge_row(
    position: int, output: int, kind: TensorType | None, is_constant: bool
) -> tuple[float, ...]:
    """Return the EDGE_FEATURES of an edge.

    `position` is the index of the receiver's input, and `output` that of the sender's output.
    """
    place = min(position, _POSITIONS - 1)
    is_input = [float(place == number) for number in range(_POSITIONS)]
    return *is_input, lg(output), lg(num_elements(kind)), float(is_constant)


def _at(types: Iterable[TensorType | None], sizes: Sizes) -> Types:
    return tuple(analytic.at(kind, sizes) for kind in types)


def lg(value: float) -> float:
    """Return log1p(value) / 10, the form in which features give large numbers."""
    return math.log1p(value) / 10


_plans: dict[tuple[Plan, Sizes], np.ndarray] = {}
_ROOFLINE = analytic.AnalyticObjective()


@functools.lru_cache(maxsize=_MOST_CACHED)
def _row_and_work(
    op: str, attributes: Attributes, inputs: Types, types: Types
) -> tuple[np.ndarray, np.ndarray]:
    work = np.zeros(4) if op in (INPUT, CONSTANT) else _work(op, inputs, types, attributes)
    values = dict(attributes) if op in OPERATORS else {}
    if op in ("Conv", "ConvTranspose"):
        # These operators take the size of the kernel from the shape of the weight.
        weight = inputs[1]
        values["kernel_shape"] = (weight.shape if weight and weight.shape else ())[2:]
    row = np.zeros(len(NODE_FEATURES), np.float32)
    row[0] = NUMBERS.get(op, NUMBERS[OPAQUE])
    of_work = (lg(len(types)), lg(work[0]), lg(work[1]))
    row[_FIRST_FIXED:] = (*_of_type(types), *of_work, *_of_attributes(values))
    row.setflags(write=False)
    return row, work


def _of_type(types: tuple[TensorType | None, ...]) -> tuple[float, ...]:
    kind = types[0] if types else None
    if kind is None:
        return (0.0,) * (_RANK + 5)
    shape = kind.shape or ()
    sizes = [lg(size if isinstance(size, int) else 1) for size in shape[:_RANK]]
    sizes += [0.0] * (_RANK - len(sizes))
    try:
        itemsize = np.dtype(kind.dtype).itemsize
    except TypeError:
        itemsize = 2
    is_float = float(kind.dtype in FLOAT_TYPES)
    static = float(kind.is_static)
    return len(shape) / _RANK, *sizes, lg(num_elements(kind)), static, is_float, lg(itemsize)


def _of_attributes(attributes: Mapping[str, Any]) -> tuple[float, ...]:
    kernel, strides = (_two(attributes.get(name)) for name in ("kernel_shape", "strides"))
    perm = [(entry + 1) / _RANK for entry in attributes.get("perm", ())[:_RANK]]
    return (
        *kernel,
        *strides,
        lg(sum(abs(pad) for pad in attributes.get("pads", ()))),
        lg(max(attributes.get("dilations", ()), default=0)),
        lg(attributes.get("group", 0)),
        _axis(attributes),
        *perm, *[0.0] * (_RANK - len(perm)),
        float(attributes.get("transA", 0)),
        float(attributes.get("transB", 0)),
    )  # fmt: skip


def _axis(attributes: Mapping[str, Any]) -> float:
    axes = attributes.get("axes", ())
    if axes:
        return sum(2.0**axis for axis in axes) / 32
    return (attributes["axis"] + 1) / _RANK if "axis" in attributes else 0.0


def _two(values: Any) -> tuple[float, float]:
    entries = [lg(value if isinstance(value, int) else 1) for value in (values or ())[:2]]
    return tuple(entries + [0.0] * (2 - len(entries)))  # type: ignore[return-value]
