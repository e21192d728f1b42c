"""All variables travel; what does not fit is named."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from tfrl_systems.policies import variables


def make(**values) -> list[tf.Variable]:
    return [tf.Variable(value, name=name) for name, value in values.items()]


def read(target, data):
    return variables.Layout.of(target).read(data)


def test_types_and_shapes_survive():
    values = np.float32(1.5), np.zeros((2, 0)), np.array([[True, False]]), np.array([2**40])
    source = make(**dict(zip("abcd", values, strict=True)))
    data = variables.to_bytes(source, version=7)
    assert variables.Packer(source).to_bytes(7) == data
    version, arrays = read(source, data)
    assert version == 7
    for array, value in zip(arrays, values, strict=True):
        np.testing.assert_array_equal(array, value)
        assert (array.dtype, array.shape) == (value.dtype, value.shape)


@pytest.mark.parametrize(
    "target, words",
    [
        (make(w=[1.0, 2.0], z=[1.0]), r"variable z:0: expected name z:0, found b:0"),
        (make(w=[1.0], b=[1.0]), r"variable w:0: expected shape \(1,\), found \(2,\)"),
        (make(w=[1, 2], b=[1.0]), r"variable w:0: expected dtype int32, found float32"),
        (make(w=[1.0, 2.0]), r"expected 1, found 2 in the buffer, .* is b:0"),
        (
            make(w=[1.0, 2.0], b=[1.0], c=0),
            r"expected 3, found 2 in the buffer, without c:0; send all",
        ),
        (
            make(s=1.0, w=[1.0, 2.0], t=1.0, b=[1.0]),
            r"expected 4, found 2 .* without s:0, t:0; send",
        ),
    ],
)
def test_a_mismatch_names_the_variable(target, words):
    data = variables.to_bytes(make(w=[3.0, 4.0], b=[5.0]))
    with pytest.raises(variables.VariablesError, match=words):
        read(target, data)


def test_numbers_that_keras_adds_to_names_do_not_matter():
    data = variables.to_bytes([tf.Variable([1.0], name="dense_3/kernel")])
    _, ((value,),) = read([tf.Variable([0.0], name="dense/kernel")], data)
    assert value == 1.0


def test_damaged_buffers_are_refused():
    data = variables.to_bytes(make(w=[3.0, 4.0]))
    for spoiled in (b"", b"rubbish of some length", data[:-1], data + b"x", data[:20]):
        with pytest.raises(variables.VariablesError, match="buffer made by to_bytes"):
            read(make(w=[0.0, 0.0]), spoiled)


def test_only_numbers_travel():
    with pytest.raises(variables.VariablesError, match="variable s:0: expected numbers"):
        variables.to_bytes([tf.Variable("text", name="s")])
