"""The work of graphs, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.costs.objectives import make_objective
from tests.environments.tensor_graphs.costs.graphs import graph_cost, graph_of, work_of


def test_work() -> None:
    # [1, 8, 16] x [16, 32]: 2 x 8 x 16 x 32 operations. 8 x 16 numbers go in, 16 x 32 weights,
    # 8 x 32 come out and go in and out of Relu; a Reshape moves nothing.
    graph = graph_of(
        "m = MatMul(x, w) r = Relu(m) y = Reshape(r, s)",
        rank=2,
        w=np.ones([16, 32], np.float32),
        s=np.array([8, 32]),
    )
    num_bytes = 4 * (8 * 16 + 16 * 32 + 3 * 8 * 32)
    assert work_of(graph) == [2 * 8 * 16 * 32 + 8 * 32, num_bytes, 3]


def test_analytic() -> None:
    objective = AnalyticObjective(flops_per_ms=1e6, bytes_per_ms=1e3, start_ms=1.0)
    graph = graph_of("y = Relu(x)")
    # 1024 bytes of 1000 a ms take longer than 128 operations.
    assert graph_cost(objective, graph) == pytest.approx(1 + 1.024)
    assert make_objective("analytic") == AnalyticObjective()
