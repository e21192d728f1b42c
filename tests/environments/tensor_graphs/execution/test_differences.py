"""How outputs differ, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs.execution.differences import Difference, compare_outputs


def difference(expected: object, actual: object) -> Difference:
    (only,) = compare_outputs({"y": expected}, {"y": actual})
    return only


def test_differences() -> None:
    x = np.array([0, 1, 100], np.float32)
    assert difference(x, x + np.array([0.005, 0, 0], np.float32)).is_equal
    off = difference(x, x + np.array([0.02, 0, 0], np.float32))
    assert off.relative_error == pytest.approx(2e-4)
    assert difference(x, x[:2]).reason == "float32[3] became float32[2]"
    assert difference(x, x.astype("f8")).reason == "float32[3] became float64[3]"
    assert difference(x, x * np.nan).reason == "it is not finite everywhere, as it should be"
    assert difference(x * np.nan, x).reason == "its NaNs or infinities differ"
    assert difference(x * np.nan, x * np.nan).is_equal
    assert difference(np.arange(3), np.arange(3)).is_equal
    assert difference(np.arange(3), np.arange(3)[::-1]).reason == "its int64[3] is not equal"
    assert difference([x, x], [x, x]).is_equal
    assert difference([x, x], [x]).reason == "2 elements became 1"
    assert difference([{"a": 1}], [{"b": 1}]).reason == "its keys differ"
    missing, surplus = compare_outputs({"y": x}, {"z": x})
    assert str(missing) == "output 'y': it is missing"
    assert str(surplus) == "output 'z': the first model has none"


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantised_numbers_may_differ_by_a_unit(dtype):
    x = np.array([0, 5, 100], dtype)
    for units, is_equal in ((1, True), (2, False)):
        apart = difference(x, x + np.array([0, units, 0], dtype))
        assert apart.is_equal is is_equal and apart.relative_error == pytest.approx(units / 255)
