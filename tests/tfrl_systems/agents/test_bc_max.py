"""BC-Max for policies of any kind: what is cloned, and how contexts count."""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.specs import array_spec
from tf_agents.trajectories import time_step as ts

from tests.tfrl_systems.agents.test_lessons import UNKNOWN, episodes
from tfrl_systems.agents import bc_max
from tfrl_systems.agents.lessons import Records
from tfrl_systems.drivers.group_runner import LessonRunner
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.episodes import Experience


def test_hedge_shifts_towards_what_policies_left_dear():
    """Buckets of D.3: costs 4, 5 (m = 3) and 64 (m = 7) have weights 1, 1 and 2.

    In iteration 1 the policy came to 16 where 4 is known; context 64 was not played, so it counts
    as 64. L~ = (16 + 5, 64), L = (21/64, 1), and p = (2/3 exp(-21/64), 1/3 exp(-1)) normalised.
    In iteration 0 nothing was learned yet, but costs count too: L~ = (9, 64).
    """
    names, ones, cost = np.array(["a", "b", "c"]), np.ones(3, np.int64), np.array([4.0, 5.0, 64.0])
    learned, iteration = np.array([16.0, UNKNOWN, UNKNOWN]), np.array([1, 0, 0])
    met = Records(names, ones, cost, cost, learned, iteration)
    weights = {
        name: bc_max.weights_of(met, bc_max.Config(context_weights=name))
        for name in bc_max.CONTEXT_WEIGHTS
    }
    np.testing.assert_array_equal(weights["even"], [1, 1, 1])
    np.testing.assert_array_equal(weights["buckets"], [1, 1, 2])
    small, large = 2 / 3 * np.exp(-(9 + 21) / 64), 1 / 3 * np.exp(-2)
    np.testing.assert_allclose(weights["hedge"], [1, 1, small / large])
    # Buckets may stay where the first costs are, although 64 has come down to 6.
    lower = met._replace(cost=np.array([4.0, 5.0, 6.0]))
    for name, expected in (("best", [1, 1, 1]), ("first", [1, 1, 2])):
        config = bc_max.Config(context_weights="buckets", bucketed_by=name)
        assert bc_max.weights_of(lower, config).tolist() == expected


def make_agent(**settings) -> bc_max.BCMaxAgent:
    spec = ts.time_step_spec(array_spec.ArraySpec((2,), np.float32, "seen"))
    action = array_spec.BoundedArraySpec((), np.int64, 0, 1, "action")
    config = bc_max.Config(hidden_sizes=(16,), learning_rate=1e-2, **settings)
    return bc_max.make_agent(config, spec, action)


TWO = episodes(("a", 1, [1, 0]), ("b", 2, [0, 1]), ("a", 0, [0, 1]))


def test_what_the_best_episodes_do_is_cloned():
    """In context a that is [0, 1], of cost 0; the dearer episode there does the opposite."""
    agent = make_agent(updates=150)
    info = agent.train(TWO).extra
    assert info.agreement == 1 and info.contexts == 2 and info.steps == 4
    seen = np.array([[0, 0], [0, 1], [2, 0], [2, 1]], np.float32)
    step = ts.restart(tf.constant(seen), 4)
    np.testing.assert_array_equal(agent.policy.action(step).action, [0, 1, 0, 1])


def test_equally_good_actions_share_and_regrets_count():
    """Of three listed actions with logits 0 two are wanted, and the third costs 4.

    -(1/2 + 1/2) log 1/3 = log 3, and 0.5 * 1/3 * 4 = 2/3.
    """
    agent = make_agent(regret_weight=0.5, updates=1, batch_size=1)
    logits = tf.zeros([1, 3])
    agent.actor_network.call = lambda seen: (types.SimpleNamespace(logits=logits), ())
    played = episodes(("a", 1, [0]))
    labels = {"targets": [0.5, 0.5, 0], "regrets": [0, 0, 4]}
    shape = played.trajectory.reward.shape
    info = {name: np.full((*shape, 3), row, np.float32) for name, row in labels.items()}
    steps = played.trajectory._replace(policy_info=info)
    loss = agent.train(dataclasses.replace(played, trajectory=steps))
    assert loss.loss == pytest.approx(np.log(3) + 2 / 3) and loss.extra.agreement == 1


def test_without_other_teachers_each_context_is_played_several_times():
    """Chunk 0 is played with noise 0, 1 and 2; costs are returns with the other sign."""

    class Runner:
        def load(self, data):
            pass

        def close(self):
            pass

        def run(self, job, attempt):
            played = episodes(("a", 0, [0, 1]), ("b", 0, [1]))
            reward = np.array([[1, 2], [5 * attempt, 0]], np.float32)
            return Experience(played.trajectory._replace(reward=reward), played.contexts, {})

    experience = LessonRunner(Runner, 3).run(Chunk(0, 0))
    assert experience.contexts.tolist() == ["a", "b"] * 3
    np.testing.assert_array_equal(experience.info["cost"], [-3, 0, -3, -5, -3, -10])
    np.testing.assert_array_equal(experience.info["learned_cost"], [-3, -5] * 3)


def test_bucket_weights_worked_by_hand():
    """D.3: buckets [0, 1), [1, 2), [2, 4), [4, 8), … hold 1, 1, 3, 2 of these sizes."""
    weights = bc_max.bucket_weights([0, 1, 2, 3, 3, 4, 7])
    assert weights.tolist() == [3, 3, 1, 1, 1, 1.5, 1.5]


def test_hedge_weights_worked_by_hand():
    """D.4 with buckets {2, 3, 3} and {4, 7}: p^1 = (3/5, 2/5).

    With η = log 4, exp(-η L) is 1/2 at L = 1/2 and 1/4 at L = 1.
    π_1: L~ = (5, 10), L = (1/2, 1), p ∝ (3/5 · 1/2, 2/5 · 1/4), which is (3/4, 1/4).
    π_2: L~ = (8, 4), L = (1, 1/2), p ∝ (3/4 · 1/4, 1/4 · 1/2) = (3/16, 2/16).
    """
    sizes, first, second = [2, 3, 3, 4, 7], [2, 2, 1, 4, 6], [3, 3, 2, 1, 3]
    nothing_lost = [0, 0, 0, 0, 0]
    for learned, large in (
        ([], 3 / 2),
        ([nothing_lost], 3 / 2),
        ([first], 3),
        ([first, second], 3 / 2),
    ):
        weights = bc_max.hedge_weights(sizes, learned, np.log(4))
        np.testing.assert_allclose(weights, [1, 1, 1, large, large])
