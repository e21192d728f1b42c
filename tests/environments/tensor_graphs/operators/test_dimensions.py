"""Arithmetic of sizes with names."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from environments.tensor_graphs.operators import dimensions

VALUES = {"N": 5, "S": 7, "H": 11, "W": 2}


def value(size: int | str) -> int:
    """Evaluate the text of a size, which is also valid Python."""
    expected: int = eval(str(size), {}, VALUES)
    assert dimensions.value(size, VALUES) == expected
    return expected


def test_sizes_are_written_in_one_way():
    assert dimensions.product(["N", 128]) == "128*N" == dimensions.product([2, "N", 64])
    assert dimensions.product(["S", "N"]) == "N*S" == dimensions.product(["N", "S"])
    assert dimensions.product(["N"]) == "N"
    assert dimensions.product([]) == 1
    assert dimensions.product(["N", 0]) == 0
    assert dimensions.total(["N", "N", 3]) == "2*N+3"
    assert dimensions.total(["2*N+3", -3]) == "2*N"
    assert dimensions.total(["N", 1, dimensions.product(["N", -1])]) == 1
    assert dimensions.product(["N+1", "N-1"]) == "N*N-1"


def test_rounded_quotients_are_names():
    half = dimensions.rounded_down("H+1", 2)
    assert half == "((H+1)//2)"
    assert dimensions.rounded_down("2*H+4", 2) == "H+2"
    assert dimensions.rounded_down("2*H+1", 2) == "H"
    assert dimensions.total([dimensions.rounded_down("H-1", 2), 1]) == half
    assert dimensions.rounded_down(7, 2) == 3


def test_names_that_do_not_look_like_names():
    assert dimensions.product(["past length", 1]) == "past length"
    assert dimensions.product(["past length", 2]) == "2*{past length}"
    assert dimensions.quotient("2*{past length}", 2) == "past length"
    assert dimensions.product(["floor(H/2) ?", "N"]) == "N*{floor(H/2) ?}"
    assert dimensions.total(["S*N*2"]) == "2*N*S"
    assert dimensions.total(["H//0"]) == "H//0"


def test_quotients():
    assert dimensions.quotient(12, 4) == 3
    assert dimensions.quotient("128*N", "N") == 128
    assert dimensions.quotient("128*N*S", "64*S") == "2*N"
    assert dimensions.quotient("N+S", "N+S") == 1
    assert dimensions.quotient("2*N+4", 2) == "N+2"


@pytest.mark.parametrize(
    ("size", "divisor"), [(12, 5), (3, 0), ("N", 2), ("N", "S"), (4, "N"), ("N*S+1", "N")]
)
def test_quotients_that_are_none(size, divisor):
    with pytest.raises(ValueError, match="cannot be divided"):
        dimensions.quotient(size, divisor)


SIZES = st.one_of(st.integers(0, 9), st.sampled_from([*VALUES, "2*N", "N+3", "((H+1)//2)"]))


@given(st.lists(SIZES, max_size=4), st.lists(SIZES, max_size=4), st.integers(1, 5))
def test_a_text_has_the_value_of_what_it_was_made_of(left, right, divisor):
    sums = [dimensions.total(left), dimensions.total(right)]
    result = dimensions.product(sums)
    assert value(result) == sum(map(value, left)) * sum(map(value, right))
    assert value(dimensions.rounded_down(result, divisor)) == value(result) // divisor
    assert dimensions.product(reversed(sums)) == result == dimensions.total([result])


def test_a_size_is_worked_out_where_names_have_values():
    assert dimensions.value("128*N-1", {"N": 3}) == 383
    assert dimensions.value("2*{past length}+((H+1)//2)", {"past length": 5, "H": 4}) == 12
    assert dimensions.value("past length", {}) == 1
