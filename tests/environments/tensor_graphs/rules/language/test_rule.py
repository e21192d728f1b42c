"""Rules as data: read, written, and refused where they make no sense."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.rules.language.rule import Rule, RuleError, group_of

ENTRY = {"name": "rule", "source": ["(Relu (Relu ?x))"], "target": ["(Relu ?x)"]}


def test_a_rule_is_what_it_was_written_as():
    rule = Rule.from_dict(
        {**ENTRY, "conditions": ["(> (rank ?x) 0)"], "types": ["float", "signed"]}
    )
    assert rule.types == ("float", "signed") and Rule.from_dict(ENTRY).types == ("float",)
    assert Rule.from_dict(rule.as_dict()) == rule
    assert str(rule).splitlines()[1] == "  (Relu (Relu ?x))  =>  (Relu ?x)"


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"name": 1}, "without a name"),
        ({"extra": []}, "unknown field 'extra'"),
        ({"source": "(Relu ?x)"}, "no list of texts"),
        ({"source": []}, "0 expressions are replaced by 1"),
        ({"source": ["?x"]}, "no operator"),
        ({"target": ["?y"]}, r"\?y is not in its source"),
        ({"target": ["(Clip ?x :min $m)"]}, r"\$m is bound nowhere"),
        ({"conditions": ["(rnk ?x)"]}, "no function is called 'rnk'"),
        ({"conditions": ["(+ ?x 1)"]}, "a tensor is no argument"),
        ({"conditions": ["(dim ?x)"]}, "1 arguments of dim"),
        ({"source": ["(Add ?x (full 1 (list)))"]}, "expected \\(full VALUE\\)"),
        ({"source": ["(Relu ?x)", "(Relu ?y)"], "target": ["?x", "?y"]}, "shares no variable"),
        ({"source": ["(Relu ?x)", "(Tanh (Relu ?x))"], "target": ["?x", "?x"]}, "a part of"),
        ({"source": ["(Relu ?x)", "(Relu ?x)"], "target": ["?x", "?x"]}, "twice"),
        *(({"types": types}, "types") for types in (["int8"], "float", [1])),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_in_one_line(fields: dict, problem: str):
    with pytest.raises(RuleError, match=problem) as caught:
        Rule.from_dict({**ENTRY, **fields})
    assert "\n" not in str(caught.value)


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


@pytest.mark.parametrize(
    ("source", "target", "constants", "only_removes"),
    [
        (["(Neg (Neg ?x))"], ["?x"], "", True),
        (["(Add ?x ?y)"], ["(Add ?y ?x)"], "", False),
        # What is new is computed of constants, or is not.
        (["(Mul (MatMul ?x ?w) ?c)"], ["(MatMul ?x (Mul ?w ?c))"], "wc", True),
        (["(Mul (MatMul ?x ?w) ?c)"], ["(MatMul ?x (Mul ?w ?c))"], "w", False),
        # A Neg that two outputs share becomes two.
        (["(Abs (Neg ?x))", "(Exp (Neg ?x))"], ["(Neg (Abs ?x))", "(Neg (Exp ?x))"], "", False),
        (["(Relu ?x)", "(Abs ?x)"], ["?x", "(Abs ?x)"], "", True),
    ],
)
def test_whether_a_rule_only_removes_what_is_computed(source, target, constants, only_removes):
    restrictions = [f"(constant ?{name})" for name in constants]
    rule = {"name": "rule", "source": source, "target": target, "restrictions": restrictions}
    assert Rule.from_dict(rule).only_removes is only_removes
