"""Observations of graphs as one graph, without padding.

This module does not import TensorFlow.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Arrays = Mapping[str, np.ndarray]

_GRAPH = ("nodes", "edges", "senders", "receivers", "rule_ids", "rule_targets")
_LISTED = ("action_nodes", "action_inputs", "action_features", "actions")
_NEEDED = (*_GRAPH, "n_node", "n_edge", *_LISTED, "action_mask")


def joined_graph(observation: Arrays) -> dict[str, np.ndarray]:
    """Return observations [B, …] as one graph without padding that lists the allowed matches.

    Rows of nodes and of rules count through all graphs. Rows after the last node mean no node.
    """
    graphs = [
        _without_padding({name: observation[name][number] for name in _NEEDED})
        for number in range(len(observation["n_node"]))
    ]
    if len(graphs) == 1:
        return graphs[0]
    total, first_node, first_rule = sum(len(graph["nodes"]) for graph in graphs), 0, 0
    for graph in graphs:
        num_nodes = len(graph["nodes"])
        for name in ("senders", "receivers"):
            graph[name] = graph[name] + first_node
        for name in ("action_nodes", "action_inputs"):
            rows = graph[name]
            graph[name] = np.where(rows < num_nodes, rows + first_node, total)
        graph["actions"] = graph["actions"] + (first_rule, 0)
        first_node, first_rule = first_node + num_nodes, first_rule + len(graph["rule_ids"])
    return {name: np.concatenate([graph[name] for graph in graphs]) for name in graphs[0]}


def _without_padding(own: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the fields of one observation without padding."""
    num_nodes, num_edges = int(own.pop("n_node")[0]), int(own.pop("n_edge")[0])
    listed = own.pop("action_mask").nonzero()[0]
    # Usually they stand side by side, and nothing needs to be copied.
    is_whole = len(listed) and listed[-1] - listed[0] + 1 == len(listed)
    places = slice(listed[0], listed[-1] + 1) if is_whole else listed
    for name in _LISTED:
        own[name] = own[name][places]
    own["nodes"] = own["nodes"][:num_nodes]
    for name in ("edges", "senders", "receivers"):
        own[name] = own[name][:num_edges]
    return own
