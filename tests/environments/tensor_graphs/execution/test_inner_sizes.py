"""Sizes that depend on values, or that no formula gives, are those of a run."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.sizes import OpenSizes, with_inner_sizes
from tests.environments.tensor_graphs.execution.models import of_x, parsed

PLAIN = backend("onnxruntime-disable")


def enlarged(repeats=1000):
    """The elements of x that are not 0, each many times: [k] -> [k, repeats]; then a Relu."""
    return parsed(
        f"""g (float[n] x) => (float[k,{repeats}] y)
        <int64[1] one = {{1}}, int64[2] times = {{1, {repeats}}}>
        {{ mask = Cast <to = 9> (x) nonzero = Compress <axis = 0> (x, mask)
          column = Unsqueeze(nonzero, one) tiled = Tile(column, times) y = Relu(tiled) }}"""
    )


def test_costs_know_the_sizes_that_a_run_shows():
    graph = onnx_io.read(enlarged())
    plain = OpenSizes(graph).at({"n": 50})
    x = np.zeros(50, np.float32)
    x[:30] = 1
    sizes = with_inner_sizes(graph, plain, {"x": x}, PLAIN)
    assert (sizes.named, sizes.shapes) == (plain.named, plain.shapes)
    (relu,) = (number for number, node in graph.nodes.items() if node.op == "Relu")
    (kind,) = graph.nodes[relu].types
    assert list(map(sizes.value, kind.shape)) == [30, 1000]
    # It reads and writes 30 · 1000 numbers of 4 bytes, at 15 million bytes a ms.
    cost_ms = AnalyticObjective(sizes=sizes).node_cost_ms(graph, relu)
    assert cost_ms == pytest.approx(0.002 + 240000 / 1.5e7)


def test_known_sizes_need_no_run():
    graph = onnx_io.read(of_x("{ y = Relu(x) }"))
    sizes = OpenSizes(graph).at({"n": 3})
    assert with_inner_sizes(graph, sizes, {}, PLAIN) is sizes


def test_a_model_that_does_not_run_keeps_its_sizes():
    graph = onnx_io.read(enlarged())
    sizes = OpenSizes(graph).at({"n": 3})
    assert with_inner_sizes(graph, sizes, {"x": np.zeros((3, 1), np.float32)}, PLAIN) is sizes
