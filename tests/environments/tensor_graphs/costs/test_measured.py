"""What graphs cost: worked out, measured, remembered."""

from __future__ import annotations

import json
import pathlib
import random
import zlib
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from environments.caches import cache as caches
from environments.caches.cache import Cache
from environments.caches.table import COSTS
from environments.errors import UserError
from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective, figures
from environments.tensor_graphs.costs.grouping import Groups
from environments.tensor_graphs.costs.measured import MeasuredObjective
from environments.tensor_graphs.costs.objectives import graph_cost, make_objective
from environments.tensor_graphs.costs.stopwatch import time_of
from environments.tensor_graphs.costs.table import CostTable, processor, table_of
from environments.tensor_graphs.execution.backends import OnnxRuntime, Program
from environments.tensor_graphs.execution.sizes import OpenSizes
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Ref
from environments.tensor_graphs.operators.building import add
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules.library import all_rules
from tests.environments.caches.entries import contents
from tests.environments.tensor_graphs.random_graphs import random_graph

X = ("x", TensorProto.FLOAT, [1, 8, 16])


def graph_of(
    *nodes: onnx.NodeProto, x: tuple = X, rank: int | None = None, **weights: Any
) -> Graph:
    """A graph of x and weights; the last node's output is returned, of the rank of x or `rank`."""
    name, shape = nodes[-1].output[0], [None] * (len(x[2]) if rank is None else rank)
    output = helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
    initialisers = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    inputs = [helper.make_tensor_value_info(*x)]
    graph = helper.make_graph(nodes, "g", inputs, [output], initialisers)
    opsets = [helper.make_opsetid("", 17)]
    return onnx_io.read(helper.make_model(graph, ir_version=8, opset_imports=opsets))


def layer_norm(shape: list[int | str]) -> Graph:
    """x + x through a sigmoid, normalised."""
    ones = np.ones(int(shape[-1]), np.float32)
    return graph_of(
        helper.make_node("Sigmoid", ["x"], ["t"]),
        helper.make_node("Add", ["x", "t"], ["s"]),
        helper.make_node("LayerNormalization", ["s", "w", "w"], ["y"]),
        x=("x", TensorProto.FLOAT, shape),
        w=ones,
    )


def groups_of(graph: Graph) -> list[list[str]]:
    """Operators of each group, in the order of the graph."""
    groups = Groups(graph)
    leaders = [
        number
        for number in graph.order()
        if graph.nodes[number].op != INPUT
        and not graph.is_constant(number)
        and groups.leader(number) == number
    ]
    return [[graph.nodes[one].op for one in groups.members(leader)] for leader in leaders]


class CountedBackend(OnnxRuntime):
    """Counts what it is asked to run; `refuses` makes it refuse."""

    num_opened = 0
    refuses = False

    def open_optimised(
        self, model: onnx.ModelProto | pathlib.Path, write_to: pathlib.Path | None = None
    ) -> Program:
        if CountedBackend.refuses:
            raise UserError("no")
        CountedBackend.num_opened += 1
        return super().open_optimised(model, write_to)


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> CountedBackend:
    monkeypatch.setattr(CountedBackend, "num_opened", 0)
    monkeypatch.setattr(CountedBackend, "refuses", False)
    return CountedBackend()


def test_figures() -> None:
    # [1, 8, 16] x [16, 32]: 2 x 8 x 16 x 32 operations. 8 x 16 numbers go in, 16 x 32 weights,
    # 8 x 32 come out and go in and out of Relu; a Reshape moves nothing.
    graph = graph_of(
        helper.make_node("MatMul", ["x", "w"], ["m"]),
        helper.make_node("Relu", ["m"], ["r"]),
        helper.make_node("Reshape", ["r", "s"], ["y"]),
        rank=2,
        w=np.ones([16, 32], np.float32),
        s=np.array([8, 32]),
    )
    found = figures(graph)
    assert found.flops == 2 * 8 * 16 * 32 + 8 * 32
    assert found.bytes_moved == 4 * (8 * 16 + 16 * 32 + 3 * 8 * 32)
    assert found.num_kernels == 3


def test_analytic() -> None:
    objective = AnalyticObjective(flops_per_ms=1e6, bytes_per_ms=1e3, start_ms=1.0)
    graph = graph_of(helper.make_node("Relu", ["x"], ["y"]))
    # 1024 bytes of 1000 a ms take longer than 128 operations.
    assert graph_cost(objective, graph) == pytest.approx(1 + 1.024)
    assert make_objective("analytic") == AnalyticObjective()


def test_groups() -> None:
    tiny = onnx_io.read(models.make("bert-tiny"))
    found = groups_of(tiny)
    assert sum(map(len, found)) == sum(
        node.op != INPUT and not tiny.is_constant(number) for number, node in tiny.nodes.items()
    )
    normalised = ["ReduceMean", "Sub", "Pow", "ReduceMean", "Add", "Sqrt", "Div", "Mul", "Add"]
    assert (
        sum(group[0] == "Add" and sorted(group[1:]) == sorted(normalised) for group in found) == 5
    )
    assert ["MatMul", "Add", "Div", "Erf", "Add", "Mul", "Mul"] in found
    assert ["Transpose", "Transpose", "MatMul", "Div"] in found
    assert found.count(["MatMul", "Add"]) == 10


def test_groups_of_convolutions() -> None:
    found = groups_of(onnx_io.read(models.make("resnet-18")))
    assert found[0] == ["Conv", "BatchNormalization", "Relu"]
    block = ["Conv", "BatchNormalization", "Conv", "BatchNormalization", "Add", "Relu"]
    assert found.count(block) == 3
    assert all(len(group) <= 6 for group in found)


def test_groups_of_sums_of_products() -> None:
    """Of matrices, one of two products becomes the other one's bias; of rank 3 neither does."""
    for shape, expected in (
        ([8, 16], [["MatMul", "MatMul", "Add"]]),
        ([1, 8, 16], [["MatMul"], ["MatMul"], ["Add"]]),
    ):
        graph = graph_of(
            helper.make_node("MatMul", ["x", "w"], ["m"]),
            helper.make_node("MatMul", ["x", "v"], ["n"]),
            helper.make_node("Add", ["m", "n"], ["y"]),
            x=("x", TensorProto.FLOAT, shape),
            w=np.ones([16, 16], np.float32),
            v=np.zeros([16, 16], np.float32),
        )
        assert groups_of(graph) == expected


def test_what_is_returned_or_used_twice_is_computed() -> None:
    weights: dict[str, Any] = {"w": np.ones([16, 16], np.float32), "b": np.ones(16, np.float32)}
    product = helper.make_node("MatMul", ["x", "w"], ["m"])
    total = helper.make_node("Add", ["m", "b"], ["s"])
    last = helper.make_node("Mul", ["m", "s"], ["y"])
    assert groups_of(graph_of(product, total, **weights)) == [["MatMul", "Add"]]
    assert groups_of(graph_of(product, total, last, **weights)) == [["MatMul"], ["Add", "Mul"]]


def test_changes_of_groups_are_found() -> None:
    before = layer_norm([1, 8, 16])
    add_node = next(n for n, node in before.nodes.items() if node.op == "Add")
    edit = before.edit()
    (relu,) = add(edit, "Relu", Ref(before.inputs[0]))
    (product,) = add(edit, "Mul", relu, before.outputs[0])
    edit.set_outputs([product], ["y"])
    after, change = edit.finish()
    engine = Engine((), make_objective("onnxruntime"))
    analytic = Engine((), AnalyticObjective())
    assert analytic.touched(before, after, change) == {relu.node, product.node}
    assert {relu.node, product.node} <= engine.touched(before, after, change)
    # A second user of the sum: the normalisation is measured without it from now on.
    edit = after.edit()
    (again,) = add(edit, "Mul", relu, Ref(add_node))
    edit.set_outputs([product, again], ["y", "z"])
    last, change = edit.finish()
    norm = before.outputs[0].node
    assert {again.node, norm, add_node} <= engine.touched(after, last, change)


class Imagined(MeasuredObjective):
    """Costs that depend on all that measured ones do, without measuring."""

    def _look_up(self, graph: Graph, members: tuple[int, ...], key: tuple) -> float:
        return (1 + zlib.crc32(repr(key).encode()) % 1000) / 1000


@pytest.mark.parametrize("name", ["bert-tiny", "resnet-18"])
def test_costs_by_difference_are_those_of_the_whole_graph(name: str) -> None:
    engine = Engine(all_rules(), Imagined(OnnxRuntime(), CostTable()))
    state, rng = engine.start(onnx_io.read(models.make(name))), random.Random(0)
    for step in range(40):
        state = state.apply(rng.choice(state.matches))
        if step % 8 == 0:
            assert state.cost_ms == engine.start(state.graph).cost_ms


def test_costs_by_difference_of_random_graphs() -> None:
    # 124: a node becomes an output and nothing else about it changes.
    for seed in (*range(5), 124):
        engine, rng = Engine(all_rules(), Imagined(OnnxRuntime(), CostTable())), random.Random(seed)
        state = engine.start(random_graph(seed, num_nodes=40))
        for _ in range(6):
            if state.matches:
                state = state.apply(rng.choice(state.matches))
                assert state.cost_ms == engine.start(state.graph).cost_ms


def test_measured_once(backend: CountedBackend, tmp_path: pathlib.Path) -> None:
    cache = Cache(tmp_path / "costs.db", 1_000_000, 1)
    objective = MeasuredObjective(backend, CostTable(cache))
    graph = layer_norm([1, 8, 16])
    cost_ms = graph_cost(objective, graph)
    # Sigmoid, and Add with LayerNormalization.
    assert 0 < cost_ms < 10
    assert objective.num_measured == 2
    opened = CountedBackend.num_opened
    assert graph_cost(objective, graph) == cost_ms
    assert graph_cost(MeasuredObjective(backend, CostTable(cache)), graph) == cost_ms
    assert CountedBackend.num_opened == opened
    descriptions = {json.loads(content)["what"] for content in contents(tmp_path / "costs.db")}
    assert sorted(descriptions) == [
        "Add([1, 8, 16], [1, 8, 16]); LayerNormalization([1, 8, 16], [16], [16])",
        "Sigmoid([1, 8, 16])",
        "SkipLayerNormalization([1, 8, 16], [1, 8, 16], [16], [16])",
        "a product of matrices",
    ]


def test_order_of_a_sum_does_not_matter(backend: CountedBackend) -> None:
    objective = MeasuredObjective(backend, CostTable())
    weights: dict[str, Any] = {"w": np.ones([16, 16], np.float32), "b": np.ones(16, np.float32)}
    product = helper.make_node("MatMul", ["x", "w"], ["m"])
    costs = [
        graph_cost(objective, graph_of(product, helper.make_node("Add", names, ["y"]), **weights))
        for names in (["m", "b"], ["b", "m"])
    ]
    assert costs[0] == costs[1]
    # The product, and what a view costs: onnxruntime makes rank 2 of rank 3 and back.
    assert objective.num_measured == 2


def test_what_the_backend_makes_the_same_of_costs_the_same(backend: CountedBackend) -> None:
    objective = MeasuredObjective(backend, CostTable())
    image, ones = ("x", TensorProto.FLOAT, [1, 16, 8, 8]), np.ones(16, np.float32)
    weights: dict[str, Any] = {"w": np.ones([16, 16, 3, 3], np.float32), "b": ones}
    norm = helper.make_node("BatchNormalization", ["c", "b", "b", "b", "b"], ["n"])
    relu = helper.make_node("Relu", ["n"], ["y"])
    first = helper.make_node("Conv", ["x", "w"], ["c"]), norm, relu
    other = helper.make_node("Conv", ["x", "w", "b"], ["n"]), relu
    costs = [
        graph_cost(objective, graph_of(*nodes, x=image, **weights)) for nodes in (first, other)
    ]
    assert costs[0] == costs[1]
    assert objective.num_measured == 1


def test_part_of_a_graph() -> None:
    """What only other nodes of the part use is no output; each copy has its own inputs."""
    graph = layer_norm([1, 8, 16])
    numbers = [number for number, node in graph.nodes.items() if node.op in ("Sigmoid", "Add")]
    model = onnx_io.part_model(graph, numbers, copies=3)
    onnx.checker.check_model(model)
    assert [value.name for value in model.graph.input] == ["x0", "x1", "x2"]
    assert [node.op_type for node in model.graph.node].count("Sigmoid") == 3
    inputs = {f"x{k}": np.full([1, 8, 16], k, np.float32) for k in range(3)}
    outputs = OnnxRuntime().open(model).run(inputs)
    # The sigmoid of 0 is 1/2.
    assert outputs["y0"] == pytest.approx(0.5)
    assert outputs["y2"] == pytest.approx(2 + 1 / (1 + np.exp(-2)))


def test_alone(backend: CountedBackend) -> None:
    objective = MeasuredObjective(backend, CostTable())
    graph = layer_norm([1, 8, 16])
    total = next(number for number, node in graph.nodes.items() if node.op == "Add")
    assert objective.node_cost_ms(graph, total) == 0
    assert objective.alone.node_cost_ms(graph, total) > 0


def test_what_fuses_into_something_slow_is_seen() -> None:
    """onnxruntime makes SkipLayerNormalization of rank 3 only, and that is slow."""
    objective = MeasuredObjective(OnnxRuntime(), CostTable())
    graphs = layer_norm([1, 64, 256]), layer_norm([64, 256])
    slow, fast = (graph_cost(objective, graph) for graph in graphs)
    assert slow > 1.5 * fast
    slow, fast = (graph_cost(objective.alone, graph) for graph in graphs)
    assert slow < 1.5 * fast


def test_what_cannot_be_run_is_estimated(backend: CountedBackend) -> None:
    CountedBackend.refuses = True
    objective, graph = MeasuredObjective(backend, CostTable()), layer_norm([1, 8, 16])
    assert graph_cost(objective, graph) == pytest.approx(graph_cost(AnalyticObjective(), graph))


def test_operators_are_measured_at_the_sizes_that_are_given(backend: CountedBackend) -> None:
    table = CostTable()
    graph = layer_norm(["N", 64, 64])
    sizes = [OpenSizes(graph).at({"N": size}) for size in (1, 64)]
    small, large = (MeasuredObjective(backend, table, one) for one in sizes)
    assert graph_cost(small, graph) * 5 < graph_cost(large, graph)


def test_opaque_nodes(backend: CountedBackend) -> None:
    graph = graph_of(helper.make_node("Det", ["x"], ["y"]), x=("x", TensorProto.FLOAT, [4, 16, 16]))
    objective = MeasuredObjective(backend, CostTable())
    assert graph_cost(objective, graph) > 0
    assert objective.num_measured == 1


def test_table(tmp_path: pathlib.Path) -> None:
    cache = Cache(tmp_path / "costs.db", 1_000_000, 1)
    faster, slower = CostTable(cache), CostTable(cache)
    assert faster.get("a") is None
    assert faster.put("a", 1.0) == 1.0
    # The first value holds for both.
    assert slower.put("a", 2.0) == 1.0
    assert slower.get("a") == 1.0
    # Another backend or processor has costs of its own.
    assert CostTable(cache, "another").get("a") is None
    # A run goes by the cost that it has seen, although the cache is cleared and filled anew.
    assert caches.clear(tmp_path / "costs.db")
    assert CostTable(cache).put("a", 3.0) == 3.0
    assert faster.get("a") == slower.put("a", 4.0) == 1.0
    assert CostTable(cache).get("a") == 3.0


def test_table_of_a_machine(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert processor()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    table_of(OnnxRuntime()).put("a", 1.0)
    assert table_of(OnnxRuntime()).get("a") == 1.0
    assert table_of(OnnxRuntime("basic")).get("a") is None
    assert COSTS.path.is_file()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bert-mini", "resnet-18", "repvgg-a0"])
def test_sum_is_near_the_whole(name: str) -> None:
    """Costs of groups add up to what a whole model takes; margins are those of a busy machine."""
    model = models.make(name)
    backend = OnnxRuntime()
    objective = MeasuredObjective(backend, CostTable())
    sum_ms = graph_cost(objective, onnx_io.read(model))
    feeds = {
        value.name: np.ones([size.dim_value for size in value.type.tensor_type.shape.dim], kind)
        for value in model.graph.input
        for kind in [helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type)]
    }
    feeds.update({name: np.zeros_like(x) for name, x in feeds.items() if name == "token_type_ids"})
    whole_ms = 1e3 * time_of(backend.open(model).timer(feeds, bound=True))[0]
    assert sum_ms == pytest.approx(whole_ms, rel=0.3)
