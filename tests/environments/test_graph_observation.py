"""Padded graphs: what they look like, and that padding has no influence."""

from __future__ import annotations

import numpy as np

from environments.graph_observation import FIELDS, GraphSpace


def space(max_nodes=4, max_edges=5):
    return GraphSpace(max_nodes, max_edges, ("padding", "a", "b"), ("kind", "size"), ("w",), ("g",))


NODES, EDGES = np.array([[1, 0.5], [2, 0.25], [1, 0.75]]), np.array([[1.0], [2.0]])
SENDERS, RECEIVERS = [0, 1], [1, 2]


def test_a_graph_by_hand():
    padded = space().pad(NODES, EDGES, SENDERS, RECEIVERS, [7])
    assert {name: array.tolist() for name, array in padded.items()} == {
        "nodes": [[1, 0.5], [2, 0.25], [1, 0.75], [0, 0], [0, 0]],
        "edges": [[1], [2], [0], [0], [0]],
        "senders": [0, 1, 4, 4, 4],
        "receivers": [1, 2, 4, 4, 4],
        "globals": [[7], [0]],
        "n_node": [3, 2],
        "n_edge": [2, 3],
    }
    assert set(padded) == set(FIELDS)
    specs = space().specs()
    for name, array in padded.items():
        assert (specs[name].shape, specs[name].dtype) == (array.shape, array.dtype)
    assert specs["senders"].maximum == 4 and specs["n_node"].maximum == 5


def test_the_largest_graph_still_has_a_row_of_padding():
    padded = space(max_nodes=3, max_edges=2).pad(NODES, EDGES, SENDERS, RECEIVERS, [7])
    assert padded["n_node"].tolist() == [3, 1] and padded["n_edge"].tolist() == [2, 0]
    assert padded["nodes"][space(3).padding_node].tolist() == [0, 0]


def passed_on(graphs, rounds=3):
    """Rounds of a message-passing network of fixed weights; nodes, and sums over each graph."""
    random = np.random.default_rng(0)
    nodes = np.tanh(graphs["nodes"] @ random.normal(size=(2, 8)))
    graph_of_node = np.repeat(np.arange(len(graphs["n_node"])), graphs["n_node"])
    for _ in range(rounds):
        first, second = random.normal(size=(8, 8)), random.normal(size=(1, 8))
        messages = np.tanh(nodes[graphs["senders"]] @ first + graphs["edges"] @ second)
        received = np.zeros_like(nodes)
        np.add.at(received, graphs["receivers"], messages)
        totals = np.zeros((len(graphs["n_node"]), 8))
        np.add.at(totals, graph_of_node, nodes)
        nodes = np.tanh(nodes + received + totals[graph_of_node] + graphs["globals"][graph_of_node])
    return nodes, totals


def test_padding_has_no_influence():
    """Neither what it holds nor how much of it there is."""
    nodes, totals = passed_on(space().pad(NODES, EDGES, SENDERS, RECEIVERS, [7]))
    odd = space(max_nodes=9, max_edges=30).pad(NODES, EDGES, SENDERS, RECEIVERS, [7])
    odd["nodes"][3:], odd["edges"][2:], odd["globals"][1] = 5, -3, 11
    odd_nodes, odd_totals = passed_on(odd)
    np.testing.assert_allclose(odd_nodes[:3], nodes[:3], rtol=1e-12)
    np.testing.assert_allclose(odd_totals[0], totals[0], rtol=1e-12)
