"""States: what applies, what it costs, step by step."""

from __future__ import annotations

import gc
import math
import random
import tracemalloc

import numpy as np

from environments.tensor_graphs.engine import Engine
from environments.tensor_graphs.families import all_rules
from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.nodes import CONSTANT, INPUT, TensorType
from environments.tensor_graphs.notation import op, rule
from environments.tensor_graphs.operators.building import add
from tests.environments.tensor_graphs.random_graphs import random_graph

RULES = all_rules()


class Sizes:
    """Tenths of a millisecond for each element of an output and each constant input."""

    def __init__(self) -> None:
        self.asked = 0

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        self.asked += 1
        node = graph.nodes[number]
        if node.op in (INPUT, CONSTANT):
            return 0.0
        kinds = [one for one in node.types if one is not None and one.shape is not None]
        constants = sum(graph.is_constant(ref.node) for ref in node.inputs if ref is not None)
        return 0.1 * (sum(int(np.prod(one.shape)) for one in kinds) + constants)  # type: ignore


def test_costs_by_difference_are_those_of_the_whole_graph():
    for seed in range(12):
        rng = random.Random(seed)
        engine = Engine(RULES, Sizes())
        state = engine.start(random_graph(seed))
        for _ in range(5):
            if not state.matches:
                break
            state = state.apply(rng.choice(state.matches))
            assert state.cost_ms == engine.start(state.graph).cost_ms


def test_a_step_asks_for_the_cost_of_few_nodes():
    objective = Sizes()
    state = Engine(RULES, objective).start(random_graph(0, num_nodes=200))
    objective.asked = 0
    state.apply(state.matches[0])
    assert objective.asked < 20


def test_a_state_stays_what_it_is():
    state = Engine(RULES, Sizes()).start(random_graph(3))
    before = state.cost_ms, state.matches, hash(state.graph)
    for match in state.matches:
        state.apply(match)
    assert (state.cost_ms, state.matches, hash(state.graph)) == before


def test_masks():
    state = Engine(RULES, Sizes()).start(random_graph(3))
    assert state.num_matches.tolist() == [len(found) for found in state.matches_by_rule]
    assert state.xfer_mask.tolist() == [bool(found) for found in state.matches_by_rule]
    assert state.num_matches.sum() == len(state.matches) > 0
    assert {RULES[match.rule].name == match.xfer for match in state.matches} == {True}


@rule
def there(x):
    return op.Relu(x), op.Relu(op.Relu(x))


@rule
def back(x):
    return op.Relu(op.Relu(x)), op.Relu(x)


def test_memory_does_not_grow_with_steps():
    state = Engine([there, back], Sizes()).start(random_graph(0, num_nodes=30))
    rng = random.Random(0)

    def walk(num_steps: int) -> int:
        """Bytes in use after so many steps."""
        nonlocal state
        for _ in range(num_steps):
            by_rule = state.matches_by_rule
            longer = len(state.graph.nodes) < 40
            state = state.apply(rng.choice(by_rule[0] if longer or not by_rule[1] else by_rule[1]))
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    before = walk(300)
    after = walk(700)
    tracemalloc.stop()
    assert after < before + 20_000


class Slow:
    """A Relu costs 1 ms, an Abs 8, which only measuring tells: that it costs 4 is known before."""

    def __init__(self) -> None:
        self.measured: set[int] = set()

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        self.measured.add(number)
        return {"Relu": 1.0, "Abs": 8.0}.get(graph.nodes[number].op, 0.0)

    def known_cost_ms(self, graph: Graph, number: int) -> tuple[float, bool]:
        is_known = graph.nodes[number].op != "Abs" or number in self.measured
        return (self.node_cost_ms(graph, number), True) if is_known else (4.0, False)


@rule
def dearer(x):
    return op.Relu(x), op.Abs(x)


@rule
def cheaper(x):
    return op.Abs(x), op.Relu(x)


def test_what_costs_too_much_in_any_case_is_not_measured():
    edit = Graph().edit()
    y = edit.add(INPUT, [], (("name", "x"),), [TensorType("float32", (2,))])
    for name in ("Relu", "Exp", "Relu"):
        (y,) = add(edit, name, y)
    edit.set_outputs([y], ["y"])
    graph, _ = edit.finish()

    # 2 ms at the start. Of 3 ms there is no room for an Abs, of 6 ms for one of 4, not for two.
    for limit, costs in ((1.5, (5.0, 8.0)), (3.0, (9.0, 12.0)), (math.inf, (9.0, 16.0))):
        state = Engine([dearer, cheaper], Slow(), limit).start(graph)
        for cost_ms in costs:
            state = state.apply(next(one for one in state.matches if one.xfer == "dearer"))
            assert state.cost_ms == cost_ms
        # On the way back it is measured what is left, as soon as there is room.
        for cost_ms in (9.0 if limit > 2 else 5.0, 2.0):
            state = state.apply(next(one for one in state.matches if one.xfer == "cheaper"))
            assert state.cost_ms == cost_ms
