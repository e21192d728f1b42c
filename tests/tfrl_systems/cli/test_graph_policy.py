"""A policy that rewrites graphs, followed by a search."""

from __future__ import annotations

import numpy as np

from environments.tensor_graphs import models, onnx_io, rules
from environments.tensor_graphs.analytic import AnalyticObjective
from environments.tensor_graphs.search import Budget, replay
from environments.tensor_graphs.search.results import Visited
from tfrl_systems.cli.tensor_graphs.policy import GraphPolicy
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


class Uniform:
    """In place of a network: whatever is allowed is as likely."""

    def parameters(self, observation):
        logits = np.where(observation["action_mask"], 0.0, -np.inf).astype(np.float32)
        return {"logits": logits, "actions": observation["actions"]}

    def mode(self, observation):
        parameters = self.parameters(observation)
        return parameters["actions"][:, parameters["logits"].argmax(axis=1)[0]]


def test_a_way_through_several_episodes_can_be_gone_again():
    graph = onnx_io.read(models.make("bert-tiny"))
    problem = Problem("bert-tiny", graph, rules.load(), AnalyticObjective(), {})
    policy = GraphPolicy(Uniform(), SETTINGS)
    found = problem.search("policy", Budget(), policy, num_rollouts=96)
    assert found.expansions == 96 * MAX_STEPS
    assert len(found.path) > MAX_STEPS
    again = replay(Visited(problem.start), found.path)
    assert again.state.graph == found.best.graph and again.cost_ms == found.best.cost_ms
    one = problem.search("policy", Budget(), policy, num_rollouts=1)
    assert len(one.path) <= MAX_STEPS and found.best.cost_ms < one.best.cost_ms
