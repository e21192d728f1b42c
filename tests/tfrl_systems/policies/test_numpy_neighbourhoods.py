"""What is remembered of neighbourhoods is what a network without a memory computes anew."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tf_agents.specs import tensor_spec

from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.observation.observation import Observer
from environments.tensor_graphs.observation.tracking import Tracker, View
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules.library import all_rules
from environments.tensor_graphs.settings import Settings
from tests.environments.tensor_graphs.random_graphs import random_graph
from tfrl_systems.agents.policy_gradients import Config
from tfrl_systems.networks.graph_actors import GraphActorNetwork
from tfrl_systems.policies import numpy_neighbourhoods
from tfrl_systems.policies.numpy_colours import ColourTable
from tfrl_systems.policies.numpy_graph import NumpyGraphNetwork

RULES = all_rules()
SIZES = {"max_nodes": 160, "max_edges": 240, "max_locations": 60, "max_actions": 300}
ENGINE = Engine(RULES, AnalyticObjective())
OBSERVER = Observer(RULES, Settings(**SIZES))


@functools.cache
def parts():
    """The description of a local network, and random variables."""
    specs = tensor_spec.from_spec(OBSERVER.specs())
    action = tensor_spec.BoundedTensorSpec([2], tf.int32, 0, specs["actions"].maximum[0])
    config = Config(graph_width=12, graph_rounds=3, max_logit=4.0)
    actor = GraphActorNetwork(specs, action, config, np.random.default_rng(0))
    generator = np.random.default_rng(0)
    arrays = {
        name: (generator.normal(size=variable.shape) / np.sqrt(variable.shape[0])).astype("f")
        for name, variable in actor.named_variables().items()
    }
    return actor.describe(), arrays


def network(head="local"):
    """A network of random weights; as a "pointer" it is the same one, without a memory."""
    description, arrays = parts()
    return NumpyGraphNetwork({**description, "head": head}, arrays)


def episode(seed, num_steps, constants):
    """Observations of an episode of random steps, and of a second one from the same start."""
    rng = random.Random(seed)
    start = ENGINE.start(random_graph(seed))
    for _ in range(2):
        state = start
        view = View("model", state, Tracker(state.graph, state.node_costs_ms, constants))
        yield batch(OBSERVER.observe(view, 0.0))
        for number in range(num_steps):
            if not state.matches:
                break
            state = state.apply(rng.choice(state.matches))
            view.advance(state)
            yield batch(OBSERVER.observe(view, number / num_steps))


def batch(*observations):
    return {
        name: np.stack([observation[name] for observation in observations])
        for name in observations[0]
    }


def edited(observation, generator):
    """An observation [1, …] after a random edit that no rule makes, and in another order."""
    graph = {name: array[0].copy() for name, array in observation.items()}
    num_nodes, num_edges = int(graph["n_node"][0]), int(graph["n_edge"][0])
    node, edge = int(generator.integers(num_nodes)), int(generator.integers(max(num_edges, 1)))
    edit = generator.choice(["change node", "add edge", "remove edge", "remove node"])
    if edit == "change node":
        graph["nodes"][node, 1:] += generator.normal(size=graph["nodes"].shape[1] - 1)
    elif edit == "add edge" and 0 < num_edges < len(graph["edges"]):
        graph["edges"][num_edges] = graph["edges"][edge]
        graph["senders"][num_edges], graph["receivers"][num_edges] = edge % num_nodes, node
        num_edges += 1
    is_kept = np.ones(num_edges, np.bool_)
    rows = np.arange(SIZES["max_nodes"] + 1, dtype=np.int32)
    if edit == "remove edge":
        is_kept[edge : edge + 1] = False
    elif edit == "remove node":
        is_kept &= (graph["senders"][:num_edges] != node) & (graph["receivers"][:num_edges] != node)
        graph["nodes"][node:-1] = graph["nodes"][node + 1 :].copy()
        rows[node + 1 : -1] -= 1
        rows[node], num_nodes = SIZES["max_nodes"], num_nodes - 1
    order = generator.permutation(np.flatnonzero(is_kept))
    for name in ("edges", "senders", "receivers"):
        graph[name][: len(order)] = graph[name][order]
    for name in ("senders", "receivers"):
        graph[name][: len(order)] = rows[graph[name][: len(order)]]
    for name in ("action_nodes", "action_inputs"):
        graph[name] = rows[graph[name]]
    graph["n_node"][0], graph["n_edge"][0] = num_nodes, len(order)
    return batch(graph)


@pytest.mark.ci
@settings(max_examples=25, deadline=None)
@given(st.integers(0, 1 << 16), st.booleans())
@example(seed=37608, constants=False)  # a step whose new nodes have no edges
def test_what_is_remembered_is_what_would_be_computed_anew(seed, constants):
    """Steps merge, delete and copy nodes. Between them come edits, and what was seen before.

    To the bit, and up to rounding without a memory.
    """
    remembering, plain = network(), network("pointer")
    generator, seen = np.random.default_rng(seed), []
    for observation in episode(seed, 8, constants):
        seen += [observation, edited(observation, generator)]
        seen.append(seen[generator.integers(len(seen))])
    for observation in seen:
        logits = remembering.parameters(observation)["logits"]
        anew = network().parameters(observation)["logits"]
        np.testing.assert_array_equal(logits, anew)
        expected = plain.parameters(observation)["logits"]
        np.testing.assert_allclose(logits, expected, rtol=1e-6, atol=4e-6)
    joined = {name: np.concatenate([own[name] for own in seen]) for name in seen[0]}
    at_once = network().parameters(joined)["logits"]
    for number, observation in enumerate(seen):
        logits = remembering.parameters(observation)["logits"][0]
        np.testing.assert_array_equal(at_once[number], logits)


def test_only_what_is_new_is_computed(monkeypatch):
    counts = []

    def counted(self, rows, area, usual=numpy_neighbourhoods.NeighbourhoodScorer._compute):
        counts.append(len(rows))
        return usual(self, rows, area)

    monkeypatch.setattr(numpy_neighbourhoods.NeighbourhoodScorer, "_compute", counted)
    state = ENGINE.start(onnx_io.read(models.make("bert-tiny")))
    view = View("model", state, Tracker(state.graph, state.node_costs_ms, False))
    remembering = network()
    observation = batch(OBSERVER.observe(view, 0.0))
    remembering.parameters(observation)
    # The layers are alike, so some nodes have the same neighbourhood.
    assert 0 < counts[0] < observation["n_node"][0, 0]
    remembering.parameters(observation)
    assert len(counts) == 1
    view.advance(state.apply(state.matches[0]))
    remembering.parameters(batch(OBSERVER.observe(view, 0.0)))
    assert len(counts) == 2 and 0 < counts[1] < counts[0]
    remembering.begin(np.array([False]))
    remembering.parameters(observation)
    assert len(counts) == 2
    remembering.begin(np.array([True]))
    remembering.parameters(observation)
    assert counts[2] == counts[0]


def test_what_is_too_much_is_forgotten(monkeypatch):
    monkeypatch.setattr(numpy_neighbourhoods, "MOST_COLOURS", 20)
    remembering = network()
    for observation in episode(3, 12, True):
        expected = network().parameters(observation)["logits"]
        np.testing.assert_array_equal(remembering.parameters(observation)["logits"], expected)


def test_a_table_finds_most_colours_and_never_a_wrong_number():
    generator = np.random.default_rng(1)
    colours = generator.integers(1, 1 << 63, 12_000, dtype=np.uint64) * 2
    table = ColourTable(np.intp)
    for part in np.split(np.arange(12_000), 12):
        _, missing = table.find(colours[part])
        assert len(missing) == len(part)
        table.put(colours[part], part)
    numbers, missing = table.find(colours)
    # Of those whose first place was taken, some have lost their second one.
    assert table.size == 12_000 and len(missing) < 120
    is_there = np.ones(12_000, np.bool_)
    is_there[missing] = False
    np.testing.assert_array_equal(numbers[is_there], np.arange(12_000)[is_there])
