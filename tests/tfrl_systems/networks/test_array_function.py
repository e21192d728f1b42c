"""Functions of tensors that take and return arrays."""

from __future__ import annotations

import concurrent.futures
import gc
import tracemalloc
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from tfrl_systems.networks.array_function import ArrayFunction


class Pair(NamedTuple):
    first: np.ndarray
    second: dict


def test_nests_of_arrays_become_nests_of_arrays():
    def fn(pair, scale, *, shift=None):
        assert shift is None and pair.first.shape == (2,)
        return Pair(pair.first * scale, {"is": pair.second["is"], "empty": ()})

    pair = Pair(np.array([1, 2], np.float32), {"is": np.array([[True]])})
    result = ArrayFunction(fn)(pair, np.float32(3), shift=None)
    assert isinstance(result, Pair) and isinstance(result.first, np.ndarray)
    np.testing.assert_array_equal(result.first, [3, 6])
    assert result.first.dtype == np.float32 and result.second["is"].dtype == np.bool_
    assert result.second["is"].tolist() == [[True]] and result.second["empty"] == ()


def test_tensors_become_tensors_also_in_a_graph():
    double = ArrayFunction(lambda array: 2 * array)
    eager = double(tf.constant([1, 2]))
    graph = tf.function(lambda: double(tf.constant([1, 2])) + double(np.array([3, 4], np.int32)))()
    assert tf.is_tensor(eager) and eager.numpy().tolist() == [2, 4]
    assert graph.numpy().tolist() == [8, 12]
    assert double.num_traces == 0


def test_it_is_traced_once_more_for_any_size():
    total = ArrayFunction(tf.reduce_sum)
    for size, num_traces in ((2, 1), (3, 2), (5, 2), (2, 2)):
        assert total(np.ones([size, 1])) == size
        assert total.num_traces == num_traces
    assert total(np.ones([4, 1], np.int32)) == 4 and total(np.ones([4])) == 4
    assert total.num_traces == 4  # another dtype, another number of axes


def test_axes_that_are_open_are_not_traced_anew():
    def fn(pair, rows, scale, *, shift):
        shapes = [array.shape.as_list() for array in (pair.first, rows, scale, shift)]
        assert shapes in ([[None, 3], [None, None], [], [3]], [[None, None], [None, None], [], [3]])
        return pair.first * scale + shift, rows

    call = ArrayFunction(fn, [1, 2])
    for size in (2, 4):
        pair = Pair(np.full((size, 3), 2.0), {"is": np.zeros(size)})
        total, same = call(pair, np.zeros((size, size)), 5.0, shift=np.ones(3))
        assert total.tolist() == [[11.0] * 3] * size and same.shape == (size, size)
    assert call.num_traces == 1
    call(Pair(np.ones((2, 1)), {"is": np.ones(2)}), np.zeros((2, 2)), 5.0, shift=np.ones(3))
    assert call.num_traces == 2  # its second axis was closed


def test_tensorflow_does_not_warn_of_several_functions(caplog):
    for number in range(8):
        assert ArrayFunction(lambda array, number=number: array + number)(np.int64(1)) == 1 + number
    assert not caplog.records


def test_what_was_given_and_what_was_returned_stays_as_it_was():
    """Neither may share memory with a tensor that is written into later."""
    state = tf.Variable(np.zeros(4096, np.float32))
    array = np.ones(4096, np.float32)

    def fn(array):
        state.assign(array)
        state.assign_add(array + 1)  # could be computed in the place of its argument
        return state.read_value(), array

    call = ArrayFunction(fn)
    read, same = call(array)
    state.assign_add(np.full(4096, 100, np.float32))
    call(2 * array)
    assert (array == 1).all() and (same == 1).all() and (read == 3).all()


def test_threads_do_not_get_the_results_of_others():
    call = ArrayFunction(lambda array: array + 1)
    with concurrent.futures.ThreadPoolExecutor(8) as executor:
        results = list(executor.map(lambda number: call(np.int64(number)), range(300)))
    assert [int(number) for number in results] == list(range(1, 301))


def test_an_error_in_the_graph_is_tensorflows_and_the_next_call_works():
    call = ArrayFunction(lambda array: tf.debugging.check_numerics(array, "broken"))
    with pytest.raises(tf.errors.InvalidArgumentError, match="broken"):
        call(np.float32(np.nan))
    assert call(np.float32(2)) == 2


@pytest.mark.ci
def test_no_tensor_is_left_behind():
    """On Python 3.11, TensorFlow 2.15 would leave 48 bytes for each of 4,000 tensors: 192 kB."""
    call = ArrayFunction(lambda left, right: (left + right, left * right))
    arrays = np.ones(3, np.float32), np.ones(3, np.float32)
    call(*arrays)
    tracemalloc.start()
    try:
        gc.collect()
        before_bytes, _ = tracemalloc.get_traced_memory()
        for _ in range(1000):
            call(*arrays)
        gc.collect()
        after_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after_bytes - before_bytes < 100_000
