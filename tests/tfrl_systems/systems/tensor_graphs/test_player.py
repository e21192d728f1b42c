"""The likeliest steps of a policy: to where it stops, or till time is over."""

from __future__ import annotations

import dataclasses
import json
import math

import numpy as np
import pytest

from environments.tensor_graphs import models
from environments.tensor_graphs.rules import files as rule_files
from tests.tfrl_systems.systems.tensor_graphs import test_policy
from tfrl_systems.policies.numpy_network import Memoryless
from tfrl_systems.systems.tensor_graphs import shipped
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem, Rewriting

SETTINGS = {**test_policy.SETTINGS, "max_steps": 50, "may_stop": True}


class Preferring(Memoryless):
    """Prefers the actions of the first rule, or to stop."""

    def __init__(self, stops):
        self.stops = stops

    def parameters(self, observation):
        logits = -observation["actions"][..., 0].astype(np.float32)
        logits[:, 0] += 10.0 * self.stops
        logits[~observation["action_mask"]] = -1e9
        return {"logits": logits, "actions": observation["actions"]}


def walked(*rules, until_s=math.inf, stops=False):
    by_name = {rule.name: rule for rule in rule_files.load()}
    chosen = tuple(by_name[name] for name in rules)
    problem = dataclasses.replace(test_policy.problem_of("squeezenet-1.1"), rules=chosen)
    result = problem.walk(GraphPolicy(Preferring(stops), SETTINGS), until_s)
    assert result.candidates[0].path == result.path
    return [step.rule for step in result.path]


def test_a_walk_ends_where_no_step_is_left_or_the_policy_stops_or_time_is_over():
    assert walked("global_average_is_mean") == ["global_average_is_mean"]
    assert walked("global_average_is_mean", stops=True) == []
    # Relu goes below Concat and above it again; with one step an episode would take 50.
    ring = ("relu_of_concat", "concat_of_relu")
    assert 2 < len(walked(*ring)) < SETTINGS["max_steps"]
    assert len(walked(*ring, until_s=-math.inf)) == 1


def test_the_policy_that_comes_along_says_how_it_was_made():
    files = [path for path in shipped.DIRECTORY.iterdir() if path.is_file()]
    assert sum(path.stat().st_size for path in files) <= 400_000
    made_by = json.loads((shipped.DIRECTORY / "made_by.json").read_text())
    assert made_by["command"].startswith("tfrl train tensor_graphs --agent bc_max")


@pytest.mark.ci
def test_the_policy_that_comes_along_saves_computations_of_a_transformer():
    """On a member of a family that it never drew; it sees no costs but those of the roofline."""
    problem = GraphProblem.of(
        "m", models.make("transformers:2000000"), Rewriting(objective="analytic")
    )
    result = problem.walk(GraphPolicy.load(shipped.DIRECTORY), math.inf)
    assert result.best.cost_ms < result.start_cost_ms
