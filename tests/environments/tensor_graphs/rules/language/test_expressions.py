"""The language of rules: texts, terms, substitutions, and rules written in Python."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs.graph.nodes import TensorType
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    ExpressionError,
    Literal,
    Variable,
    parse,
    parse_term,
    substitute,
    variables,
)
from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    Scalar,
    concat,
    only_where,
    op,
    permute,
    rule,
    rules_in,
)
from environments.tensor_graphs.rules.language.rule import Rule, RuleError
from environments.tensor_graphs.rules.language.terms import (
    Bindings,
    TermError,
    evaluate,
    holds,
    make_array,
)

BINDINGS = Bindings(
    {
        "x": TensorType("float32", (2, 3, 4)),
        "n": TensorType("float32", ("N", 3)),
        "unknown": TensorType("float32", None),
    },
    {"p": (2, 0, 1), "s": 2},
    {"x"},
)


@pytest.mark.parametrize(
    "text",
    [
        "?x",
        "(Relu ?x)",
        "(Conv ?x ?w :group 2 :strides $s)",
        "(output 1 (Split ?x :axis (- (rank ?x) 1) :split (list $m $n)))",
        "(Clip ?x nil ?max)",
        "(Mul ?x (full 0.5))",
        '(Gelu ?x :approximate "none")',
        "(Add ?x (full 0.0 (list) (dtype ?x)))",
    ],
)
def test_an_expression_is_what_it_prints(text: str):
    assert str(parse(text)) == text


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("(Relu ?x", "missing"),
        ("(Relu ?x))", "too many"),
        ("(Relu x)", "expected a tensor"),
        ("(Relu ?x :a)", "no value"),
        ("(Relu ?x :a ?y)", "is a tensor"),
        ("(output x (Split ?x))", "NUMBER"),
        ("?x ?y", "one expression"),
        ("()", "operator's name"),
    ],
)
def test_what_is_no_expression_is_refused_in_one_line(text: str, problem: str):
    with pytest.raises(ExpressionError, match=problem) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_variables_can_be_replaced():
    expression = parse("(Add ?x (Relu ?y))")
    changed = substitute(expression, {"?x": parse("(Neg ?z)")})
    assert str(changed) == "(Add (Neg ?z) (Relu ?y))"
    assert variables(changed) == ("z", "y")
    with pytest.raises(ExpressionError):
        substitute(expression, {"?x": Literal(1)})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("(dim ?x -1)", 4),
        ("(dim ?n 0)", "N"),
        ("(* (dim ?n 0) 2)", "2*N"),
        ("(/ (* (dim ?n 0) 2) 2)", "N"),
        ("(permute (shape ?x) $p)", (4, 2, 3)),
        ("(permute $p (inverse $p))", (0, 1, 2)),
        ("(set (shape ?x) 1 (+ 1 $s))", (2, 3, 4)),
        ("(concat (slice (shape ?x) 0 -1) (list 7))", (2, 3, 7)),
        ("(broadcast (shape ?x) (list 3 1))", (2, 3, 4)),
        ("(if (constant ?x) (size ?x) 0)", 24),
        ("(= (shape ?n) (list (dim ?n 0) 3))", True),
        ("(= (shape ?n) (shape ?x))", False),
        ("(or (= (dim ?n 0) 4) (= (rank ?x) 3))", True),
        ("(and (constant ?n) (= (dim ?n 0) 4))", False),
        ('(in (dtype ?x) (list "float16" "float32"))', True),
    ],
)
def test_terms(text: str, value: object):
    assert evaluate(parse_term(text), BINDINGS) == value


@pytest.mark.parametrize(
    "text",
    [
        "(= (dim ?n 0) 4)",
        "(!= (dim ?n 0) 4)",
        "(not (= (dim ?n 0) 4))",
        "(< (dim ?n 0) 4)",
        "(= (dim ?x 3) 4)",
        "(= (/ 3 2) 1)",
        "(= (rank ?unknown) 1)",
        "(= (+ (dim ?n 0) 1) 1)",
    ],
)
def test_a_condition_of_which_nothing_is_known_is_not_met(text: str):
    with pytest.raises(TermError):
        evaluate(parse_term(text), BINDINGS)
    assert not holds(parse_term(text), BINDINGS)


def test_arrays():
    array = parse("(full 0.5 (list 2) (dtype ?x))")
    np.testing.assert_array_equal(make_array(array, BINDINGS), np.full(2, 0.5, np.float32))
    kernel = make_array(parse('(identity_kernel 4 2 2 "float32")'), BINDINGS)
    assert kernel.shape == (4, 2, 1, 1)
    np.testing.assert_array_equal(kernel[:, :, 0, 0], [[1, 0], [0, 1], [1, 0], [0, 1]])


def test_a_substitution_is_what_it_was_written_as():
    one = Rule.from_dict(
        {
            "name": "relu_twice",
            "source": ["(Relu (Relu ?x))"],
            "target": ["(Relu ?x)"],
            "conditions": ["(> (rank ?x) 0)"],
            "restrictions": [],
            "verified_by": "",
        }
    )
    assert Rule.from_dict(one.as_dict()) == one
    assert str(one).splitlines()[1] == "  (Relu (Relu ?x))  =>  (Relu ?x)"


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
        ({"target": ["(zeros ?x)"]}, "no array is called 'zeros'"),
        ({"source": ["(Add ?x (full 1 (list)))"]}, "expected \\(full VALUE\\)"),
        ({"source": ["(Relu ?x)", "(Relu ?y)"], "target": ["?x", "?y"]}, "shares no variable"),
        ({"source": ["(Relu ?x)", "(Tanh (Relu ?x))"], "target": ["?x", "?x"]}, "a part of"),
        ({"source": ["(Relu ?x)", "(Relu ?x)"], "target": ["?x", "?x"]}, "twice"),
        ({"source": ["(Relu ?x"]}, "missing"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused_in_one_line(fields: dict, problem: str):
    rule_data = {"name": "one", "source": ["(Relu ?x)"], "target": ["?x"], **fields}
    with pytest.raises(RuleError, match=problem) as caught:
        Rule.from_dict(rule_data)
    assert "\n" not in str(caught.value)


@rule
def scale_into_weight(x, w: Constant, s: Scalar):
    return (x @ w) * s, x @ (w * s)


@rule
def transposed_twice(x, p: Attribute, q: Attribute):
    return op.Transpose(op.Transpose(x, perm=p), perm=q), op.Transpose(x, perm=permute(p, q))


def test_rules_in_python():
    assert str(scale_into_weight).splitlines() == [
        "scale_into_weight:",
        "  (Mul (MatMul ?x ?w) ?s)  =>  (MatMul ?x (Mul ?w ?s))",
        "    if (= (size ?s) 1)",
        "    only where (constant ?w)",
    ]
    assert rules_in(globals()) == (scale_into_weight, transposed_twice)


def test_numbers_in_a_target_have_the_type_of_what_is_beside_them():
    @rule
    def doubled(x, s: Attribute):
        return op.Reshape(x, shape=s) * 2.0, op.Reshape(x + x * 1.0, shape=concat(s)), x.rank > 1

    assert str(doubled.source[0]) == "(Mul (Reshape ?x :shape $s) (full 2.0))"
    assert "(Mul ?x (full 1.0 (list) (dtype ?x)))" in str(doubled.target[0])


def test_what_is_no_rule_in_python():
    with pytest.raises(RuleError, match="a source and a target"):
        rule(lambda x: x)
    with pytest.raises(RuleError, match="expected one of Constant"):

        @rule
        def wrong(x: int):
            return x, x

    with pytest.raises(RuleError, match="expected a condition"):
        rule(lambda x: (op.Relu(x), x, True))
    with pytest.raises(TypeError, match="all_of"):
        rule(lambda x: (op.Relu(x), x, x.rank == 1 and x.size == 1))
    with pytest.raises(RuleError, match="is not in its source"):
        rule(lambda x, y: (op.Relu(x), y))


def test_restrictions_are_kept_apart():
    one = rule(lambda x: (op.Relu(x), x, only_where(x.rank == 2)))
    assert not one.conditions
    assert [str(each) for each in one.restrictions] == ["(= (rank ?x) 2)"]
    assert one.source == (Apply("Relu", (Variable("x"),)),)
