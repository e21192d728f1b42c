"""A rule matches only where the element types of its variables are among its own."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, TensorType
from environments.tensor_graphs.operators import building
from environments.tensor_graphs.rewriting.match_index import MatchIndex
from environments.tensor_graphs.rewriting.matching import compile_rules
from environments.tensor_graphs.rules import files as rule_files
from tests.environments.tensor_graphs.rules.making import graph_of, make

DTYPES = ("float16", "float32", "int8", "int64", "uint8", "uint64", "bool")
TRANSPOSED = "(Transpose (Transpose ?x :perm (list 1 0)) :perm (list 1 0))"


def matched(text, dtype, *rules):
    """The names of the rules that match, by default of those that are shipped."""
    compiled = compile_rules(rules or rule_files.load())
    graph = graph_of(text.replace("DTYPE", dtype), dtype=dtype, x=(2, 3))
    return {match.rule for match in MatchIndex(graph, compiled).matches}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (("float",), {"float16", "float32"}),
        (("float", "unsigned"), {"float16", "float32", "uint8", "uint64"}),
        (("float", "signed", "unsigned", "other"), set(DTYPES)),
        ((), set()),
    ],
)
def test_a_rule_matches_its_types_only(dtype, types, expected):
    source = "(Transpose (Transpose ?x :perm $p) :perm $q)"
    rule = make(source, "(Transpose ?x :perm (permute $p $q))", types=list(types))
    assert bool(matched(TRANSPOSED, dtype, rule)) == (dtype in expected)


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


@pytest.mark.parametrize(
    ("dtype", "name", "text"),
    [
        ("int64", "negative_twice", "(Neg (Neg ?x))"),
        ("float32", "negative_twice", "(Neg (Neg ?x))"),
        ("bool", "transposed_twice", TRANSPOSED),
        ("uint8", "abs_abs_to_abs", "(Abs (Abs ?x))"),
    ],
)
def test_what_is_right_for_integers_still_matches(dtype, name, text):
    assert name in matched(text, dtype)


@pytest.mark.parametrize(
    ("text", "name", "expected"),
    [
        ("(Abs (Mul ?x ?x))", "abs_mul_to_mul", {"float16", "float32", "uint8", "uint64"}),
        (
            '(Div (Div ?x (full 50 (list) "DTYPE")) (full 100 (list) "DTYPE"))',
            "div_div_to_div_mul",
            {"float16", "float32"},
        ),
    ],
)
def test_what_is_wrong_for_integers_does_not_match(text, name, expected):
    dtypes = [dtype for dtype in DTYPES if dtype != "bool"]
    rules = [rule for rule in rule_files.load() if rule.name == name]
    assert len(rules) == 1
    assert {dtype for dtype in dtypes if matched(text, dtype, *rules)} == expected
