"""ONNX's tensors are converted to arrays and back."""

from __future__ import annotations

import hypothesis
import numpy as np
import onnx
import pytest
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from environments.tensor_graphs.onnx_io import tensors

IN_NUMPY = sorted(name for name in tensors.NUMBERS if tensors.is_numpy(name))
SMALL = sorted({"int4", "uint4", "float4e2m1", "int2", "uint2"} & tensors.NUMBERS.keys())


@hypothesis.given(data=st.data(), dtype=st.sampled_from(IN_NUMPY))
def test_numpy_types_as_onnx_has_them(data, dtype):
    array = data.draw(hnp.arrays(dtype, hnp.array_shapes(min_dims=0, min_side=0, max_side=4)))
    ours = tensors.to_tensor("a", array, dtype)
    np.testing.assert_array_equal(onnx.numpy_helper.to_array(ours), array)
    np.testing.assert_array_equal(tensors.to_array(ours, None), array)
    theirs = onnx.helper.make_tensor("a", ours.data_type, array.shape, array.ravel().tolist())
    np.testing.assert_array_equal(tensors.to_array(theirs, None), array)


@hypothesis.given(
    codes=hnp.arrays(np.uint8, hnp.array_shapes(min_side=0, max_side=5)),
    dtype=st.sampled_from(SMALL),
)
def test_types_smaller_than_a_byte(codes, dtype):
    codes = codes % (4 if "2" in dtype[-2:] and dtype.endswith("int2") else 16)
    tensor = tensors.to_tensor("a", codes, dtype)
    assert len(tensor.raw_data) == tensors.size_bytes(dtype, codes.shape)
    np.testing.assert_array_equal(tensors.to_array(tensor, None), codes)


@pytest.mark.parametrize(
    ("dtype", "bits"),
    [
        ("bfloat16", [0x3F80, 0xC000, 0x3F00]),
        ("float8e4m3fn", [0x38, 0xC0, 0x30]),
        ("float8e5m2", [0x3C, 0xC0, 0x38]),
    ],
)
def test_types_that_numpy_lacks_keep_their_bits(dtype, bits):
    tensor = onnx.helper.make_tensor("a", tensors.NUMBERS[dtype], [3], [1.0, -2.0, 0.5])
    array = tensors.to_array(tensor, None)
    assert array.dtype == tensors.storage(dtype)
    assert array.tolist() == bits
    again = tensors.to_tensor("a", array, dtype)
    assert tensors.to_array(again, None).tolist() == bits


def test_texts():
    tensor = onnx.TensorProto(name="a", data_type=onnx.TensorProto.STRING, dims=[2])
    tensor.string_data.extend([b"x", "ü".encode()])
    array = tensors.to_array(tensor, None)
    assert tensors.to_tensor("a", array, "string") == tensor


@pytest.mark.parametrize("linear", [True, False])
def test_sparse_tensors(linear):
    values = onnx.helper.make_tensor("v", 1, [2], [5.0, 7.0])
    places = [1, 5] if linear else [0, 1, 1, 2]
    indices = onnx.helper.make_tensor("i", 7, [2] if linear else [2, 2], places)
    sparse = onnx.helper.make_sparse_tensor(values, indices, [2, 3])
    assert tensors.to_dense(sparse, None).tolist() == [[0, 5, 0], [0, 0, 7]]
