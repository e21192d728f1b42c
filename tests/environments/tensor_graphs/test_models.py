"""The zoo's models are valid, have sane activations, and are the same every time."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from environments.errors import UserError
from environments.tensor_graphs import models
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.execution.sizes import Sizes
from environments.tensor_graphs.models import families

# Of the originals as PyTorch exports them, for the CNNs.
NUM_NODES = {
    "bert-base": 622,
    "bert-mini": 222,
    "bert-tiny": 122,
    "inception-v3": 313,
    "lora-transformer": 447,
    "nasrnn": 235,
    "repvgg-a0": 169,
    "resnet-18": 69,
    "resnet-50": 175,
    "resnext-50": 175,
    "squeezenet-1.1": 65,
}
# Of the blocks of bert-mini, and those of resnext-50 without groups.
LARGE = ("bert-base", "resnet-50")
ALL = [pytest.param(name, marks=pytest.mark.ci if name in LARGE else ()) for name in NUM_NODES]


def run_randomly(model: onnx.ModelProto, batch: int = 1) -> list[np.ndarray]:
    """Run a model on random inputs; open sizes are the batch."""
    shapes = tuple(
        (value.name, tuple(size.dim_value or batch for size in value.type.tensor_type.shape.dim))
        for value in model.graph.input
    )
    inputs = random_inputs(model, sizes=Sizes(shapes=shapes))
    # Opening takes longer than one run, and without optimisations less long.
    return list(backend("onnxruntime-disable").open(model).run(inputs).values())


def test_names() -> None:
    assert set(models.NAMES) == set(NUM_NODES)
    with pytest.raises(UserError, match="no model 'vgg'; there are bert-base, bert-mini"):
        models.make("vgg")


@pytest.mark.parametrize("name", ALL)
def test_model(name: str) -> None:
    model = models.make(name)
    content = model.SerializeToString()  # once for all who read it
    onnx.checker.check_model(content)
    onnx.shape_inference.infer_shapes(content, check_type=True, strict_mode=True)
    assert len(model.graph.node) == NUM_NODES[name]
    for output, value in zip(model.graph.output, run_randomly(model), strict=True):
        declared = [size.dim_value for size in output.type.tensor_type.shape.dim]
        assert list(value.shape) == declared
        assert 0.05 < value.std() < 10


def test_a_seed_draws_the_weights_and_an_opset_chooses_the_operators() -> None:
    first, again, different = (models.make("bert-tiny", seed=seed) for seed in (1, 1, 2))
    assert first.SerializeToString() == again.SerializeToString()
    assert first.graph.node == different.graph.node
    assert list(first.graph.initializer) != list(different.graph.initializer)
    later = [node.op_type for node in models.make("bert-tiny", opset=17).graph.node]
    assert later.count("LayerNormalization") == 5


@pytest.mark.parametrize("name", ["nasrnn", *families.members("families", 0, 1)])
def test_batch_that_is_known_when_the_model_runs(name: str) -> None:
    model = models.make(name, batch="N")
    onnx.checker.check_model(model)
    assert all(len(value) == 2 for value in run_randomly(model, batch=2))
