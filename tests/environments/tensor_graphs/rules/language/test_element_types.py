"""Groups of element types, and the variables that have a type of their own."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.rules.language.element_types import group_of, special_types
from environments.tensor_graphs.rules.language.expressions import parse


@pytest.mark.parametrize(
    ("group", "dtypes"),
    [
        ("float", ["float16", "float32", "float64", "bfloat16", "float8e4m3fn"]),
        ("signed", ["int4", "int8", "int16", "int32", "int64"]),
        ("unsigned", ["uint4", "uint8", "uint16", "uint32", "uint64"]),
        ("other", ["bool", "object", "str", "complex64", "complex128"]),
    ],
)
def test_each_element_type_is_in_a_group(group, dtypes):
    assert {group_of(dtype) for dtype in dtypes} == {group}


def test_conditions_and_indices_have_types_of_their_own():
    sources = [parse("(Where ?c ?x (Gather ?y ?i))"), parse("(And ?p (Not ?q))")]
    expected = {"c": "bool", "i": "int64", "p": "bool", "q": "bool"}
    assert special_types(sources) == expected
