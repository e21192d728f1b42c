"""Graph networks: what must not matter does not, and probabilities are those worked by hand."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import tensor_spec
from tf_agents.trajectories import time_step as ts

from environments.tensor_graphs.observation.observation import without_list
from tests.tfrl_systems import graph_problems
from tests.tfrl_systems.graph_problems import RULES, SIZES, batch, random_observation
from tfrl_systems.agents.policy_gradients import Config
from tfrl_systems.networks import graph_actors, graph_heads
from tfrl_systems.networks.distributions import MASKED
from tfrl_systems.policies import distributions
from tfrl_systems.policies.numpy_graph import NumpyGraphNetwork

# The last is the pointer behind full GN blocks.
HEADS = pytest.mark.parametrize("head", (*graph_heads.HEADS, "full"))

LARGER = dataclasses.replace(SIZES, max_nodes=31, max_edges=40, max_actions=30)
FEATURES = ("nodes", "edges", "action_features")


def make_actor(
    head="pointer", sizes=SIZES, rules=RULES, seed=0, max_logit=4.0, is_listed=True
):  # fmt: skip
    specs = tensor_spec.from_spec(graph_problems.specs(sizes, rules))
    specs = specs if is_listed else without_list(specs)
    action = tensor_spec.BoundedTensorSpec([2], tf.int32, 0, [len(rules), sizes.max_locations - 1])
    block, head = ("full", "pointer") if head == "full" else ("two_way", head)
    sizes_of = {"graph_width": 8, "graph_rounds": 2, "graph_block": block}
    config = Config(**sizes_of, head=head, max_logit=max_logit)
    actor = graph_actors.GraphActorNetwork(specs, action, config, np.random.default_rng(seed))
    noise = np.random.default_rng(seed + 1)
    for variable in actor.trainable_variables:
        variable.assign_add(noise.normal(scale=0.3, size=variable.shape))
    return actor


@functools.cache
def shared_actor(head="pointer", sizes=SIZES):
    """An actor for several tests; do not change it."""
    return make_actor(head, sizes)


def make_value(actor, has_spread=False):
    return graph_actors.GraphValueNetwork(actor, np.random.default_rng(2), has_spread)


def twin(actor):
    arrays = {name: variable.numpy() for name, variable in actor.named_variables().items()}
    return NumpyGraphNetwork(actor.describe(), arrays)


def observations(count=3, sizes=SIZES, rules=RULES):
    generator = np.random.default_rng(7)
    sizes_of = generator.integers(1, SIZES.max_nodes + 1, count)
    return [random_observation(generator, int(size), sizes, rules) for size in sizes_of]


def tensors(*graphs):
    return {name: tf.constant(array) for name, array in batch(*graphs).items()}


def logits_of(actor, *graphs):
    return actor(batch(*graphs))[0].logits.numpy()


def numpy_logits(actor, *graphs):
    return twin(actor).parameters(batch(*graphs))["logits"]


def padded(graph, sizes, generator=None):
    """The same graph with more room, filled with random numbers if there is a generator."""
    num_nodes, num_edges = int(graph["n_node"][0]), int(graph["n_edge"][0])
    num_actions = int(graph["action_mask"].sum())
    ends = {"nodes": num_nodes, "edges": num_edges, "senders": num_edges, "receivers": num_edges}
    ends |= dict.fromkeys(
        ("actions", "action_nodes", "action_inputs", "action_features"), num_actions
    )
    fields = dict(graph)
    for name, spec in graph_problems.specs(sizes).items():
        if name in ends:
            room = np.zeros(spec.shape, spec.dtype)
            if generator and name in FEATURES:
                room[:] = generator.normal(scale=1e3, size=room.shape)
            elif generator:
                room[:] = generator.integers(np.broadcast_to(spec.maximum, room.shape) + 1)
            room[: ends[name]] = graph[name][: ends[name]]
            fields[name] = room
    # Whatever points to padding points to the new one.
    for name in ("action_nodes", "action_inputs"):
        there = fields[name][:num_actions]
        there[there == graph["nodes"].shape[0] - 1] = sizes.max_nodes
    fields["action_mask"] = np.arange(sizes.max_actions) < num_actions
    fields["n_node"] = np.array((num_nodes, sizes.max_nodes + 1 - num_nodes), np.int32)
    fields["n_edge"] = np.array((num_edges, sizes.max_edges - num_edges), np.int32)
    if generator:
        fields["globals"] = graph["globals"] + np.float32([[0], [1e3]])
    return fields


@HEADS
def test_padding_changes_no_bit(head):
    """Neither how much there is, nor what is in it; in TensorFlow and in NumPy."""
    small, large = shared_actor(head), shared_actor(head, LARGER)
    graphs = observations()
    generator = np.random.default_rng(3)
    masks = [graph["action_mask"] for graph in graphs]
    expected = [logits_of(small, *graphs), numpy_logits(small, *graphs)]
    value = make_value(small)(batch(*graphs))[0].numpy()
    for actor, sizes, noise in ((small, SIZES, generator), (large, LARGER, generator)):
        variants = [padded(graph, sizes, noise) for graph in graphs]
        logits = [logits_of(actor, *variants), numpy_logits(actor, *variants)]
        for before, after in zip(expected, logits, strict=True):
            for row, mask in enumerate(masks):
                np.testing.assert_array_equal(after[row, : len(mask)][mask], before[row, mask])
                assert np.all(after[row, mask.sum() :] == np.float32(MASKED))
        np.testing.assert_array_equal(make_value(actor)(batch(*variants))[0], value)


@HEADS
def test_neither_names_nor_order_matter(head):
    """Nodes, edges and, of what is listed, actions in another order: the same logits."""
    actor, generator = shared_actor(head), np.random.default_rng(4)
    for graph in observations(2):
        num_nodes, num_edges = int(graph["n_node"][0]), int(graph["n_edge"][0])
        num_actions = int(graph["action_mask"].sum())
        nodes = np.arange(SIZES.max_nodes + 1)
        nodes[:num_nodes] = generator.permutation(num_nodes)
        edges, places = generator.permutation(num_edges), generator.permutation(num_actions)
        permuted = {name: array.copy() for name, array in graph.items()}
        permuted["nodes"][nodes] = graph["nodes"]
        permuted["edges"][:num_edges] = graph["edges"][edges]
        for name in ("senders", "receivers"):
            permuted[name][:num_edges] = nodes[graph[name][edges]]
        for name in ("actions", "action_features"):
            permuted[name][:num_actions] = graph[name][places]
        for name in ("action_nodes", "action_inputs"):
            permuted[name][:num_actions] = nodes[graph[name][places]]
        expected, logits = logits_of(actor, graph)[0], logits_of(actor, permuted)[0]
        np.testing.assert_allclose(logits[:num_actions], expected[places], rtol=1e-4, atol=1e-5)
        before, after = (actor.trunk(tensors(each)).nodes.numpy() for each in (graph, permuted))
        np.testing.assert_allclose(after[nodes[:num_nodes]], before, rtol=1e-4, atol=1e-5)


def test_the_local_head_knows_nothing_of_the_whole_graph():
    (graph,) = observations(1)
    variant = {**graph, "globals": graph["globals"] + 1}
    for head, is_same in (("local", True), ("pointer", False)):
        first, second = (
            shared_actor(head)(tensors(each))[0].logits.numpy() for each in (graph, variant)
        )
        assert np.array_equal(first, second) == is_same


def test_the_pointer_knows_rules_by_what_they_are():
    """Other numbers, other rules among them, other locations: the same logits."""
    more = (
        RULES[2],
        *[dataclasses.replace(RULES[0], name=f"new{i}") for i in range(3)],
        *RULES[:2],
    )
    few, many = shared_actor(), make_actor(rules=more)
    for graph in observations(4):
        variant = graph | {
            name: observation[name]
            for observation in observations(1, rules=more)
            for name in ("rule_ids", "rule_targets", "xfer_mask", "location_masks")
        }
        numbers = np.array([4, 5, 0, len(more)])
        xfers, locations = graph["actions"].T
        variant["actions"] = np.stack((numbers[xfers], 5 - locations), axis=1).astype(np.int32)
        np.testing.assert_array_equal(logits_of(many, variant), logits_of(few, graph))


@pytest.mark.parametrize("head", ["local", "pointer"])
def test_however_large_scores_become_logits_are_bounded(head):
    """Scores are 4 atanh(1/2) at most, of which the logit is 2; or, a thousand times that, 4."""
    (graph,) = observations(1)
    mask = graph["action_mask"]
    bounded, free = make_actor(head), make_actor(head, max_logit=0.0)
    kernel = free.head.score.w.numpy()
    most = np.abs(logits_of(free, graph)[0, mask]).max()
    for scale, largest in ((1, 2.0), (1000, 4.0)):
        for actor in (bounded, free):
            actor.head.score.w.assign(kernel * scale * 4 * np.arctanh(0.5) / most)
        scores = logits_of(free, graph)[0, mask]
        close = functools.partial(np.testing.assert_allclose, rtol=1e-3, atol=1e-3)
        close(numpy_logits(free, graph)[0, mask], scores)
        for logits in (logits_of(bounded, graph), numpy_logits(bounded, graph)):
            close(logits[0, mask], 4 * np.tanh(scores / 4))
            assert np.abs(logits[0, mask]).max() == pytest.approx(largest, rel=1e-3)


def test_unknown_kinds_of_nodes_are_taken_for_none():
    actor = shared_actor()
    (graph,) = observations(1)
    no_kind, unknown_kind = ({**graph, "nodes": graph["nodes"].copy()} for _ in range(2))
    no_kind["nodes"][0, 0], unknown_kind["nodes"][0, 0] = 0, 10_000
    for logits_fn in (logits_of, numpy_logits):
        no_kinds, unknown_kinds = (logits_fn(actor, seen) for seen in (no_kind, unknown_kind))
        np.testing.assert_array_equal(no_kinds, unknown_kinds)
        np.testing.assert_allclose(no_kinds, logits_of(actor, no_kind), rtol=1e-4, atol=1e-5)


@HEADS
def test_numpy_has_the_same_arithmetic(head):
    actor = shared_actor(head)
    graphs = observations(6)
    parameters = twin(actor).parameters(batch(*graphs))
    distribution = actor(batch(*graphs))[0]
    np.testing.assert_allclose(parameters["logits"], distribution.logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(parameters["actions"], distribution.actions)
    np.testing.assert_array_equal(twin(actor).mode(batch(*graphs)), distribution.mode())
    np.testing.assert_allclose(distributions.entropy(parameters), distribution.entropy(), rtol=1e-4)
    for number, graph in enumerate(graphs):
        alone = numpy_logits(actor, graph)[0]
        np.testing.assert_array_equal(alone, parameters["logits"][number])


def test_first_the_rule_then_the_location_by_hand():
    """Rules at odds 1 : 2 : 4 : 3 (NO-OP), locations at 1 : 2 : 3 … of what is allowed.

    action        p(xfer)   p(location | xfer)
    NO-OP (3, 0)   3 / 8     1
    (0, 0)         1 / 8     1 / 4
    (0, 2)         1 / 8     3 / 4
    (2, 1)         4 / 8     1
    """
    actor = make_actor("hierarchical")
    head = actor.head
    for variable in head.variables:
        variable.assign(tf.zeros_like(variable))
    head.xfers.b.assign(np.log([1, 2, 4, 3]))
    head.locations.b.assign(np.log(np.arange(SIZES.max_locations) + 1))
    (variable,) = observations(1)
    variable["actions"][:4] = [[3, 0], [0, 0], [0, 2], [2, 1]]
    variable["action_mask"][:] = np.arange(SIZES.max_actions) < 4
    expected = [3 / 8, 1 / 8 * 1 / 4, 1 / 8 * 3 / 4, 4 / 8]
    distribution = actor(batch(variable))[0]
    np.testing.assert_allclose(np.exp(distribution.logits[0, :4]), expected, rtol=1e-5)
    logs = distribution.log_prob(variable["actions"][:4, np.newaxis])
    np.testing.assert_allclose(np.exp(logs)[:, 0], expected, rtol=1e-5)
    np.testing.assert_allclose(
        np.exp(twin(actor).parameters(batch(variable))["logits"][0, :4]), expected, rtol=1e-5
    )


def without_masks(graph):
    """What there is of an observation without masks."""
    return {**without_list(graph), "location_masks": np.ones_like(graph["location_masks"])}


def test_without_a_list_numpy_has_the_same_arithmetic():
    """Locations depend on the rule; the padding of graphs and other graphs change nothing."""
    actor = make_actor("hierarchical", is_listed=False)
    graphs = list(map(without_masks, observations(4)))
    parameters, distribution = twin(actor).parameters(batch(*graphs)), actor(batch(*graphs))[0]
    for name, expected in distribution.parameters.items():
        if name in parameters:
            np.testing.assert_allclose(parameters[name], expected, rtol=1e-4, atol=1e-5)
    assert len(parameters) == 3
    of_rules = parameters["place_logits"][0]
    assert np.abs(of_rules[0] - of_rules[1]).max() > 0.01


@HEADS
def test_gradients_of_all_weights_are_finite_and_reach_the_encoder(head):
    actor = shared_actor(head)
    graphs = batch(*observations())
    with tf.GradientTape() as tape:
        distribution = actor(graphs)[0]
        loss = tf.reduce_sum(distribution.log_prob(graphs["actions"][:, 0])) + tf.reduce_sum(
            distribution.entropy()
        )
    for variable, gradient in zip(
        actor.trainable_variables, tape.gradient(loss, actor.trainable_variables), strict=True
    ):
        if head == "local" and "global" in variable.name:
            assert gradient is None, variable.name  # the value network alone asks for them
            continue
        values = tf.convert_to_tensor(gradient).numpy()
        assert np.isfinite(values).all() and values.any(), variable.name


def test_values_are_computed_where_something_is_decided_some_at_a_time(monkeypatch):
    monkeypatch.setattr(graph_actors, "_BLOCK", 2)
    value = make_value(shared_actor(), has_spread=True)
    graphs = tensors(*observations(6))
    whole, spread = value.value_and_log_spread(graphs, training=True)
    for values, expected in zip(value.value_and_log_spread(graphs), (whole, spread), strict=True):
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
    steps = {name: tf.reshape(array, [2, 3, *array.shape[1:]]) for name, array in graphs.items()}
    step_type = np.array([[0, 1, 2], [0, 2, 2]], np.int32)
    values = value(steps, step_type)[0].numpy()
    expected = np.where(step_type == ts.StepType.LAST, 0, whole.numpy().reshape(2, 3))
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(value(steps, training=True)[0], whole.numpy().reshape(2, 3))
