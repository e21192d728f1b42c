"""Two models compute the same, or it is said where they do not."""

from __future__ import annotations

import numpy as np
import pytest

from environments.errors import UserError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution import equivalence
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.differences import compare_outputs
from environments.tensor_graphs.execution.reference import Reference
from tests.environments.tensor_graphs.execution.models import (
    of_x,
    scaled,
    shifted_there_and_back,
)
from tests.environments.tensor_graphs.small_models import written


def test_the_larger_difference_of_two_checks_counts():
    x = np.array([1.0, 2.0], np.float32)
    exact, off = (
        equivalence.Equivalence(tuple(compare_outputs({"y": x}, {"y": x + d})), 1)
        for d in (0.0, 1.0)
    )
    for pair in ((exact, off), (off, exact)):
        result = equivalence.joined(*pair)
        assert not result.is_equal and result.num_trials == 2
        assert result.max_relative_error == pytest.approx(0.5)  # 1, of at most 2


def test_as_much_error_is_allowed_as_the_models_own_rounding_makes():
    """Around ten thousand, numbers are 1 / 1024 apart; 10 times that is still below 1%."""
    x = {"x": np.random.default_rng(0).standard_normal(100_000).astype(np.float32)}
    result = equivalence.check(shifted_there_and_back(1e4), scaled(1.0), [x])
    assert 1e-4 < result.max_relative_error < 1e-3 and result.is_equal
    wrong = equivalence.check(shifted_there_and_back(1e4), scaled(1.01), [x])
    assert not wrong.is_equal
    assert str(wrong.worst) == "output 'y': relative error 9.9e-03, 2e-03 is allowed"
    # The other way round, the model is exact, and the difference is an error.
    assert not equivalence.check(scaled(1.0), shifted_there_and_back(1e4), [x]).is_equal


def test_outputs_are_as_exact_as_what_they_are_computed_in():
    x = {"x": np.ones(3, np.float32)}
    for error, computed_in, expected in (
        (1e-3, "", False),
        (1e-3, "float16", True),
        (5e-2, "float16", False),
    ):
        result = equivalence.check(scaled(1.0), scaled(1 + error), [x], computed_in=computed_in)
        assert result.is_equal == expected
    halved = of_x("{ h = Cast <to = 10> (x) y = Cast <to = 1> (h) }")
    assert equivalence.least_exact_type(onnx_io.read(halved)) == "float16"
    assert equivalence.least_exact_type(onnx_io.read(scaled(2.0))) == "float32"


def test_onnxruntimes_layout_of_images_without_elements():
    """It keeps channels in blocks, and fails where it adds two of no image at all."""
    shapes = {"x": ["n", 16, "h", 4], "z": ["n", 16, "i", 4]}, {"y": ["n", 16, "h", 4]}
    nodes = "a = Conv(x, w) b = Conv(z, w) c = Add(a, b) y = Conv(c, w)"
    model = written(nodes, {"w": np.ones((16, 16, 1, 1), np.float32)}, *shapes)
    full, below = backend("onnxruntime"), backend("onnxruntime-extended")
    first = Reference(below.open(model))
    none, image = (
        dict.fromkeys("xz", np.ones((number, 16, 4, 4), np.float32)) for number in (0, 1)
    )
    with pytest.raises(UserError):
        equivalence.check(first, model, [none], on=full)
    assert equivalence.check(first, model, [none], on=full, below=below).is_limited
    assert not equivalence.check(first, model, [image], on=full, below=below).is_limited
