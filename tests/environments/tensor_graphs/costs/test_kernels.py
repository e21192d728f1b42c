"""What onnxruntime makes of a part of a graph."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.kernels import Kernel, kernels_of
from environments.tensor_graphs.execution.backends import OnnxRuntime
from tests.environments.tensor_graphs.costs.graphs import graph_of


def test_kernels() -> None:
    """A linear layer of rank 3 is one product of matrices; two views of it are no work."""
    weights: dict[str, Any] = {"w": np.ones([16, 4], np.float32), "b": np.ones(4, np.float32)}
    graph = graph_of("m = MatMul(x, w) y = Add(m, b)", **weights)
    numbers = [number for number, node in graph.nodes.items() if node.op in ("MatMul", "Add")]
    optimised = OnnxRuntime().rewritten(onnx_io.part_model(graph, numbers)[0])
    assert optimised is not None
    model, plain = optimised
    feeds = {"x0": np.ones([1, 8, 16], np.float32)}
    kernels = kernels_of(model, feeds, plain)
    assert [kernel.description for kernel in kernels if not kernel.is_view] == [
        "Gemm([8, 16], [16, 4], [4])"
    ]
    assert len(kernels) == 3


def test_kernels_of_one_key() -> None:
    """Attributes may be left out where they are as usual, and large weights differ."""

    def kernel(weight: np.ndarray, **attributes: Any) -> Kernel:
        node = helper.make_node("Gemm", ["x", "w"], ["y"], **attributes)
        x = np.ones([2, weight.shape[0]], np.float32)
        return Kernel(node, (x, weight), (False, True), {"": 17})

    weight = np.ones([4, 4], np.float32)
    assert kernel(weight).key == kernel(2 * weight, alpha=1.0, transB=0).key
    assert kernel(weight).key != kernel(weight, transB=1).key
    assert kernel(weight).key != kernel(np.ones([4, 5], np.float32)).key
    model, feeds = kernel(weight).model(3)
    outputs = OnnxRuntime().open(model).run(feeds)
    assert [array.tolist() for array in outputs.values()] == [[[4.0] * 4] * 2] * 3
