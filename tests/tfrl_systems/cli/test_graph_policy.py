"""A policy that rewrites graphs, followed by a search."""

from __future__ import annotations

import itertools

import numpy as np

from environments.tensor_graphs import models, onnx_io, rules
from environments.tensor_graphs.analytic import AnalyticObjective
from environments.tensor_graphs.search import Budget, replay
from environments.tensor_graphs.search.results import Visited
from tfrl_systems.cli.tensor_graphs.policy import Chance, GraphPolicy
from tfrl_systems.cli.tensor_graphs.problem import Problem

MAX_STEPS = 5
SETTINGS = {
    "max_nodes": 128,
    "max_edges": 256,
    "max_locations": 200,
    "max_actions": 1024,
    "max_steps": MAX_STEPS,
    "may_stop": False,
    "constants": False,
}


def test_a_way_through_several_episodes_can_be_gone_again():
    graph = onnx_io.read(models.make("bert-tiny"))
    problem = Problem("bert-tiny", graph, rules.load(), AnalyticObjective(), {})
    policy = GraphPolicy(Chance(), SETTINGS)
    found = problem.search("policy", Budget(), policy, num_rollouts=96)
    # In place of 12 of 96 episodes it looks around; some of the others are given up.
    assert 96 < found.expansions < 84 * MAX_STEPS + 12 * 64
    assert len(found.path) > MAX_STEPS
    again = replay(Visited(problem.start), found.path)
    assert again.state.graph == found.best.graph and again.cost_ms == found.best.cost_ms
    one = problem.search("policy", Budget(), policy, num_rollouts=1)
    assert len(one.path) <= MAX_STEPS and found.best.cost_ms < one.best.cost_ms


def test_steps_name_the_nodes_of_the_graph_that_an_episode_begins_at():
    """Two steps lead back to an equal graph, in which nodes have other numbers."""
    graph = onnx_io.read(models.make("squeezenet-1.1"))
    problem = Problem("squeezenet", graph, rules.load(), AnalyticObjective(), {})
    again = problem.start
    for xfer in ("global_average_is_mean", "mean_is_global_average"):
        (match,) = [match for match in again.matches if match.xfer == xfer]
        again = again.apply(match)
    assert again.graph == graph and again.graph.nodes.keys() != graph.nodes.keys()
    player = GraphPolicy(Chance(), SETTINGS).player("it", problem.rules, problem.objective)
    for number, start in enumerate((problem.start, again) * 20):
        steps = [step for step, _ in player.play(number, start)]
        assert len(replay(Visited(start), steps).path) == MAX_STEPS


class Sure(Chance):
    """Whatever is listed first is nearly certain."""

    def parameters(self, observation):
        parameters = super().parameters(observation)
        parameters["logits"][0, np.flatnonzero(observation["action_mask"][0])[1:]] = -50
        return parameters


def test_where_chance_leads_all_that_is_allowed_is_drawn():
    graph = onnx_io.read(models.make("bert-tiny"))
    policy = GraphPolicy(Sure(), SETTINGS)
    environment = policy.make_environment("bert-tiny", graph, rules.load(), AnalyticObjective())

    def path_of(number, by_chance=False):
        return [step for step, _ in policy.play(environment, number, by_chance=by_chance)]

    first = path_of(0)
    assert len(first) == MAX_STEPS
    assert all(path_of(number) == first for number in range(8))
    by_chance = [path_of(number, True) for number in range(8)]
    assert first not in by_chance and len(set(map(tuple, by_chance))) == 8
    assert path_of(3, True) == by_chance[3]


def test_it_looks_at_each_match_once_and_then_again():
    """First at the one that it would draw; what a look leads to is what the engine makes of it."""
    graph = onnx_io.read(models.make("bert-tiny"))
    problem = Problem("bert-tiny", graph, rules.load(), AnalyticObjective(), {})
    start = problem.start
    player = GraphPolicy(Sure(), SETTINGS).player("it", problem.rules, problem.objective)
    matches = {(match.xfer, match.location): match for match in start.matches}
    all_looks = []
    for number in (7, 15):
        looks = list(itertools.islice(player.look(number, start), len(matches)))
        assert {step for step, _ in looks} == matches.keys()
        all_looks.append([step for step, _ in looks])
        for step, state in looks[:10]:
            assert state.graph == start.apply(matches[step]).graph
    first, again = all_looks
    assert first != again and first[0] == again[0]
    # Those that were not reached come before those that were.
    other = GraphPolicy(Sure(), SETTINGS).player("it", problem.rules, problem.objective)
    reached = [step for step, _ in itertools.islice(other.look(7, start), 20)]
    assert reached == first[:20]
    rest = [step for step, _ in itertools.islice(other.look(15, start), len(matches) - 20)]
    assert not set(rest) & set(reached)
