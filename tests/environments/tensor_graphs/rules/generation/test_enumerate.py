"""What a generator enumerates over a tiny vocabulary, and the rules it makes, worked by hand."""

from __future__ import annotations

from environments.tensor_graphs.rules.generation.enumerate import Enumeration
from environments.tensor_graphs.rules.generation.generate import Generator
from environments.tensor_graphs.rules.generation.prune import canonical
from environments.tensor_graphs.rules.generation.vocabularies import (
    Vocabulary,
    make_leaves,
    make_moves,
)
from tests.environments.tensor_graphs.rules.making import make

ZERO, ONE = (f"(full {number} (list) (dtype ?x))" for number in (0.0, 1.0))


def tiny(leaves, moves, **settings):
    """A vocabulary of matrices: x and z have one shape, and y has one more row."""

    def world(draw):
        rows, columns = draw.rng.sample((2, 3, 4), 2)
        return {"x": (rows, columns), "y": (rows + 1, columns), "z": (rows, columns)}, {}

    leaves = make_leaves(*leaves)
    return Vocabulary(
        "tiny", leaves, tuple(moves), world, num_worlds=4, is_exhaustive=True, **settings
    )


def pairs(vocabulary, size):
    worlds = vocabulary.worlds(0)
    enumeration = Enumeration(worlds, vocabulary.leaves, vocabulary.moves, size)
    return enumeration, {
        (str(candidate.larger.expression), str(candidate.smaller.expression))
        for candidate in enumeration.candidates
    }


def test_sums_and_products_of_one_operator():
    # Leaves: x, 0 and 1. A commutative operator has 3 * 4 / 2 = 6 pairs of them, so with the leaves
    # there are 3 + 2 * 6 = 15 expressions. Of the sums
    #   x + x and 1 + 1 are new, 1 + x is new, and 0 + x = x, 0 + 0 = 0, 1 + 0 = 1;
    # of the products
    #   x x is new, 0 x is new (it has the shape of x), and 1 x = x, 0 0 = 0, 1 0 = 0, 1 1 = 1.
    # Seven equal an earlier one, so 15 - 7 = 8 are distinct.
    vocabulary = tiny(["?x", ZERO, ONE], make_moves("Add Mul", 2), max_size=1)
    enumeration, equalities = pairs(vocabulary, 1)
    assert (enumeration.num_expressions, enumeration.num_distinct) == (15, 8)
    assert equalities == {
        (f"(Add {ZERO} ?x)", "?x"),
        (f"(Add {ZERO} {ZERO})", ZERO),
        (f"(Add {ONE} {ZERO})", ONE),
        (f"(Mul {ONE} ?x)", "?x"),
        (f"(Mul {ZERO} {ZERO})", ZERO),
        (f"(Mul {ONE} {ZERO})", ZERO),
        (f"(Mul {ONE} {ONE})", ONE),
    }
    # A rule needs a variable in its source and an operator to begin at, so five pairs make none.
    generator = Generator(0, num_instances=20)
    rules = generator.run([vocabulary])
    assert [str(rule).split("\n")[1].strip() for rule in rules] == [
        "(Add (full 0.0) ?x)  =>  ?x",
        "(Mul (full 1.0) ?x)  =>  ?x",
    ]
    counts = generator.counts["tiny"]
    assert (counts["candidates"], counts["not expressible"], counts["distinct"]) == (7, 5, 8)


def test_sums_of_two_operators_are_associative_in_both_directions():
    # Leaves x and z of one shape; sums of them are x + x, z + x and z + z. With two operators there
    # are 3 * 2 = 6 sums of a sum and a leaf, of which these are equal:
    #   (x + x) + z = (z + x) + x   and   (z + x) + z = (z + z) + x.
    # The second is the first with x and z exchanged.
    vocabulary = tiny(["?x", "?z"], make_moves("Add", 2), max_size=2)
    _, equalities = pairs(vocabulary, 2)
    assert equalities == {
        ("(Add (Add ?z ?x) ?x)", "(Add (Add ?x ?x) ?z)"),
        ("(Add (Add ?z ?z) ?x)", "(Add (Add ?z ?x) ?z)"),
    }
    rules = Generator(0, num_instances=20).run([vocabulary])
    assert {canonical(rule) for rule in rules} == {
        canonical(make("(Add (Add ?x ?x) ?z)", "(Add (Add ?z ?x) ?x)")),
        canonical(make("(Add (Add ?z ?x) ?x)", "(Add (Add ?x ?x) ?z)")),
    }
