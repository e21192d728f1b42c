"""Matches that are kept up to date, against the search of the whole graph."""

from __future__ import annotations

import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from environments.tensor_graphs.rewriting.match_index import MatchIndex
from environments.tensor_graphs.rewriting.matching import apply, compile_rules
from environments.tensor_graphs.rules.language.notation import op, rule
from environments.tensor_graphs.rules.library import all_rules
from tests.environments.tensor_graphs.random_graphs import random_graph, values_of
from tests.environments.tensor_graphs.rules.making import graph_of


@rule
def sums_in_another_order(x, y, z):
    return (x + y) + z, x + (y + z)


@rule
def sums_in_one_concat(x, y, z):
    """Both sums are computed together: then each depends on what the other one depends on."""
    both = op.Concat(x + y, x + z, axis=0)
    parts = op.Split(both, axis=0, split=(y.dim(0), z.dim(0)))
    return (x + y, x + z), (parts, parts.output(1)), y.rank > 0, z.rank > 0


RULES = compile_rules([sums_in_another_order, sums_in_one_concat, *all_rules()])


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_it_agrees_with_the_search_of_the_whole_graph(seed: int):
    rng = random.Random(seed)
    graph = random_graph(seed)
    index = MatchIndex(graph, RULES)
    for _ in range(6):
        if not index.matches or len(graph.nodes) > 60:
            return
        graph, change = apply(graph, rng.choice(index.matches))
        index = index.after(graph, change)
        assert index.by_rule == MatchIndex(graph, RULES).by_rule


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_all_matches_apply_and_change_no_value(seed: int):
    graph = random_graph(seed)
    expected = values_of(graph)
    for match in MatchIndex(graph, RULES).matches:
        changed, _ = apply(graph, match)
        changed.order()
        assert changed != graph, match
        for before, after in zip(expected, values_of(changed), strict=True):
            assert before.shape == after.shape
            largest = np.abs(before).max(initial=0)
            np.testing.assert_allclose(before, after, rtol=1e-6, atol=1e-6 * (1 + largest))


def test_a_match_elsewhere_can_make_a_cycle_and_take_it_away():
    """f = x + a and g = x + h(f): computed together, g would depend on itself."""
    graph = graph_of("(Add ?x ?a)", "(Add ?x (Mul (Add ?x ?a) ?b))")
    f, g = graph.outputs
    (_, a), (_, h) = (graph.nodes[ref.node].inputs for ref in (f, g))
    (_, b) = graph.nodes[h.node].inputs
    rules = compile_rules([sums_in_one_concat])
    index = MatchIndex(graph, rules)
    assert not index.matches
    edit = graph.edit()
    edit.replace({f: a}, built={f.node})
    edit.set_outputs([f, g], ["f", "g"])
    edit.replace({h: b})
    graph, change = edit.finish()
    index = index.after(graph, change)
    assert [match.location for match in index.matches] == [(f.node, g.node)]
    assert index.by_rule == MatchIndex(graph, rules).by_rule


def test_matches_are_in_order_and_locations_tell_them_apart():
    index = MatchIndex(random_graph(5, num_nodes=30), RULES)
    numbers = {rule.rule.name: rule.number for rule in RULES}
    keys = [(numbers[match.rule], match.location) for match in index.matches]
    assert keys == sorted(set(keys))
    assert len(keys) > 3
