"""Entropies of recorded distributions, in nats, as on paper."""

from __future__ import annotations

import numpy as np
import pytest
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from tfrl_systems.episodes import Experience
from tfrl_systems.training.entropy import mean_entropy

FIRST, MID, LAST = ts.StepType.FIRST, ts.StepType.MID, ts.StepType.LAST


def experience_of(**parameters) -> Experience:
    """One episode of two steps, and a boundary step."""
    zeros = np.zeros((1, 3), np.float32)
    steps = trajectory.Trajectory(
        step_type=np.array([[FIRST, MID, LAST]]),
        observation=zeros,
        action=zeros,
        policy_info={"dist_params": parameters} if parameters else (),
        next_step_type=np.array([[MID, LAST, FIRST]]),
        reward=zeros,
        discount=zeros,
    )
    return Experience(trajectory=steps, contexts=("a",), info={})


def test_choices():
    # Even between two of three, certain, and a boundary step that does not count.
    logits = np.array([[[0, 0, -1e9], [50, -50, -50], [0, 0, 0]]], np.float32)
    assert mean_entropy(experience_of(logits=logits)) == pytest.approx(np.log(2) / 2)


def test_gaussians_of_several_actions_add_up():
    scale = np.array([[[1, 2], [1, 2], [9, 9]]], np.float32)
    expected = 2 * 0.5 * np.log(2 * np.pi * np.e) + np.log(2)
    assert mean_entropy(experience_of(loc=scale, scale=scale)) == pytest.approx(expected)


def test_nothing_recorded():
    assert mean_entropy(experience_of()) is None
