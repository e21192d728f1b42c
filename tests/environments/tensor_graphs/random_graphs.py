"""Random graphs on which many rules match, and what they compute."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np

from environments.tensor_graphs.graph.graph import Edit, Graph
from environments.tensor_graphs.graph.nodes import CONSTANT, INPUT, Ref, TensorType
from environments.tensor_graphs.operators import building, table
from environments.tensor_graphs.operators.operator import OperatorError
from environments.tensor_graphs.rules.verification.points import PointFn

_MATRICES = ("Add", "Mul", "MatMul", "Relu", "Tanh", "Transpose", "Reshape", "Concat", "Split",
             "Gemm", "Softmax", "Constant")  # fmt: skip
_IMAGES = ("Add", "Conv", "Conv", "Relu", "BatchNormalization", "Concat", "MaxPool", "AveragePool",
           "Constant", "GlobalAveragePool")  # fmt: skip


def random_graph(seed: int, num_nodes: int = 14) -> Graph:
    """Matrices of 4 × 4 (and what layout operators make of them), or images of 2 × 4 × 5 × 5."""
    rng = random.Random(seed)
    numbers = np.random.default_rng(seed)
    is_image = rng.random() < 0.3
    edit = Graph().edit()
    shape = (2, 4, 5, 5) if is_image else (4, 4)
    refs = [edit.add(INPUT, [], (("name", name),), [TensorType("float32", shape)]) for name in "xy"]
    refs.append(_constant(edit, numbers, shape))
    while len(edit.nodes) < num_nodes:
        op = rng.choice(_IMAGES if is_image else _MATRICES)
        if op == "Constant":
            refs.append(_constant(edit, numbers, rng.choice([shape, (), shape[-1:], (4, 1, 1)])))
            continue
        try:
            refs += _add(edit, op, rng, numbers, refs)
        except OperatorError:
            continue
    return finished(edit, refs)


def finished(edit: Edit, refs: Sequence[Ref]) -> Graph:
    """The graph that an edit made; what nothing uses are its outputs."""
    used = {ref.node for node in edit.nodes.values() for ref in node.inputs if ref is not None}
    outputs = [ref for ref in refs if ref.node not in used and edit.nodes[ref.node].op != CONSTANT]
    edit.set_outputs(outputs, [f"output_{number}" for number in range(len(outputs))])
    return edit.finish()[0]


def _constant(edit: Edit, numbers: np.random.Generator, shape: tuple[int, ...]) -> Ref:
    return edit.add_constant(numbers.standard_normal(shape).astype(np.float32))


def _add(
    edit: Edit, op: str, rng: random.Random, numbers: np.random.Generator, refs: list[Ref]
) -> tuple[Ref, ...]:
    x, y = rng.choice(refs), rng.choice(refs)
    kind = edit.type_of(x)
    assert kind is not None and kind.shape is not None
    rank = len(kind.shape)
    if op in ("Add", "Mul", "MatMul"):
        return building.add(edit, op, x, y)
    if op == "Gemm":
        return building.add(edit, op, x, y, rng.choice(refs))
    if op == "Transpose":
        return building.add(edit, op, x, perm=tuple(reversed(range(rank))))
    if op == "Reshape":
        return building.add(edit, op, x, shape=rng.choice([(4, 4), (2, 8), (2, 2, 4), (1, 4, 4)]))
    if op == "Concat":
        return building.add(edit, op, x, y, axis=rng.randrange(rank) if rank else 0)
    if op == "Split":
        axis = rng.randrange(rank) if rank else 0
        size = kind.shape[axis] if rank else 0
        return building.add(edit, op, x, axis=axis, split=(size // 2, size - size // 2))
    if op == "Conv":
        kernel = rng.choice([1, 3])
        weight = _constant(edit, numbers, (4, kind.shape[1] if rank > 1 else 1, kernel, kernel))
        return building.add(edit, op, x, weight, pads=(kernel // 2,) * 4)
    if op == "BatchNormalization":
        four = [edit.add_constant(numbers.uniform(0.5, 2, 4).astype(np.float32)) for _ in range(4)]
        return building.add(edit, op, x, *four)
    if op in ("MaxPool", "AveragePool"):
        return building.add(edit, op, x, kernel_shape=(3, 3), pads=(1, 1, 1, 1))
    if op == "Softmax":
        return building.add(edit, op, x, axis=-1)
    return building.add(edit, op, x)


def values_of(
    graph: Graph, seed: int = 0, input_fn: PointFn = lambda rng, shape: rng.standard_normal(shape)
) -> list[np.ndarray]:
    """What a graph computes of random inputs, in double precision."""
    numbers = np.random.default_rng(seed)
    values: dict[int, tuple[np.ndarray, ...]] = {}
    for number in graph.order():
        node = graph.nodes[number]
        if node.op == INPUT:
            (kind,) = node.types
            assert kind is not None and kind.shape is not None
            values[number] = (input_fn(numbers, kind.shape),)  # type: ignore[arg-type]
        elif node.op == CONSTANT:
            assert node.value is not None
            values[number] = (node.value.astype(np.float64),)
        else:
            arrays = [values[ref.node][ref.output] for ref in node.inputs if ref is not None]
            values[number] = table.evaluate(node.op, arrays, node.attributes)
    return [values[ref.node][ref.output] for ref in graph.outputs]
