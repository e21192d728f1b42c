"""Types that no inference knows, learned from runs of the model."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.inner_values import learned_types, of_unknown_type

PLAIN = backend("onnxruntime-disable")
# onnxruntime says of a Scaler's output that it is of floats, and nothing else.
SCALED = """
    <ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
    scaled (float[{size}, 2] x) => (float[{size}, 2] y)
    {{
      a = ai.onnx.ml.Scaler<offset = [0.0, 1.0], scale = [2.0, 2.0]>(x)
      b = Transpose<perm = [1, 0]>(a)
      y = Transpose<perm = [1, 0]>(b)
    }}
"""


def runs(*sizes, name="n"):
    return [({name: size}, {"x": np.ones((size, 2), np.float32)}) for size in sizes]


def sizes_of(infos):
    return {
        info.name: [size.dim_param or size.dim_value for size in info.type.tensor_type.shape.dim]
        for info in infos
    }


@pytest.mark.parametrize(
    ("size", "name", "learned"),
    [
        pytest.param("n", "n", ["n", 2], id="an open size by its name"),
        # "?" is no name, and dim_value is 0 where there is none.
        pytest.param("?", "unknown_1", [0, 2], id="an open size without a name"),
    ],
)
def test_a_size_that_differs_between_runs_is_the_open_size_of_these_numbers(size, name, learned):
    graph = onnx_io.read(onnx.parser.parse_model(SCALED.format(size=size)))
    infos = learned_types(graph, runs(3, 4, name=name), PLAIN)
    assert sizes_of(infos) == {"a": learned}


def test_what_does_not_run_or_is_no_tensor_or_is_not_used_is_left_alone():
    graph = onnx_io.read(onnx.parser.parse_model(SCALED.format(size="n")))
    three = {"x": np.ones((3, 3), np.float32)}
    assert learned_types(graph, [({"n": 3}, three)], PLAIN) == []
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17, "ai.onnx.ml" : 3]>
        classes (float[n, 2] x) => (seq(map(int64, float)) y)
        { y = ai.onnx.ml.ZipMap<classlabels_int64s = [0, 1]>(x) }
    """)
    graph = onnx_io.read(model)
    assert of_unknown_type(graph) == [] and learned_types(graph, runs(3, 4), PLAIN) == []
