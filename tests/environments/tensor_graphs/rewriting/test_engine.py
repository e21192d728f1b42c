"""States: what applies, what it costs, step by step."""

from __future__ import annotations

import gc
import random
import tracemalloc

import numpy as np
import pytest

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import CONSTANT, INPUT
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules.library import all_rules
from tests.environments.tensor_graphs.random_graphs import random_graph
from tests.environments.tensor_graphs.test_environment import back, there

RULES = all_rules()


class Sizes:
    """Tenths of a millisecond for each element of an output and each constant input."""

    def __init__(self) -> None:
        self.num_calls = 0

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        self.num_calls += 1
        node = graph.nodes[number]
        if node.op in (INPUT, CONSTANT):
            return 0.0
        kinds = [tensor for tensor in node.types if tensor is not None and tensor.shape is not None]
        constants = sum(graph.is_constant(ref.node) for ref in node.inputs if ref is not None)
        return 0.1 * (sum(int(np.prod(tensor.shape)) for tensor in kinds) + constants)  # type: ignore


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


def test_another_objective_is_another_engine_s():
    """What is twice as dear there costs as much as before here."""

    class Twice(Sizes):
        def node_cost_ms(self, graph: Graph, number: int) -> float:
            return 2 * super().node_cost_ms(graph, number)

    graph = random_graph(0)
    engine = Engine(RULES, Sizes())
    cost_ms = engine.start(graph).cost_ms
    assert engine.with_objective(Twice()).start(graph).cost_ms == pytest.approx(2 * cost_ms)
    assert engine.start(graph).cost_ms == cost_ms


def test_a_step_asks_for_the_cost_of_few_nodes():
    objective = Sizes()
    state = Engine(RULES, objective).start(random_graph(0, num_nodes=200))
    objective.num_calls = 0
    state.apply(state.matches[0])
    assert objective.num_calls < 20


def test_masks():
    state = Engine(RULES, Sizes()).start(random_graph(3))
    assert state.num_matches.tolist() == [len(matches) for matches in state.matches_by_rule]
    assert state.xfer_mask.tolist() == [bool(matches) for matches in state.matches_by_rule]
    assert state.num_matches.sum() == len(state.matches) > 0


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
    before = walk(150)
    after = walk(350)
    tracemalloc.stop()
    assert after < before + 10_000
