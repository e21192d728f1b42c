"""The generator finds what is there to find, and says it once."""

from __future__ import annotations

import dataclasses

import pytest

from environments.tensor_graphs.graph.nodes import TensorType
from environments.tensor_graphs.rules.generation import vocabularies
from environments.tensor_graphs.rules.generation.generalise import find_conditions, make_rule
from environments.tensor_graphs.rules.generation.generate import STAGES, Generator
from environments.tensor_graphs.rules.generation.prune import Rewriter, canonical, without_common
from environments.tensor_graphs.rules.language.expressions import parse
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.language.terms import Bindings
from environments.tensor_graphs.rules.verification.verify import needs, verify

BY_NAME = {one.name: one for one in vocabularies.VOCABULARIES}


def make(source, target, *conditions):
    """A rule."""
    data = {"name": "rule", "source": [source], "target": [target], "conditions": list(conditions)}
    return Rule.from_dict(data)


def generate(name, max_size, seed=0, without=()):
    """Rules of a vocabulary, without some operators."""
    vocabulary = BY_NAME[name]
    moves = tuple(one for one in vocabulary.moves if one.op not in without)
    generator = Generator(seed, max_size, num_instances=20)
    generator.run([dataclasses.replace(vocabulary, moves=moves)])
    return generator


def test_small_rules_of_order_are_found():
    generator = generate("order", 2, without=["Min"])
    found = {canonical(one) for one in generator.rules}
    expected = [
        make("(Max ?x ?x)", "?x"),
        make("(Relu (Relu ?x))", "(Relu ?x)"),
        make("(Neg (Neg ?x))", "?x"),
        make("(Abs (Neg ?x))", "(Abs ?x)"),
        make("(Max (Max ?z ?x) ?y)", "(Max (Max ?y ?x) ?z)"),
    ]
    for rule in expected:
        assert canonical(rule) in found, str(rule)
    assert all(one.verified_by for one in generator.rules)
    counts = generator.counts["order"]
    assert counts["rules"] == len(generator.rules) > 5
    assert set(counts) <= set(STAGES)
    assert counts["renamings"] > 0
    assert len(found) == len(generator.rules)
    assert len({one.name for one in generator.rules}) == len(generator.rules)


@pytest.fixture(scope="module")
def smallest_rules():
    return generate("order", 1).rules


def test_the_seed_determines_the_rules(smallest_rules):
    assert generate("order", 1).rules == smallest_rules


def test_what_is_known_is_not_found_again(smallest_rules):
    again = Generator(0, 1, smallest_rules, num_instances=20)
    assert again.run([BY_NAME["order"]]) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "source", "target"),
    [
        (
            "transposes",
            "(Transpose (Transpose ?x :perm $p) :perm $q)",
            "(Transpose ?x :perm (permute $p $q))",
        ),
        ("matrices", "(MatMul (Neg ?x) ?w)", "(MatMul ?x (Neg ?w))"),
        ("reshapes", "(Reshape (Reshape ?x :shape $s) :shape $t)", "(Reshape ?x :shape $t)"),
    ],
)
def test_known_rules_are_found(name, source, target):
    rules = generate(name, 2).rules
    # Conditions aside, with which it may have been found.
    found = {canonical(dataclasses.replace(one, conditions=())) for one in rules}
    assert canonical(make(source, target)) in found


@pytest.mark.slow
def test_rules_that_change_nan_and_remove_nothing_are_left_out():
    generator = generate("matrices", 2)
    # With x = 0, w infinite and c = 0 one side can be NaN where the other is not.
    scaled = canonical(make("(Mul (MatMul ?x ?w) ?c)", "(MatMul (Mul ?x ?c) ?w)"))
    found = {canonical(dataclasses.replace(one, conditions=())) for one in generator.rules}
    assert scaled not in found
    assert sum(one["change NaN and remove nothing"] for one in generator.counts.values()) > 0


def test_conditions_are_learned():
    rule = make_rule("rule", [parse("(Transpose ?x :perm $p)")], [parse("?x")])
    found = find_conditions(rule)
    assert [*map(str, found.conditions)] == ["(= $p (range 0 (length $p)))"]
    assert verify(found, 200).is_right
    assert needs(found, found.conditions[0])


def test_integers_are_excluded_where_that_is_needed():
    rule = make_rule("rule", [parse("(Mul (Div ?x ?y) ?z)")], [parse("(Div (Mul ?x ?z) ?y)")])
    (condition,) = find_conditions(rule).conditions
    assert "float32" in str(condition)


def test_no_condition_mends_what_is_wrong():
    rule = make_rule("rule", [parse("(Sub ?x ?y)")], [parse("(Add ?x ?y)")])
    assert find_conditions(rule) is None


def test_only_names_and_literals_are_sources():
    composed = parse("(Transpose ?x :perm (inverse $p))")
    assert make_rule("rule", [composed], [parse("?x")]) is None


def test_renamings_are_one_rule():
    one = make("(Mul (Add ?x ?y) ?z)", "(Add (Mul ?x ?z) (Mul ?y ?z))")
    other = make("(Mul ?b (Add ?a ?c))", "(Add (Mul ?c ?b) (Mul ?a ?b))")
    assert canonical(one) == canonical(other)
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
    known = [
        make("(Relu (Relu ?x))", "(Relu ?x)"),
        make("(Transpose (Relu ?x) :perm $p)", "(Relu (Transpose ?x :perm $p))"),
    ]
    bindings = Bindings({"x": TensorType("float32", (2, 3))}, {"p": (1, 0)})
    rewriter = Rewriter(bindings, known)
    old = parse("(Relu (Transpose (Relu ?x) :perm $p))")
    assert rewriter.leads_to(old, parse("(Transpose (Relu ?x) :perm $p)"), depth=2)
    assert not rewriter.leads_to(old, parse("(Transpose ?x :perm $p)"), depth=3)
