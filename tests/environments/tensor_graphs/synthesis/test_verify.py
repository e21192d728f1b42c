"""Verification: what is right passes, what is wrong never does."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.substitutions import Substitution
from environments.tensor_graphs.synthesis.verify import needs, verify

CONV = ":strides $s :pads $p :dilations $d"
GROUPED = f"{CONV} :group $g"
FLOATS = '(in (dtype ?x) (list "float16" "float32" "float64"))'


def make(source, target, *conditions):
    """A rule; one expression or several."""
    sides = {"source": source, "target": target}
    texts = {key: [one] if isinstance(one, str) else list(one) for key, one in sides.items()}
    return Substitution.from_dict({"name": "rule", **texts, "conditions": list(conditions)})


def split(number, inside, sizes):
    """An output of a Split along the last axis of ?v."""
    return f"(output {number} (Split {inside} :axis (- (rank ?v) 1) :split {sizes}))"


MERGED = "(MatMul ?x (Concat ?v ?w :axis (- (rank ?v) 1)))"
PARTS = "(list (dim ?v -1) (dim ?w -1))"

RIGHT = {
    "associativity": make("(Add (Add ?x ?y) ?z)", "(Add ?x (Add ?y ?z))"),
    "transposes": make(
        "(Transpose (Transpose ?x :perm $p) :perm $q)", "(Transpose ?x :perm (permute $p $q))"
    ),
    "matrices": make(
        "(MatMul (MatMul ?x ?y) ?z)",
        "(MatMul ?x (MatMul ?y ?z))",
        "(>= (rank ?x) 2)",
        "(>= (rank ?y) 2)",
        "(>= (rank ?z) 2)",
    ),
    "scale into the weight": make(
        f"(Mul (Conv ?x ?w {GROUPED}) (full $c))",
        f"(Conv ?x (Mul ?w (full $c (list) (dtype ?x))) {GROUPED})",
    ),
    "merged products": make(
        ["(MatMul ?x ?v)", "(MatMul ?x ?w)"], [split(0, MERGED, PARTS), split(1, MERGED, PARTS)]
    ),
    "positive scale of Relu": make(
        "(Relu (Mul ?x (full $c)))", "(Mul (Relu ?x) (full $c (list) (dtype ?x)))", "(> $c 0)"
    ),
    "quotients": make("(Mul (Div ?x ?y) ?z)", "(Div (Mul ?x ?z) ?y)", FLOATS),
}

WRONG = {
    "swapped order": make("(Sub ?x ?y)", "(Sub ?y ?x)"),
    "swapped matrices": make("(MatMul ?x ?y)", "(MatMul ?y ?x)"),
    "swapped permutations": make(
        "(Transpose (Transpose ?x :perm $p) :perm $q)", "(Transpose ?x :perm (permute $q $p))"
    ),
    "wrong axis": make(
        "(Concat (Concat ?x ?y :axis $a) (Concat ?z ?w :axis $a) :axis $b)",
        "(Concat (Concat ?x ?z :axis $a) (Concat ?y ?w :axis $a) :axis $b)",
    ),
    "wrong axis of Softmax": make(
        "(Softmax (Transpose ?x :perm $p) :axis $a)", "(Transpose (Softmax ?x :axis $a) :perm $p)"
    ),
    "missing condition": make(
        "(Relu (Mul ?x (full $c)))", "(Mul (Relu ?x) (full $c (list) (dtype ?x)))"
    ),
    "vectors forgotten": make("(MatMul (MatMul ?x ?y) ?z)", "(MatMul ?x (MatMul ?y ?z))"),
    "vectors beside stacks forgotten": make(
        "(MatMul ?x (MatMul ?y ?z))",
        "(MatMul (MatMul ?x ?y) ?z)",
        "(>= (rank ?y) 2)",
        "(>= (rank ?z) 2)",
    ),
    "stacks beside vectors forgotten": make(
        "(MatMul (MatMul ?x ?y) ?z)",
        "(MatMul ?x (MatMul ?y ?z))",
        "(>= (rank ?y) 2)",
        "(>= (rank ?x) 2)",
    ),
    "gaps in the padding forgotten": make(
        "(Relu (MaxPool ?x :kernel_shape $k :pads $p :dilations $d))",
        "(MaxPool (Relu ?x) :kernel_shape $k :pads $p :dilations $d)",
    ),
    "wrong broadcasting": make("(MatMul (Mul ?x ?y) ?z)", "(Mul (MatMul ?x ?z) ?y)"),
    "broadcast before a sum": make(
        "(ReduceSum (Add ?x ?y) :axes $r)", "(Add (ReduceSum ?x :axes $r) ?y)"
    ),
    "square matrices only": make(
        "(Transpose (MatMul ?x ?y) :perm (list 1 0))",
        "(MatMul (Transpose ?x :perm (list 1 0)) (Transpose ?y :perm (list 1 0)))",
    ),
    "equal parts only": make(
        "(Add (Concat ?x ?y :axis $a) (Concat ?z ?w :axis $a))",
        "(Concat (Add ?x ?z) (Add ?y ?w) :axis $a)",
    ),
    "the other part": make(
        "(output 0 (Split ?x :axis $a :split (list $m $n)))",
        "(output 1 (Split ?x :axis $a :split (list $n $m)))",
    ),
    "right types, wrong place": make(
        "(output 1 (Split (Concat ?v ?w :axis 0) :axis 0 :split (list $m $n)))", "?v"
    ),
    "merged in the wrong order": make(
        ["(MatMul ?x ?v)", "(MatMul ?x ?w)"], [split(1, MERGED, PARTS), split(0, MERGED, PARTS)]
    ),
    "groups forgotten": make(
        f"(Concat (Conv ?x ?w {GROUPED}) (Conv ?y ?v {GROUPED}) :axis 1)",
        f"(Conv (Concat ?x ?y :axis 1) (Concat ?w ?v :axis 0) {CONV} :group (* 2 $g))",
    ),
    "pads are no zeros": make(
        "(MaxPool ?x :kernel_shape $k :pads $p)",
        "(MaxPool (Pad ?x :pads (concat (list 0 0) (slice $p 0 2) (list 0 0) (slice $p 2)))"
        " :kernel_shape $k)",
        "(= (rank ?x) 4)",
    ),
    "integers": make("(Mul (Div ?x ?y) ?z)", "(Div (Mul ?x ?z) ?y)"),
    "off by a little": make("(Add ?x (full 0.0001))", "?x"),
    "epsilon forgotten": make(
        "(Div ?x (Sqrt (Add (Mul ?x ?x) (full 0.00001))))", "(Div ?x (Sqrt (Mul ?x ?x)))"
    ),
    "new poles": make("(Mul ?x ?y)", "(Div (Mul (Mul ?x ?y) ?y) ?y)"),
    "the other bound": make("(Clip (Clip ?x :min $a) :min $b)", "(Clip ?x :min $a)"),
    "wrong half": make("(Max (Min ?x ?y) ?z)", "(Min (Max ?x ?z) ?y)"),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_rules_pass_and_need_their_conditions(name):
    rule = RIGHT[name]
    verdict = verify(rule, 60)
    assert verdict.is_right, verdict.how
    for condition in rule.conditions:
        assert needs(rule, condition), str(condition)


@pytest.mark.parametrize("name", WRONG)
@pytest.mark.parametrize("seed", range(2))
def test_wrong_rules_are_refused(name, seed):
    verdict = verify(WRONG[name], 500, seed)
    assert not verdict.is_right
    assert verdict.counterexample or "applied to" in verdict.how
