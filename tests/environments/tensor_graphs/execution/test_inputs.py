"""Inputs are drawn within bounds, or are the user's own."""

from __future__ import annotations

import pathlib

import numpy as np
import pytest

from environments.errors import UserError
from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.execution import inputs
from environments.tensor_graphs.execution.sizes import OpenSizes
from tests.environments.tensor_graphs.execution.models import chain, parsed, relus


def test_random_inputs_are_within_bounds() -> None:
    model = models.make("bert-tiny", batch="N")
    sizes = OpenSizes(onnx_io.read(model)).at({"N": 5})
    arrays = inputs.random_inputs(model, seed=1, sizes=sizes)
    assert {name: array.shape for name, array in arrays.items()} == {
        "input_ids": (5, 128),
        "attention_mask": (5, 128),
        "token_type_ids": (5, 128),
    }
    assert arrays["input_ids"].max() > 20000
    assert set(np.unique(arrays["attention_mask"])) == {0, 1}
    assert arrays["input_ids"].dtype == np.int64
    again = inputs.random_inputs(model, seed=1, sizes=sizes)
    assert all(np.array_equal(arrays[name], again[name]) for name in arrays)


def test_integers_span_the_range_unless_they_index() -> None:
    model = parsed(
        """g (int64[99] id, int64[99] word, int8[99] small)
          => (float[99,1] y, int64[99] h, int8[99] s)
        <float[5,1] table = {1, 2, 3, 4, 5}>
        { y = Gather(table, word) h = Mul(id, id) s = Mul(small, small) }"""
    )
    arrays = inputs.whole_range_inputs(model)
    assert set(arrays["word"].tolist()) == set(range(5))
    assert set(arrays["small"].tolist()) >= {-128, 127} and arrays["small"].dtype == np.int8
    assert arrays["id"].min() == -(2**63) and arrays["id"].max() == 2**63 - 1
    assert len({int(abs(float(number))).bit_length() // 8 for number in arrays["id"]}) > 5


def test_integers_that_are_compared_are_what_they_are_compared_with() -> None:
    """Each seed begins with another one of them; what is compared with nothing is 0 or 1."""
    model = parsed(
        """g (int64 rate, int64[9] many, int64[9] mask) => (bool y, bool[9] z, int64[9] m)
        <int64 high = {16000}, int64 low = {8000}, int64[1] three = {3}, int64[1] all = {0}>
        { a = Equal(rate, high) b = Equal(low, rate) y = Or(a, b) u = Unsqueeze(many, all)
          v = Squeeze(u, all) z = Less(v, three) m = Add(mask, mask) }"""
    )
    drawn = [inputs.random_inputs(model, seed) for seed in range(2)]
    assert {int(arrays["rate"]) for arrays in drawn} == {8000, 16000}
    assert set(drawn[0]["many"].tolist()) == {3} and set(drawn[0]["mask"].tolist()) <= {0, 1}


def test_inputs_of_the_users(tmp_path: pathlib.Path) -> None:
    model, path = chain("Relu", size="N"), tmp_path / "inputs.npz"
    x = np.ones([3, 64], np.float32)
    np.savez(path, x=x)
    np.testing.assert_array_equal(inputs.load_inputs(path, model)["x"], x)
    for arrays, message in [
        ({"z": x}, "input 'x' is missing; found z"),
        ({"x": x, "z": x}, "the model has no input 'z', but x"),
        ({"x": x[:, :3]}, r"'x' is float32\[3, 3\]; the model expects float32\['\?', 64\]"),
        ({"x": x.astype("f8")}, "is float64"),
    ]:
        np.savez(path, **arrays)
        with pytest.raises(UserError, match=message):
            inputs.load_inputs(path, model)
    path.write_text("nothing")
    with pytest.raises(UserError, match=r"inputs\.npz: expected a \.npz file"):
        inputs.load_inputs(path, model)


@pytest.mark.parametrize("size", ["n", -1])
def test_inputs_are_never_drawn_at_sizes_that_nobody_chose(size):
    with pytest.raises(ValueError, match="'x' leaves a size open"):
        inputs.random_inputs(relus(x=[size, 3]))
