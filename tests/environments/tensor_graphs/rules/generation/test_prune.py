"""What says nothing new is seen: renamings, common subgraphs, what other rules imply."""

from __future__ import annotations

from environments.tensor_graphs.graph.nodes import TensorType
from environments.tensor_graphs.rules.generation.prune import Rewriter, canonical, without_common
from environments.tensor_graphs.rules.language.expressions import parse
from environments.tensor_graphs.rules.language.terms import Bindings
from tests.environments.tensor_graphs.rules.making import make


def test_renamings_are_one_rule():
    first = make("(Mul (Add ?x ?y) ?z)", "(Add (Mul ?x ?z) (Mul ?y ?z))")
    second = make("(Mul ?b (Add ?a ?c))", "(Add (Mul ?c ?b) (Mul ?a ?b))")
    assert canonical(first) == canonical(second)
    third = make("(Mul (Sub ?x ?y) ?z)", "(Sub (Mul ?x ?z) (Mul ?y ?z))")
    swapped = make("(Mul (Sub ?x ?y) ?z)", "(Sub (Mul ?y ?z) (Mul ?x ?z))")
    assert canonical(third) != canonical(swapped)
    named = make("(Softmax ?x :axis $a)", "(Softmax ?x :axis $a)", "(= $a 0)")
    renamed = make("(Softmax ?y :axis $b)", "(Softmax ?y :axis $b)", "(= $b 0)")
    assert canonical(named) == canonical(renamed)


def test_common_subgraphs_become_variables():
    rule = make("(Add (Relu ?x) (Neg ?y))", "(Sub (Relu ?x) ?y)")
    (wider,) = without_common(rule)
    assert str(wider.source[0]) == "(Add ?common (Neg ?y))"
    assert str(wider.target[0]) == "(Sub ?common ?y)"


def test_implied_rules_are_seen():
    rules = [
        make("(Relu (Relu ?x))", "(Relu ?x)"),
        make("(Transpose (Relu ?x) :perm $p)", "(Relu (Transpose ?x :perm $p))"),
    ]
    bindings = Bindings({"x": TensorType("float32", (2, 3))}, {"p": (1, 0)})
    rewriter = Rewriter(bindings, rules)
    old = parse("(Relu (Transpose (Relu ?x) :perm $p))")
    assert rewriter.leads_to(old, parse("(Transpose (Relu ?x) :perm $p)"), depth=2)
    assert not rewriter.leads_to(old, parse("(Transpose ?x :perm $p)"), depth=3)
