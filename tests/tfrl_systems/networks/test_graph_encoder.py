"""The full GN block, worked by hand."""

from __future__ import annotations

import numpy as np
import tensorflow as tf
from graph_nets import graphs

from tfrl_systems.networks.graph_encoder import FullRound


def test_algorithm_2_by_hand():
    """Two nodes and two edges, both from node 0 to node 1; vectors of one number.

    e = (1, 2), v = (3, 4), u = 5. Each φ is a weighted sum, whose weights tell its arguments apart:

        φᵉ(e, v_r, v_s, u) = e + 10 v_r + 100 v_s + 1000 u
            e'_0 = 1 + 40 + 300 + 5000 = 5341        e'_1 = 2 + 40 + 300 + 5000 = 5342
        φᵛ(ē', v, u) = ē' + 2 v + 3 u
            no edge ends at node 0:      ē'_0 = 0                v'_0 =     0 + 6 + 15 =    21
            both edges end at node 1:    ē'_1 = 5341 + 5342      v'_1 = 10683 + 8 + 15 = 10706
        φᵘ(ē', v̄', u) = 2 relu(ē' + 2 v̄' - 4000 u - 137) + 1
            ē' = 10683, v̄' = 21 + 10706 = 10727
            u' = 2 (10683 + 21454 - 20000 - 137) + 1 = 24001
    """
    layer = FullRound(1, np.random.default_rng(0), "round0")
    weights = {"edges": [1, 10, 100, 1000], "nodes": [1, 2, 3], "globals": [1, 2, -4000]}
    for field, column in weights.items():
        update = getattr(layer, field)
        update.hidden.w.assign(np.float32(column)[:, np.newaxis])
        update.out.w.assign([[1.0]])
    layer.globals.hidden.b.assign([-137.0])
    layer.globals.out.w.assign([[2.0]])
    layer.globals.out.b.assign([1.0])
    graph = graphs.GraphsTuple(
        nodes=tf.constant([[3.0], [4.0]]),
        edges=tf.constant([[1.0], [2.0]]),
        globals=tf.constant([[5.0]]),
        senders=tf.constant([0, 0]),
        receivers=tf.constant([1, 1]),
        n_node=tf.constant([2]),
        n_edge=tf.constant([2]),
    )
    after = layer.block(graph)
    assert after.edges.numpy().tolist() == [[5341], [5342]]
    assert after.nodes.numpy().tolist() == [[21], [10706]]
    assert after.globals.numpy().tolist() == [[24001]]
