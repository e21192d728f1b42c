"""`--freeze`: the written model has fixed sizes; without it the model still takes others."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from environments.errors import UsageError
from tests.environments.tensor_graphs.small_models import adapter, model_of, relu, write
from tfrl_systems import experiments

QUICK = {"objective": "analytic", "expansions": 100, "measure": False}


def flattened() -> onnx.ModelProto:
    """An adapter after Reshape(x, [Shape(x)[0], -1]), as exporters write a flattening."""
    model = adapter(size=8, rank=2, batch="batch")
    numbers = [numpy_helper.from_array(np.array(v, np.int64), k) for k, v in CONSTANTS.items()]
    nodes = [
        helper.make_node("Shape", ["image"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node("Unsqueeze", ["rows", "first"], ["row"]),
        helper.make_node("Concat", ["row", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["image", "target"], ["x"]),
        *model.graph.node,
    ]
    weights = [*model.graph.initializer, *numbers]
    return model_of(nodes, weights, {"image": ["batch", 2, 4]}, {"y1": ["batch", 8]})


CONSTANTS = {"zero": 0, "first": [0], "rest": [-1]}


def optimized(model, tmp_path, **options):
    path, out = write(tmp_path / "m.onnx", model), tmp_path / "fast.onnx"
    outcome = experiments.optimize(path, out, reporter=experiments.Reporter(), **QUICK, **options)
    return outcome, path, out


def run(path, rows):
    session = onnxruntime.InferenceSession(str(path))
    (info,) = session.get_inputs()
    shape = (rows, *info.shape[1:])
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    return session.run(None, {info.name: x})[0]


def test_sizes_become_fixed_ones(tmp_path):
    outcome, path, out = optimized(flattened(), tmp_path, freeze=True, dimensions={"batch": 3})
    fast = onnx.load(out)
    assert outcome["gain"] and outcome["sizes"] == [{"batch": 3}]
    assert [size.dim_value for size in fast.graph.input[0].type.tensor_type.shape.dim] == [3, 2, 4]
    assert {"Shape", "Gather", "Unsqueeze", "Concat"}.isdisjoint(
        node.op_type for node in fast.graph.node
    )
    np.testing.assert_allclose(run(out, 3), run(path, 3), atol=1e-5)
    with pytest.raises(Exception, match="Expected: 3"):
        run(out, 5)


def test_without_it_other_sizes_stay_possible(tmp_path):
    outcome, path, out = optimized(flattened(), tmp_path, dimensions={"batch": 3})
    assert outcome["gain"]
    assert onnx.load(out).graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"
    np.testing.assert_allclose(run(out, 5), run(path, 5), atol=1e-5)


def test_a_copy_gets_fixed_sizes_too(tmp_path):
    model = relu()
    for info in (*model.graph.input, *model.graph.output):
        info.type.tensor_type.shape.dim[0].dim_param = "n"
    path, out = write(tmp_path / "m.onnx", model), tmp_path / "fast.onnx"
    options = {**QUICK, "measure": True, "measure_seconds": 0.1, "strict": True}
    options |= {"freeze": True, "dimensions": {"n": 2}, "reporter": experiments.Reporter()}
    outcome = experiments.optimize(path, out, **options)
    in_memory = experiments.optimize(model, **options)["optimized"]
    for copy in (onnx.load(out), in_memory):
        assert copy.graph.input[0].type.tensor_type.shape.dim[0].dim_value == 2
        assert [node.op_type for node in copy.graph.node] == ["Relu"]
    assert outcome["substitutions"] == []


def test_one_size_for_each(tmp_path):
    with pytest.raises(UsageError, match="--freeze: expected one size .* found batch=1,2"):
        optimized(flattened(), tmp_path, freeze=True, dimensions={"batch": [1, 2]})
    inputs = []
    for rows in (1, 2):
        inputs.append(tmp_path / f"{rows}.npz")
        np.savez(inputs[-1], image=np.ones((rows, 2, 4), np.float32))
    with pytest.raises(UsageError, match="inputs of the same sizes, found batch=1 and batch=2"):
        optimized(flattened(), tmp_path, freeze=True, inputs=inputs)
