"""Which rules others contain, worked by hand."""

from __future__ import annotations

import dataclasses

import pytest

from environments.tensor_graphs.rules import library
from environments.tensor_graphs.rules.generation.taso_operators import TASO
from tests.environments.tensor_graphs.rules.making import make
from tools.studies.derivation import (
    Derivations,
    is_within,
    num_operators,
)

JOINED = "(Concat ?x ?y :axis $a)"
RULES = (
    make("(Relu (Relu ?x))", "(Relu ?x)"),
    make(f"(Relu {JOINED})", "(Concat (Relu ?x) (Relu ?y) :axis $a)"),
)


@pytest.fixture(name="derivations")
def make_derivations():
    rules = [dataclasses.replace(rule, name=f"{n}") for n, rule in enumerate(RULES)]
    return lambda most_steps: Derivations(rules, most_steps)


def test_a_rule_is_contained_in_a_chain_of_as_many_steps(derivations):
    # Relu(Concat(Relu x, y)) -> Concat(Relu Relu x, Relu y) -> Concat(Relu x, Relu y).
    rule = make("(Relu (Concat (Relu ?x) ?y :axis $a))", "(Concat (Relu ?x) (Relu ?y) :axis $a)")
    assert not derivations(1).contain(rule)
    assert derivations(2).contain(rule)
    # Each rule contains itself, under other names.
    assert derivations(1).contain(make("(Relu (Relu ?b))", "(Relu ?b)"))
    # No rule says anything of Neg.
    assert not derivations(3).contain(make("(Neg (Neg ?x))", "?x"))


def test_the_last_step_of_three_may_be_read_backwards(derivations):
    # Concat(Relu x, Relu y) comes from Relu(Concat(x, y)) in one step, and no rule leads back.
    rule = make("(Concat (Relu ?x) (Relu ?y) :axis $a)", f"(Relu {JOINED})")
    assert not derivations(2).contain(rule)
    assert derivations(3).contain(rule)


def test_a_rule_of_two_outputs_and_constants():
    whole = "(MatMul ?x (Concat ?v ?w :axis 1))"
    cut = ":axis 1 :split (list (dim ?v 1) (dim ?w 1))"
    merge = make(
        ["(MatMul ?x ?v)", "(MatMul ?x ?w)"],
        [f"(Split {whole} {cut})", f"(output 1 (Split {whole} {cut}))"],
        *(f"(= (rank ?{name}) 2)" for name in "xvw"),
    )
    assert Derivations([merge]).contain(merge)
    zero = make("(Add ?x (full 0.0))", "?x")
    assert Derivations([zero]).contain(make("(Add (full 0.0) (Add ?z ?y))", "(Add ?y ?z)"))
    assert not Derivations([zero]).contain(make("(Add ?x (full 1.0))", "?x"))


def test_what_is_within_reach():
    by_name = {rule.name: rule for rule in library.all_rules()}
    # Two convolutions, their weights joined, one convolution and its Split: 2 and 3 operators.
    convolutions = by_name["2_convs_are_one"]
    assert (num_operators(convolutions.source), num_operators(convolutions.target)) == (2, 3)
    reachable = {name: is_within(by_name[name], TASO) for name in (
        "2_convs_are_one",
        "2_convs_with_bias_are_one",  # TASO's convolutions have no bias.
        "3_products_are_one",  # Nor does it join three.
        "relu_twice",
        "part_1_of_2_of_concat",
        "part_1_of_3_of_concat",
    )}  # fmt: skip
    assert [name for name, is_reachable in reachable.items() if is_reachable] == [
        *("2_convs_are_one", "relu_twice", "part_1_of_2_of_concat"),
    ]
