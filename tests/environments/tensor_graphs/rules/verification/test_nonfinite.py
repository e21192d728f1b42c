"""Which rules change NaN or infinity: worked by hand, then on random graphs."""

from __future__ import annotations

import random

import numpy as np
import pytest

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.rules.verification.points import special
from environments.tensor_graphs.rules.verification.verify import verify
from tests.environments.tensor_graphs.random_graphs import random_graph, values_of
from tests.environments.tensor_graphs.rules.making import FLOATS, NoCosts, make


def change_of(source, target, conditions=(), constants=(), num_instances=60):
    """An instance in which the rule changes NaN or infinity; empty if none is found."""
    restrictions = [f"(constant ?{name})" for name in constants]
    verdict = verify(make(source, target, *conditions, restrictions=restrictions), num_instances)
    assert verdict.is_right, verdict.how
    return verdict.nonfinite_change


@pytest.mark.parametrize(
    ("source", "target", "conditions", "is_change"),
    [
        # y = 0: 1 / 0 * 0 is NaN, and x is 1.
        ("(Mul (Div ?x ?y) ?y)", "?x", [FLOATS], True),
        # y = inf: inf - inf is NaN, and x is 1.
        ("(Add (Sub ?x ?y) ?y)", "?x", [], True),
        # x = 2, y = -1, z = inf: 1 · inf is inf, inf - inf is NaN.
        ("(Mul (Add ?x ?y) ?z)", "(Add (Mul ?x ?z) (Mul ?y ?z))", [], True),
        # x = inf: 0 divided by it is 0, 0 times it is NaN.
        ("(Div (full 0.0) ?x)", "(Mul (full 0.0 (list) (dtype ?x)) ?x)", [FLOATS], True),
        # x = [inf], y = [2, -1], z = [1, 1]: inf - inf is NaN, inf · (2 - 1) is inf.
        ("(MatMul (MatMul ?x ?y) ?z)", "(MatMul ?x (MatMul ?y ?z))",
         [f"(= (rank ?{name}) 2)" for name in "xyz"], True),
        # NaN if one is, or if there are infinities of both signs; in whatever order.
        ("(Add (Add ?x ?y) ?z)", "(Add ?x (Add ?y ?z))", [], False),
        # NaN if one is, or if there are a zero and an infinity. Overflow does not count.
        ("(Mul (Mul ?x ?y) ?z)", "(Mul ?x (Mul ?y ?z))", [], False),
        # y = 0: 1 / 0 is inf, 1 · (1 / 0) too; 0 / 0 and 0 · inf are NaN; -0 brings -inf to both.
        ("(Div ?x ?y)", "(Mul ?x (Reciprocal ?y))", [FLOATS], False),
        # -0 + 0 is 0: the sign of a zero does not count.
        ("(Add ?x (full 0.0))", "?x", [], False),
    ],
)  # fmt: skip
def test_what_changes_nan_or_infinity(source, target, conditions, is_change):
    """It shows soon."""
    num_instances = 40 if is_change else 60
    assert bool(change_of(source, target, conditions, num_instances=num_instances)) == is_change


def test_an_empty_window_of_a_pool_is_infinite():
    """A window that lies in the padding has the maximum -inf, and Relu makes 0 of that."""
    (rule,) = (shipped for shipped in rule_files.load() if shipped.name == "largest_of_relu")
    assert "is 0 instead of -inf" in verify(rule, 60, seed=5).nonfinite_change


def test_weights_are_finite():
    """x = inf, w = [1], s = inf: inf · inf is inf. x = 0: NaN. w = [1, -1], s = 2: NaN in both.

    But x = [1, 1], w = [2, -1], s = inf: 1 · inf is inf, inf - inf is NaN; no weight is like that.
    """
    rule = (
        "(Mul (MatMul ?x ?w) ?s)",
        "(MatMul ?x (Mul ?w ?s))",
        ["(= (rank ?w) 2)", "(= (size ?s) 1)", "(= (rank ?s) 0)", "(= (rank ?x) 2)"],
    )
    assert change_of(*rule)
    assert not change_of(*rule, constants=("w", "s"))


def test_truth_values_must_be_equal():
    """Where x is NaN, neither x < y nor y ≤ x."""
    assert change_of("(Not (Less ?x ?y))", "(GreaterOrEqual ?x ?y)")
    assert not change_of("(Less ?x ?y)", "(Greater ?y ?x)")


def nonfinite(graph: Graph, seed: int) -> list[np.ndarray]:
    """What a graph makes of special inputs, with 0 in the place of all numbers."""
    values = values_of(graph, seed, special)
    return [np.where(np.isfinite(value), 0, value) for value in values]


def keeps_nonfinite(engine: Engine, seed: int) -> bool:
    """Whether up to eight random steps from a random graph keep NaN and infinity."""
    graph, rng = random_graph(seed), random.Random(seed)
    state = engine.start(graph)
    for _ in range(8):
        state = state.apply(rng.choice(state.matches)) if state.matches else state
    with np.errstate(all="ignore"):
        return all(
            np.array_equal(before, after, equal_nan=True)
            for number in range(5)
            for before, after in zip(
                nonfinite(graph, number), nonfinite(state.graph, number), strict=True
            )
        )


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 300), marks=pytest.mark.slow)])
def test_strict_rules_keep_nan_and_infinity_on_random_graphs(seeds):
    strict = Engine(rule_files.load(strict=True), NoCosts())
    assert all(keeps_nonfinite(strict, seed) for seed in seeds)
