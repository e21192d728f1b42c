"""A policy that rewrites graphs, followed by a search."""

from __future__ import annotations

import collections
import itertools

import numpy as np
import pytest

from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.execution.choosing import Choice
from environments.tensor_graphs.execution.sizes import NONE_OPEN
from environments.tensor_graphs.observation import features
from environments.tensor_graphs.operators.numbers import NUMBERS
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.search import Budget, replay
from environments.tensor_graphs.search.neighbourhoods import NodeSignatures, signature_of
from environments.tensor_graphs.search.results import Visited
from tfrl_systems.policies.numpy_network import Memoryless
from tfrl_systems.systems.tensor_graphs.player import PolicyPlayer
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem

MAX_STEPS = 5
FIXED = Choice((NONE_OPEN,))
SETTINGS = {
    "max_nodes": 128,
    "max_edges": 256,
    "max_locations": 200,
    "max_actions": 1024,
    "max_steps": MAX_STEPS,
    "may_stop": False,
    "constants": False,
}


class Chance(Memoryless):
    """A network that has learned nothing: all allowed actions are equally likely."""

    def parameters(self, observation):
        logits = np.where(observation["action_mask"], np.float32(0), -np.inf)
        return {"logits": logits, "actions": observation["actions"]}


def problem_of(name):
    graph = onnx_io.read(models.make(name))
    return GraphProblem(name, graph, rule_files.load(), AnalyticObjective(), FIXED, NONE_OPEN)


def player_on(problem, network):
    policy = GraphPolicy(network, SETTINGS)
    return PolicyPlayer(policy, problem.name, problem.start)


@pytest.mark.parametrize("head, locations", [("local", 800), ("hierarchical", 200)])
def test_there_is_room_for_a_larger_model_than_those_that_it_learned_on(head, locations):
    """Four times as much of everything, but for the head that has an output for each location."""
    graph = onnx_io.read(models.make("bert-tiny"))
    policy = GraphPolicy(Chance(), {**SETTINGS, "head": head})
    start = Engine(rule_files.load(), AnalyticObjective()).start(graph)
    episodes = policy.make_episodes(start)
    specs = episodes.observer.specs()
    assert specs["nodes"].shape[0] == 4 * 128 + 1
    assert specs["edges"].shape[0] == 4 * 256
    assert specs["action_mask"].shape == (4 * 1024,)
    assert specs["location_masks"].shape[1] == locations


def test_a_path_through_several_episodes_can_be_replayed():
    problem = problem_of("bert-tiny")
    policy = GraphPolicy(Chance(), SETTINGS)
    result = problem.search("policy", Budget(), policy, num_rollouts=48)
    # In place of 6 of 48 episodes it probes; some of the others are given up.
    assert 48 < result.expansions < 42 * MAX_STEPS + 6 * 64
    assert len(result.path) > MAX_STEPS
    again = replay(Visited(problem.start), result.path)
    assert again.state.graph == result.best.graph and again.cost_ms == result.best.cost_ms
    single = problem.search("policy", Budget(), policy, num_rollouts=1)
    assert len(single.path) <= MAX_STEPS and result.best.cost_ms < single.best.cost_ms


def test_a_policy_leads_our_search():
    """It plays first; to this one the likeliest action is the one that is listed first."""
    problem = problem_of("bert-tiny")
    policy = GraphPolicy(Chance(), SETTINGS)
    led, again = (problem.search("regions", Budget(expansions=60), policy) for _ in range(2))
    assert (led.method, led.path) == ("regions", again.path)
    first, _ = next(player_on(problem, Chance()).play(0, problem.start))
    once = problem.search("regions", Budget(expansions=1), policy)
    assert once.best.cost_ms == min(problem.start.cost_ms, problem.start.apply(first).cost_ms)
    assert led.best.cost_ms < once.best.cost_ms


def test_steps_name_the_nodes_of_the_graph_that_an_episode_begins_at():
    """Two steps lead back to an equal graph, in which nodes have other numbers."""
    problem = problem_of("squeezenet-1.1")
    again = problem.start
    for rule in ("global_average_is_mean", "mean_is_global_average"):
        (match,) = [match for match in again.matches if match.rule == rule]
        again = again.apply(match)
    assert again.graph == problem.graph
    assert again.graph.nodes.keys() != problem.graph.nodes.keys()
    player = player_on(problem, Chance())
    for number, start in enumerate((problem.start, again) * 20):
        matches = [match for match, _ in player.play(number, start)]
        assert len(replay(Visited(start), matches).path) == MAX_STEPS


class Sure(Chance):
    """Whatever is listed first is nearly certain."""

    def parameters(self, observation):
        parameters = super().parameters(observation)
        parameters["logits"][0, np.flatnonzero(observation["action_mask"][0])[1:]] = -50
        return parameters


class Round(Chance):
    """Its likeliest actions lead from a graph to another one and back; all others are unlikely."""

    def parameters(self, observation):
        rules = observation["actions"][0, :, 0]
        logits = np.select([rules == 0, rules == 1, rules == 2], [3.0, 2.0, 1.0], 0.0)
        logits[~observation["action_mask"][0]] = -1e9
        return {"logits": logits[np.newaxis], "actions": observation["actions"]}


@pytest.mark.parametrize("may_stop", [False, True])
def test_a_greedy_episode_does_not_go_round_in_rings(may_stop):
    """Back at the first graph it takes what is likeliest but for the step that led round."""
    names = ("global_average_is_mean", "mean_is_global_average", "pool_of_concat")
    by_name = {rule.name: rule for rule in rule_files.load()}
    graph = onnx_io.read(models.make("squeezenet-1.1"))

    def rules_of(names):
        policy = GraphPolicy(Round(), {**SETTINGS, "may_stop": may_stop})
        rules = [by_name[name] for name in names]
        start = Engine(rules, AnalyticObjective()).start(graph)
        played = policy.play(policy.make_episodes(start).begin(start))
        return [match.rule for match, _ in played]

    there, back, aside = names
    assert rules_of(names) == [there, back, aside, there, back]
    # All that is left there is to stop, or to go round again.
    assert rules_of(names[:2]) == [there, back] + [there, back, there] * (not may_stop)


def test_probing_tries_one_of_all_matches_that_look_alike_and_never_again():
    """The one that the policy would draw comes first; the engine makes the same state of it."""
    problem = problem_of("bert-tiny")
    start = problem.start
    player = player_on(problem, Sure())
    signatures = NodeSignatures(start.graph)
    alike = collections.Counter(signature_of(signatures, match) for match in start.matches)
    assert set(alike.values()) > {1, 2}
    reached = list(itertools.islice(player.probe(7, start), 20))
    first, _ = reached[0]
    assert first == start.matches[0]
    rest = list(player.probe(15, start))
    probed = reached + rest
    assert len(probed) == len(alike)
    assert {signature_of(signatures, match) for match, _ in probed} == alike.keys()
    for match, state in probed:
        assert state.graph == start.apply(match).graph
    assert list(player.probe(23, start)) == []


def test_steps_of_an_episode_are_not_probed_again_and_are_taken_in_all_layers():
    """Playing in one of two layers is enough to know what saves something in both."""
    problem = problem_of("bert-tiny")
    start = problem.start
    player = player_on(problem, Chance())
    assert list(player.descend(start)) == []
    first, *_ = [match for match, _ in player.play(0, start)]
    assert first not in [match for match, _ in player.probe(7, start)]
    costs_ms = [start.cost_ms, *(state.cost_ms for _, state in player.descend(start))]
    assert len(costs_ms) > 2 and costs_ms == sorted(costs_ms, reverse=True)


@pytest.mark.ci
def test_a_policy_saved_before_an_operator_was_added_takes_it_for_none(lent_run, monkeypatch):
    """Its networks have no row for the number of the new operator, here in place of Add."""
    directory = lent_run("tensor_graphs", "ppo").policy
    monkeypatch.setattr(features, "KINDS", (*features.KINDS, "Fancy"))
    policy = GraphPolicy.load(directory)
    graph = onnx_io.read(models.make("bert-tiny"))
    objective = AnalyticObjective()
    start = Engine(rule_files.load(), objective).start(graph)
    seen = policy.make_episodes(start).begin(start).observation

    def drawn(number):
        changed = dict(seen)
        changed["nodes"], changed["rule_targets"] = (
            np.where(seen[name] == NUMBERS["Add"], number, seen[name])
            for name in ("nodes", "rule_targets")
        )
        assert (changed["nodes"] == number).any() and (changed["rule_targets"] == number).any()
        return policy.draw_all(changed, 0)

    added = drawn(features.KINDS.index("Fancy"))
    assert len(added) == len(policy.draw_all(seen, 0)) > 0
    np.testing.assert_array_equal(added, drawn(0))
