"""Models that are in memory become faster models in memory, and keep what is not computation."""

from __future__ import annotations

import tempfile

import numpy as np
import onnx
import onnxruntime
import pytest

from environments.errors import UsageError, UserError
from tests.environments.tensor_graphs.small_models import adapter, relu, write
from tfrl_systems import experiments

QUICK = {"objective": "analytic", "expansions": 300, "measure": False}
SILENT = {**QUICK, "reporter": experiments.Reporter()}


def labelled(model: onnx.ModelProto) -> onnx.ModelProto:
    """The model with all that a file can say beside its computation."""
    model.producer_name, model.producer_version = "exporter", "1.2"
    model.domain, model.model_version, model.doc_string = "org.example", 7, "adapts"
    onnx.helper.set_model_props(model, {"author": "somebody", "classes": '{"0": "cat"}'})
    model.graph.doc_string = "two layers"
    model.graph.input[0].doc_string = "rows"
    return model


def about(model: onnx.ModelProto) -> dict[str, object]:
    """What must not change."""
    shell = onnx.ModelProto()
    shell.CopyFrom(model)
    for field in ("node", "initializer", "value_info"):
        shell.graph.ClearField(field)
    return {name.name: value for name, value in shell.ListFields()}


def outputs(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {"x": x})[0]


@pytest.mark.parametrize(
    "opset, ir_version, batch",
    [(13, 7, 16), (17, 8, "p2o.DynamicDimension.0"), (21, 10, "p2o.DynamicDimension.0")],
)
def test_a_model_becomes_a_faster_one(batch, opset, ir_version):
    model = labelled(adapter(batch=batch))
    model.opset_import[0].version, model.ir_version = opset, ir_version
    before = model.SerializeToString()
    outcome = experiments.optimize(model, **SILENT)
    fast = outcome["optimized"]
    assert outcome["gain"] and outcome["model"] == "small" and outcome["output"] is None
    assert len(fast.graph.node) < len(model.graph.node)
    assert about(fast) == about(model) and model.SerializeToString() == before
    onnx.checker.check_model(fast, full_check=True)
    x = np.random.default_rng(0).normal(size=(16, 192)).astype(np.float32)
    expected = outputs(model, x)
    np.testing.assert_allclose(outputs(fast, x), expected, atol=1e-4 * np.abs(expected).max())


def test_without_a_gain_the_model_comes_back():
    model = labelled(relu())
    outcome = experiments.optimize(model, **SILENT)
    assert not outcome["gain"] and outcome["reason"]
    assert outcome["optimized"] == model and outcome["optimized"] is not model


def test_the_page_names_no_file_that_is_gone():
    page = experiments.optimize(adapter(), **SILENT)._repr_html_()
    assert "small.onnx" in page and tempfile.gettempdir() not in page


def test_files_and_models_in_memory_become_the_same(tmp_path):
    """Whoever asks, and however often."""
    path = write(tmp_path / "m.onnx", labelled(adapter()))
    of_file = experiments.optimize(path, tmp_path / "fast.onnx", **SILENT)
    in_memory = experiments.optimize(onnx.load(path), tmp_path / "too.onnx", **SILENT)
    assert of_file["gain"] and "optimized" not in of_file
    assert in_memory["output"] == str(tmp_path / "too.onnx")
    assert in_memory["substitutions"] == of_file["substitutions"]
    assert (tmp_path / "fast.onnx").read_bytes() == (tmp_path / "too.onnx").read_bytes()
    assert onnx.load(tmp_path / "too.onnx") == in_memory["optimized"]
    assert about(in_memory["optimized"]) == about(onnx.load(path))


def test_models_that_cannot_be_used():
    model = adapter()
    model.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    with pytest.raises(UserError, match="expected all weights in it, found 'w0'"):
        experiments.optimize(model, **SILENT)
    model = adapter()
    weight = model.graph.initializer.pop(0)
    weight.data_location = onnx.TensorProto.EXTERNAL
    constant = onnx.helper.make_node("Constant", [], ["w0"], value=weight)
    model.graph.node.insert(0, constant)
    with pytest.raises(UserError, match="expected all weights in it, found 'w0'"):
        experiments.optimize(model, **SILENT)
    model = adapter()
    model.opset_import[0].version = 99
    with pytest.raises(UserError, match="^the model: opset 99"):
        experiments.optimize(model, **SILENT)
    with pytest.raises(UsageError, match="found 'speed'"):
        experiments.optimize(adapter(), speed=3, **SILENT)


def test_sizes_and_inputs_in_python(tmp_path):
    x = np.random.default_rng(0).normal(size=(5, 192)).astype(np.float32)
    np.savez(tmp_path / "x.npz", x=x)
    model = adapter(batch="n")
    for options, sizes in (
        ({"dimensions": {"n": 3}}, [{"n": 3}]),
        ({"dimensions": {"n": [3, 4]}}, [{"n": 3}, {"n": 4}]),
        ({"inputs": tmp_path / "x.npz"}, [{"n": 5}]),
        ({"inputs": [str(tmp_path / "x.npz")]}, [{"n": 5}]),
    ):
        assert experiments.optimize(model, **SILENT, **options)["sizes"] == sizes
    with pytest.raises(UsageError, match="expected whole numbers from 1 on, found n=0"):
        experiments.optimize(model, **SILENT, dimensions={"n": 0})
