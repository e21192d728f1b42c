"""A distribution over a list of actions, worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_probability as tfp
from tf_agents.distributions import utils as distribution_utils

from tfrl_systems.networks.graph_actions import MASKED, ListedActions

LIST = np.array([[3, 0], [0, 0], [0, 2], [3, 0]], np.int32)


def listed(*odds):
    """Of LIST at these odds; its last row is a padding that repeats the first."""
    logits = np.log(np.float32(odds))
    return ListedActions(tf.constant([[*logits, MASKED]]), tf.constant(LIST[np.newaxis]))


def test_listed_actions_by_hand():
    distribution = listed(1, 2, 5)
    logs = distribution.log_prob(LIST[:3, np.newaxis]).numpy()
    np.testing.assert_allclose(np.exp(logs), [[1 / 8], [2 / 8], [5 / 8]], rtol=1e-6)
    shares = np.array([1, 2, 5]) / 8
    assert distribution.entropy().numpy() == pytest.approx(-np.sum(shares * np.log(shares)))
    assert distribution.mode().numpy().tolist() == [[0, 2]]
    assert distribution.log_prob([[1, 1]]).numpy() == np.float32(MASKED)
    drawn = distribution.sample(4000, seed=1).numpy()[:, 0]
    counts = [(drawn == action).all(axis=1).mean() for action in LIST[:3]]
    np.testing.assert_allclose(counts, shares, atol=0.03)


def test_the_probability_of_a_rule_is_that_of_its_actions():
    """Rule 3 has one action of odds 1, rule 0 two of odds 2 and 5, and rule 2 none."""
    actions = np.int32([[[3, 2]], [[0, 0]], [[0, 3]], [[2, 0]]])
    shares = np.exp(listed(1, 2, 5).rule_log_prob(actions).numpy())
    np.testing.assert_allclose(shares, [[1 / 8], [7 / 8], [7 / 8], [0]], rtol=1e-6)


def test_listed_actions_are_made_again_of_what_is_kept():
    distribution = listed(1, 2, 5)
    parameters = distribution_utils.get_parameters(distribution)
    tensors = distribution_utils.parameters_to_dict(parameters, tensors_only=True)
    assert sorted(tensors) == ["actions", "logits"]
    others = {**tensors, "logits": listed(5, 2, 1).logits}
    again = distribution_utils.make_from_parameters(
        distribution_utils.merge_to_parameters_from_dict(parameters, others)
    )
    assert isinstance(again, ListedActions)
    np.testing.assert_allclose(np.exp(again.log_prob([[3, 0]])), [5 / 8], rtol=1e-6)
    assert (again.batch_shape, again.event_shape) == ([1], [2])
    assert again.reparameterization_type == tfp.distributions.NOT_REPARAMETERIZED


@pytest.mark.parametrize("odds", [(1, 2, 5), (0, 3, 0)], ids=["three", "one"])
def test_no_gradient_reaches_what_is_masked(odds):
    """Exactly 0, of the log-probability and of the entropy, and no NaN where one is left."""
    logits = [np.log(share) if share else MASKED for share in odds] + [MASKED]
    logits = tf.Variable([logits], dtype=tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        distribution = ListedActions(logits, LIST[np.newaxis])
        log, entropy = distribution.log_prob([[0, 0]]), distribution.entropy()
    for output in (log, entropy):
        gradient = tape.gradient(output, logits).numpy()[0]
        assert np.isfinite(gradient).all()
        assert (gradient[np.array([*odds, 0]) == 0] == 0).all()
    if odds[0] == 0:
        assert (log.numpy(), entropy.numpy()) == (0, 0)
