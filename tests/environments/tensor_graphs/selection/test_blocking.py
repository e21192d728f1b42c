"""Sums and products with constants become batch normalisations, which work in blocks."""

from __future__ import annotations

import numpy as np
import onnxruntime

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules.library import all_rules, rules_of
from environments.tensor_graphs.search.results import Visited
from environments.tensor_graphs.selection.blocking import blocked
from tests.environments.tensor_graphs.execution.models import parsed

MODEL = """g (float[1, 2, 2, 2] x, float[2, 3] m) => (float[1, 2, 2, 2] y, float[2, 3] n)
<float[1] s = {3.0}, float[2, 1, 1] t = {10.0, 20.0}, float u = {-1.0},
 float[1, 1, 1, 2] along_rows = {5.0, 7.0}>
{
  a = Mul(x, s)
  b = Add(a, t)
  c = Relu(b)
  d = Add(c, u)
  y = Add(d, along_rows)
  n = Add(m, u)
}"""


def start_of(rules) -> Visited:
    graph = onnx_io.read(parsed(MODEL, 13))
    return Visited(Engine(rules, AnalyticObjective()).start(graph))


def test_what_is_the_same_for_a_channel_is_normalised():
    end = blocked(start_of(all_rules()))
    assert [step.rule for step in end.path] == ["linear_is_batch_norm", "sum_is_batch_norm"]
    operators = [node.op for node in end.state.graph.nodes.values()]
    # The sums along rows, and of a matrix, are as they were.
    assert operators.count("BatchNormalization") == operators.count("Add") == 2
    session = onnxruntime.InferenceSession(onnx_io.write(end.state.graph).SerializeToString())
    x = np.array([1, -100, 0, 2, 1, 1, 1, 1], np.float32).reshape(1, 2, 2, 2)
    y, n = session.run(None, {"x": x, "m": np.zeros((2, 3), np.float32)})
    # Relu(3 x + 10) - 1 + (5, 7) in the first channel, with 20 in the second.
    expected = np.array([13 + 4, 0 + 6, 10 + 4, 16 + 6, 23 + 4, 23 + 6, 23 + 4, 23 + 6])
    np.testing.assert_array_equal(y.reshape(-1), expected)
    np.testing.assert_array_equal(n, np.full((2, 3), -1))
    # Without the rules nothing happens.
    start = start_of(rules_of("layout"))
    assert blocked(start) is start
