"""What operators cost, measured once."""

from __future__ import annotations

import json
import random
import zlib

import numpy as np
import onnx
import pytest

from environments.caches.cache import Cache
from environments.errors import UserError
from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.costs.measured import MeasuredObjective
from environments.tensor_graphs.costs.stopwatch import time_of
from environments.tensor_graphs.costs.table import CostTable
from environments.tensor_graphs.execution.backends import OnnxRuntime
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.execution.sizes import OpenSizes
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules.library import all_rules
from tests.environments.caches.entries import contents
from tests.environments.tensor_graphs.costs.graphs import graph_cost, graph_of, layer_norm
from tests.environments.tensor_graphs.random_graphs import random_graph

BACKEND = OnnxRuntime()


class Imagined(MeasuredObjective):
    """Costs that depend on all that measured ones do, without measuring."""

    def _look_up(self, graph: Graph, members: tuple[int, ...], key: tuple) -> float:
        return (1 + zlib.crc32(repr(key).encode()) % 1000) / 1000


def graphs_to_walk():
    """The last one: a node becomes an output and nothing else about it changes."""
    yield from (onnx_io.read(models.make(name)) for name in ("bert-tiny", "resnet-18"))
    yield from (random_graph(seed, num_nodes=40) for seed in (*range(5), 124))


def test_costs_by_difference_are_those_of_the_whole_graph() -> None:
    engine = Engine(all_rules(), Imagined(BACKEND, CostTable()))
    for seed, graph in enumerate(graphs_to_walk()):
        state, rng = engine.start(graph), random.Random(seed)
        is_small = len(graph.nodes) < 100
        for step in range(6 if is_small else 40):
            if state.matches:
                state = state.apply(rng.choice(state.matches))
            if is_small or step % 8 == 0:
                assert state.cost_ms == engine.start(state.graph).cost_ms


def test_measured_once(tmp_path, monkeypatch) -> None:
    cache = Cache(tmp_path / "costs.db", 1_000_000, 1)
    objective = MeasuredObjective(BACKEND, CostTable(cache))
    graph = layer_norm([1, 8, 16])
    cost_ms = graph_cost(objective, graph)
    # Sigmoid, and Add with LayerNormalization.
    assert 0 < cost_ms < 10
    assert objective.num_measured == 2
    monkeypatch.setattr(OnnxRuntime, "open", lambda *_: pytest.fail("it is measured again"))
    assert graph_cost(objective, graph) == cost_ms
    assert graph_cost(MeasuredObjective(BACKEND, CostTable(cache)), graph) == cost_ms
    descriptions = {json.loads(content)["what"] for content in contents(tmp_path / "costs.db")}
    assert sorted(descriptions) == [
        "Add([1, 8, 16], [1, 8, 16]); LayerNormalization([1, 8, 16], [16], [16])",
        "Sigmoid([1, 8, 16])",
        "SkipLayerNormalization([1, 8, 16], [1, 8, 16], [16], [16])",
        "a product of matrices",
    ]


@pytest.mark.parametrize(
    ("variants", "shape", "weight", "num_measured"),
    [
        # The product, and what a view costs: onnxruntime makes rank 2 of rank 3 and back.
        (("m = MatMul(x, w) y = Add(m, b)", "m = MatMul(x, w) y = Add(b, m)"),
         (1, 8, 16), (16, 16), 2),
        # onnxruntime makes the same of both.
        (("c = Conv(x, w) n = BatchNormalization(c, b, b, b, b) y = Relu(n)",
          "n = Conv(x, w, b) y = Relu(n)"), (1, 16, 8, 8), (16, 16, 3, 3), 1),
        # An operator that nothing is known about is measured too.
        (("y = Det(x)",) * 2, (4, 16, 16), (), 1),
    ],
)  # fmt: skip
def test_equal_work_costs_the_same(variants, shape, weight, num_measured) -> None:
    objective = MeasuredObjective(BACKEND, CostTable())
    weights = {"w": np.ones(weight, np.float32), "b": np.ones(16, np.float32)}
    costs = [graph_cost(objective, graph_of(nodes, shape, **weights)) for nodes in variants]
    assert costs[0] == costs[1] > 0
    assert objective.num_measured == num_measured


def test_part_of_a_graph() -> None:
    """What only other nodes of the part use is no output; each copy has its own inputs."""
    graph = layer_norm([1, 8, 16])
    numbers = [number for number, node in graph.nodes.items() if node.op in ("Sigmoid", "Add")]
    model, types = onnx_io.part_model(graph, numbers, copies=3)
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == list(types) == ["x0", "x1", "x2"]
    assert [node.op_type for node in model.graph.node].count("Sigmoid") == 3
    inputs = {f"x{k}": np.full([1, 8, 16], k, np.float32) for k in range(3)}
    outputs = OnnxRuntime().open(model).run(inputs)
    # The sigmoid of 0 is 1/2.
    assert outputs["y0"] == pytest.approx(0.5)
    assert outputs["y2"] == pytest.approx(2 + 1 / (1 + np.exp(-2)))


def test_what_fuses_into_something_slow_is_seen() -> None:
    """onnxruntime makes SkipLayerNormalization of rank 3 only, and that is slow."""
    objective = MeasuredObjective(BACKEND, CostTable())
    graphs = layer_norm([1, 64, 256]), layer_norm([64, 256])
    slow, fast = (graph_cost(objective, graph) for graph in graphs)
    assert slow > 1.5 * fast
    slow, fast = (graph_cost(objective.alone, graph) for graph in graphs)
    assert slow < 1.5 * fast


def test_what_cannot_be_run_is_estimated(monkeypatch) -> None:
    def refuse(*_):
        raise UserError("no")

    monkeypatch.setattr(OnnxRuntime, "open", refuse)
    objective, graph = MeasuredObjective(BACKEND, CostTable()), layer_norm([1, 8, 16])
    assert graph_cost(objective, graph) == pytest.approx(graph_cost(AnalyticObjective(), graph))


def test_operators_are_measured_at_the_sizes_that_are_given() -> None:
    table = CostTable()
    graph = layer_norm(["N", 64, 64])
    sizes = [OpenSizes(graph).at({"N": size}) for size in (1, 64)]
    small, large = (MeasuredObjective(BACKEND, table, point) for point in sizes)
    assert graph_cost(small, graph) * 5 < graph_cost(large, graph)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert-mini", "resnet-18", "repvgg-a0"])
def test_sum_is_near_the_whole(name: str) -> None:
    """Costs of groups add up to what a whole model takes; margins are those of a busy machine."""
    model = models.make(name)
    backend = OnnxRuntime()
    objective = MeasuredObjective(BACKEND, CostTable())
    sum_ms = graph_cost(objective, onnx_io.read(model))
    timer = backend.open(model).timer(random_inputs(model), bound=True)
    whole_ms = 1e3 * time_of(timer)[0]
    assert sum_ms == pytest.approx(whole_ms, rel=0.3)
