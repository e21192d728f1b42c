"""A rule matches only where the element types of its variables are among its own."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, TensorType
from environments.tensor_graphs.operators import building
from environments.tensor_graphs.rewriting.match_index import MatchIndex
from environments.tensor_graphs.rewriting.matching import compile_rules
from environments.tensor_graphs.rules import files as rule_files
from tests.environments.tensor_graphs.rules.making import make

DTYPES = ("float16", "float32", "int8", "int64", "uint8", "uint64", "bool")
SHIPPED = rule_files.load()


def matched(graph, *rules):
    """The names of the rules that match."""
    return {match.rule for match in MatchIndex(graph, compile_rules(rules)).matches}


def chain(dtype, *operators):
    """A graph that applies operators to an input, one after the other."""
    edit = Graph().edit()
    ref = edit.add(INPUT, [], (("name", "x"),), [TensorType(dtype, (2, 3))])
    for op, attributes in operators:
        (ref,) = building.add(edit, op, ref, **attributes)
    edit.set_outputs([ref], ["y"])
    return edit.finish()[0]


TRANSPOSED = ("Transpose", {"perm": (1, 0)})


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
    names = matched(chain(dtype, TRANSPOSED, TRANSPOSED), rule)
    assert bool(names) == (dtype in expected)


@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_a_condition_has_a_type_of_its_own(dtype):
    """Truth values choose among numbers; only the numbers' types count."""
    edit = Graph().edit()
    types = (("c", "bool"), ("x", dtype), ("y", dtype))
    refs = [edit.add(INPUT, [], (("name", n),), [TensorType(t, (2,))]) for n, t in types]
    (turned,) = building.add(edit, "Not", refs[0])
    (chosen,) = building.add(edit, "Where", turned, *refs[1:])
    edit.set_outputs([chosen], ["z"])
    rule = make("(Where (Not ?c) ?x ?y)", "(Where ?c ?y ?x)", types=["float"])
    assert bool(matched(edit.finish()[0], rule)) == (dtype == "float32")


@pytest.mark.parametrize(
    ("dtype", "name", "operators"),
    [
        ("int64", "negative_twice", [("Neg", {}), ("Neg", {})]),
        ("float32", "negative_twice", [("Neg", {}), ("Neg", {})]),
        ("bool", "transposed_twice", [TRANSPOSED, TRANSPOSED]),
        ("uint8", "abs_abs_to_abs", [("Abs", {}), ("Abs", {})]),
    ],
)
def test_what_is_right_for_integers_still_matches(dtype, name, operators):
    assert name in matched(chain(dtype, *operators), *SHIPPED)


def square(dtype):
    edit = Graph().edit()
    x = edit.add(INPUT, [], (("name", "x"),), [TensorType(dtype, (2,))])
    (product,) = building.add(edit, "Mul", x, x)
    (size,) = building.add(edit, "Abs", product)
    edit.set_outputs([size], ["y"])
    return edit.finish()[0]


def quotients(dtype):
    edit = Graph().edit()
    ref = edit.add(INPUT, [], (("name", "x"),), [TensorType(dtype, (2,))])
    for number in (50, 100):
        constant = edit.add_constant(np.array(number, dtype))
        (ref,) = building.add(edit, "Div", ref, constant)
    edit.set_outputs([ref], ["y"])
    return edit.finish()[0]


@pytest.mark.parametrize(
    ("graph_fn", "name", "expected"),
    [
        (square, "abs_mul_to_mul", {"float16", "float32", "uint8", "uint64"}),
        (quotients, "div_div_to_div_mul", {"float16", "float32"}),
    ],
)
def test_what_is_wrong_for_integers_does_not_match(graph_fn, name, expected):
    dtypes = [dtype for dtype in DTYPES if dtype != "bool"]
    assert {dtype for dtype in dtypes if name in matched(graph_fn(dtype), *SHIPPED)} == expected
