"""A distribution over (rule, place), worked by hand, in TensorFlow and in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf

from tfrl_systems.networks.graph_actions import MASKED
from tfrl_systems.networks.numbered_actions import MAX_PLACE_LOGIT, NumberedActions
from tfrl_systems.policies import distributions

# Rule 0 has one place, rule 1 none, rule 2 three.
NUM_PLACES = np.array([[1, 0, 3]], np.int32)
# p(rule) = 1/4, 0, 3/4; p(place | rule 2) = 1/6, 2/6, 3/6; place 3 belongs to no rule.
OUTPUTS = np.concatenate(
    [
        np.log([[1.0, 9.0, 3.0]]),
        MAX_PLACE_LOGIT * np.arctanh(np.log([[1.0, 2.0, 3.0, 50.0]]) / MAX_PLACE_LOGIT),
    ],
    axis=1,
).astype(np.float32)

PROBABILITIES = {(0, 0): 1 / 4, (2, 0): 1 / 8, (2, 1): 1 / 4, (2, 2): 3 / 8}
ENTROPY = -sum(share * math.log(share) for share in PROBABILITIES.values())


@pytest.fixture(params=["shared", "own"])
def distribution(request):
    """With logits of places for all rules, and with each rule's own; those of others are noise."""
    shared = NumberedActions.of(tf.constant(OUTPUTS), tf.constant(NUM_PLACES))
    if request.param == "shared":
        return shared
    noise = tf.constant([[7.0, -1.0, 2.0, 3.0], [0.0, 4.0, 5.0, -6.0]])
    own = tf.concat([noise, shared.place_logits], axis=0)[tf.newaxis]
    return NumberedActions(shared.rule_logits, own, shared.num_places)


@pytest.fixture
def parameters(distribution):
    names = ("rule_logits", "place_logits", "num_places")
    return {name: distribution.parameters[name].numpy() for name in names}


def test_probabilities(distribution):
    for action, share in PROBABILITIES.items():
        log_probability = distribution.log_prob(tf.constant([action]))
        assert log_probability.numpy() == pytest.approx(math.log(share), rel=1e-5)
    for action in ((1, 0), (2, 3), (0, 1)):
        assert distribution.log_prob(tf.constant([action])).numpy() <= MASKED / 2


def test_a_rule_alone(distribution):
    actions = tf.constant([[2, 1], [0, 0]])
    both = distribution.batch_shape_tensor().numpy().tolist()
    assert both == [1]
    for action, share in zip(actions, (3 / 4, 1 / 4), strict=True):
        log = distribution.rule_log_prob(action[tf.newaxis]).numpy()
        assert log == pytest.approx(math.log(share), rel=1e-5)


def test_entropy_and_mode(distribution, parameters):
    assert distribution.entropy().numpy() == pytest.approx(ENTROPY, rel=1e-5)
    assert distributions.entropy(parameters) == pytest.approx(ENTROPY, rel=1e-5)
    # The likeliest rule first, then its likeliest place.
    assert distribution.mode().numpy().tolist() == [[2, 2]]
    assert distributions.mode(parameters).tolist() == [[2, 2]]


COUNT = 20_000


def drawn(parameters) -> np.ndarray:
    rows = {name: np.repeat(array, COUNT, axis=0) for name, array in parameters.items()}
    return distributions.draw(rows, np.random.default_rng(0))


def test_draws(distribution, parameters):
    by_tensorflow = distribution.sample(COUNT, seed=[1, 2]).numpy()[:, 0]
    for rows in (by_tensorflow, drawn(parameters)):
        assert {tuple(row) for row in rows.tolist()} == set(PROBABILITIES)
        for action, share in PROBABILITIES.items():
            assert np.mean(np.all(rows == action, axis=1)) == pytest.approx(share, abs=0.02)


def test_by_chance_all_pairs_are_equally_likely(parameters):
    rows = drawn(distributions.uniform(parameters))
    for action in PROBABILITIES:
        assert np.mean(np.all(rows == action, axis=1)) == pytest.approx(1 / 4, abs=0.02)


def test_the_same_over_a_list(parameters):
    actions = np.array([[(2, 1), (0, 0), (2, 2), (2, 0), (3, 0)]], np.int32)
    is_listed = np.array([[True, True, True, True, False]])
    wide = {**parameters, "rule_logits": np.append(parameters["rule_logits"], [[0]], axis=1)}
    if wide["place_logits"].ndim == 3:
        wide["place_logits"] = np.pad(wide["place_logits"], [(0, 0), (0, 1), (0, 0)])
    wide["num_places"] = np.append(parameters["num_places"], [[0]], axis=1)
    logits = distributions.of_list(wide, actions, is_listed)["logits"][0]
    shares = np.exp(logits - logits.max())
    expected = [PROBABILITIES.get(tuple(pair), 0) for pair in actions[0].tolist()]
    np.testing.assert_allclose(shares / shares.sum(), expected, rtol=1e-5)
    assert logits[-1] == np.float32(MASKED)


def test_nothing_is_allowed():
    """The distribution stays one, so that padding does no harm."""
    nothing = np.zeros((1, 3), np.int32)
    distribution = NumberedActions.of(tf.constant(OUTPUTS), tf.constant(nothing))
    assert np.isfinite(distribution.entropy().numpy()).all()
    assert distribution.sample(seed=[1, 2]).numpy()[0, 1] == 0


def test_gradients_are_finite():
    outputs = tf.Variable(OUTPUTS)
    with tf.GradientTape() as tape:
        distribution = NumberedActions.of(outputs, tf.constant(NUM_PLACES))
        total = distribution.entropy() + distribution.log_prob(tf.constant([[2, 1]]))
    gradient = tape.gradient(total, outputs).numpy()
    assert np.isfinite(gradient).all()
    # Neither a rule without places nor a place of no rule is moved.
    assert gradient[0, [1, -1]] == pytest.approx(0, abs=1e-6)
