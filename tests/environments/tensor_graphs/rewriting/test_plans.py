"""A rule matches only where the element types of its variables are among its own."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.rewriting.match_index import MatchIndex
from environments.tensor_graphs.rewriting.matching import compile_rules
from tests.environments.tensor_graphs.rules.making import graph_of, make

DTYPES = ("float16", "float32", "int8", "int64", "uint8", "uint64", "bool")
TRANSPOSED = "(Transpose (Transpose ?x :perm (list 1 0)) :perm (list 1 0))"


def dtypes_of_matches(rule, text):
    """Of which types the inputs of a graph are where the rule matches."""
    rules = compile_rules([rule])
    graphs = {dtype: graph_of(text, dtype=dtype, x=(2, 3), y=(2, 3)) for dtype in DTYPES}
    return {dtype for dtype, graph in graphs.items() if MatchIndex(graph, rules).matches}


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (("float",), {"float16", "float32"}),
        (("float", "unsigned"), {"float16", "float32", "uint8", "uint64"}),
        (("float", "signed", "unsigned", "other"), set(DTYPES)),
    ],
)
def test_a_rule_matches_its_types_only(types, expected):
    source = "(Transpose (Transpose ?x :perm $p) :perm $q)"
    rule = make(source, "(Transpose ?x :perm (permute $p $q))", types=list(types))
    assert dtypes_of_matches(rule, TRANSPOSED) == expected


def test_a_condition_has_a_type_of_its_own():
    """Truth values choose among numbers; only the numbers' types count."""
    rule = make("(Where (Not ?c) ?x ?y)", "(Where ?c ?y ?x)", types=["float"])
    chosen = "(Where (Not (Equal ?x ?y)) ?x ?y)"
    assert dtypes_of_matches(rule, chosen) == {"float16", "float32"}
