"""Rules keep what a graph computes of integers, which wrap around, and of truth values."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import CONSTANT, INPUT, TensorType
from environments.tensor_graphs.operators import building, table
from environments.tensor_graphs.operators.operator import OperatorError
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.rules.language.element_types import GROUPS
from environments.tensor_graphs.rules.verification.wrapping import Wrapping
from tests.environments.tensor_graphs.random_graphs import finished

SIGNED = ("Add", "Sub", "Mul", "Mul", "Div", "Div", "Max", "Neg", "Abs", "Relu", "Transpose",
          "Concat")  # fmt: skip
UNSIGNED = tuple(op for op in SIGNED if op not in ("Neg", "Relu"))
MOVES = ("Transpose", "Transpose", "Reshape", "Concat")
OPERATORS = {"int8": SIGNED, "int64": SIGNED, "uint8": UNSIGNED, "uint32": UNSIGNED, "bool": MOVES}
ATTRIBUTES = {
    "Transpose": {"perm": (1, 0)},
    "Concat": {"axis": 0},
    "Reshape": {"shape": (2, -1)},
}
UNARY = ("Neg", "Abs", "Relu", "Transpose", "Reshape")
SHIPPED = rule_files.load()


class Nothing:
    """Everything costs nothing."""

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        return 0.0


def elements(dtype, rng, shape):
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    limits = np.iinfo(dtype)
    drawn = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return (drawn >> rng.integers(0, limits.bits - 1)).astype(dtype)


def random_graph(dtype, seed):
    """Operators on matrices of 4 × 4 and on numbers, and what becomes of them."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    edit = Graph().edit()
    refs = [edit.add_constant(np.asarray(elements(dtype, numbers, s))) for s in ((4, 4), (), ())]
    refs += [edit.add(INPUT, [], (("name", name),), [TensorType(dtype, (4, 4))]) for name in "xy"]
    for _ in range(20):
        op = rng.choice(OPERATORS[dtype])
        # Rules match chains of operators, squares, and what is done with constants.
        last, other = refs[-1], rng.choice(refs[-2:] if rng.random() < 0.3 else refs)
        inputs = [last] if op in UNARY else [last, other]
        try:
            refs += building.add(edit, op, *inputs, **ATTRIBUTES.get(op, {}))
        except OperatorError:
            continue
    return finished(edit, refs)


def values_of(graph, seed, key):
    """What a graph computes; results that ONNX does not define depend on the key."""
    rng, algebra = np.random.default_rng(seed), Wrapping(key)
    known = {}
    for number in graph.order():
        node = graph.nodes[number]
        if node.op == INPUT:
            known[number] = (elements(node.types[0].dtype, rng, node.types[0].shape),)
        elif node.op == CONSTANT:
            known[number] = (node.value,)
        else:
            given = [known[ref.node][ref.output] for ref in node.inputs]
            with np.errstate(all="ignore"):
                known[number] = table.evaluate(node.op, given, node.attributes, algebra)
    return [known[ref.node][ref.output] for ref in graph.outputs]


def are_equal(graph, other, seed):
    """Whether both compute the same, wherever the first one computes something."""
    runs = [[values_of(one, seed, key) for one in (graph, other)] for key in range(4)]
    for place in range(len(graph.outputs)):
        is_defined = np.all([run[0][place] == runs[0][0][place] for run in runs], axis=0)
        if any(np.any(is_defined & (run[0][place] != run[1][place])) for run in runs):
            return False
    return True


def walk(rules, dtype, seed):
    """Whether eight random steps keep what a random graph computes, and how many there were."""
    state = Engine(rules, Nothing()).start(random_graph(dtype, seed))
    start, numbers, count = state.graph, np.random.default_rng(seed), 0
    while state.matches and count < 8:
        state = state.apply(state.matches[numbers.integers(len(state.matches))])
        count += 1
    return all(are_equal(start, state.graph, number) for number in range(4)), count


@pytest.mark.parametrize("dtype", OPERATORS)
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 150), marks=pytest.mark.slow)])
def test_rules_keep_integers(dtype, seeds):
    outcomes = [walk(SHIPPED, dtype, seed) for seed in seeds]
    assert all(is_kept for is_kept, _ in outcomes)
    assert sum(count for _, count in outcomes) > len(seeds)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_rules_of_floats_do_not(dtype):
    """Else the test before would show nothing."""
    rules = [dataclasses.replace(one, types=GROUPS) for one in SHIPPED if one.types == ("float",)]
    assert not all(walk(rules, dtype, seed)[0] for seed in range(40))
