"""A rule matches only where the element types of its variables are among its own."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, TensorType
from environments.tensor_graphs.operators import building
from environments.tensor_graphs.rewriting.match_index import MatchIndex
from environments.tensor_graphs.rewriting.matching import compile_rules
from tests.environments.tensor_graphs.rules.making import graph_of, make

DTYPES = ("float16", "float32", "int8", "int64", "uint8", "uint64", "bool")
TRANSPOSED = "(Transpose (Transpose ?x :perm (list 1 0)) :perm (list 1 0))"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (("float",), {"float16", "float32"}),
        (("float", "unsigned"), {"float16", "float32", "uint8", "uint64"}),
        (("float", "signed", "unsigned", "other"), set(DTYPES)),
    ],
)
def test_a_rule_matches_its_types_only(dtype, types, expected):
    source = "(Transpose (Transpose ?x :perm $p) :perm $q)"
    rule = make(source, "(Transpose ?x :perm (permute $p $q))", types=list(types))
    index = MatchIndex(graph_of(TRANSPOSED, dtype=dtype, x=(2, 3)), compile_rules([rule]))
    assert bool(index.matches) == (dtype in expected)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_a_condition_has_a_type_of_its_own(dtype):
    """Truth values choose among numbers; only the numbers' types count."""
    edit = Graph().edit()
    types = (("c", "bool"), ("x", dtype), ("y", dtype))
    refs = [edit.add(INPUT, [], (("name", n),), [TensorType(t, (2,))]) for n, t in types]
    (turned,) = building.add(edit, "Not", refs[0])
    (chosen,) = building.add(edit, "Where", turned, *refs[1:])
    edit.set_outputs([chosen], ["z"])
    rules = compile_rules([make("(Where (Not ?c) ?x ?y)", "(Where ?c ?y ?x)", types=["float"])])
    assert bool(MatchIndex(edit.finish()[0], rules).matches) == (dtype == "float32")
