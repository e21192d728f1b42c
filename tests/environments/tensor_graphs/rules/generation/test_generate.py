"""The generator finds what is there to find, and says it once."""

from __future__ import annotations

import dataclasses

import pytest

from environments.tensor_graphs.rules.generation import vocabularies
from environments.tensor_graphs.rules.generation.generate import STAGES, Generator
from environments.tensor_graphs.rules.generation.prune import canonical
from tests.environments.tensor_graphs.rules.making import make

BY_NAME = {vocabulary.name: vocabulary for vocabulary in vocabularies.VOCABULARIES}


def generate(name, max_size, seed=0, without=()):
    """Rules of a vocabulary, without some operators."""
    vocabulary = BY_NAME[name]
    moves = tuple(move for move in vocabulary.moves if move.op not in without)
    generator = Generator(seed, max_size, num_instances=20)
    generator.run([dataclasses.replace(vocabulary, moves=moves)])
    return generator


@pytest.mark.ci
def test_small_rules_of_order_are_found():
    generator = generate("order", 2, without=["Min", "Abs"])
    texts = {canonical(rule) for rule in generator.rules}
    expected = (
        ("(Max ?x ?x)", "?x"),
        ("(Relu (Relu ?x))", "(Relu ?x)"),
        ("(Neg (Neg ?x))", "?x"),
        ("(Max (Max ?z ?x) ?y)", "(Max (Max ?y ?x) ?z)"),
    )
    assert {canonical(make(*sides)) for sides in expected} <= texts
    assert all(rule.verified_by for rule in generator.rules)
    counts = generator.counts["order"]
    assert counts["rules"] == len(generator.rules) > 5
    assert set(counts) <= set(STAGES)
    assert counts["renamings"] > 0
    assert len(texts) == len(generator.rules)
    assert len({rule.name for rule in generator.rules}) == len(generator.rules)


def test_what_is_known_is_not_found_again():
    again = Generator(0, 1, generate("order", 1).rules, num_instances=20)
    assert again.run([BY_NAME["order"]]) == []
