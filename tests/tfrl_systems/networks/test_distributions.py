"""Distributions over actions, worked by hand, in TensorFlow and in NumPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import tensorflow as tf
from tf_agents.distributions import utils as distribution_utils

from tfrl_systems.networks.distributions import (
    MASKED,
    MAX_PLACE_LOGIT,
    ListedActions,
    Mixture,
    NumberedActions,
)
from tfrl_systems.policies import distributions

LIST = np.int32([[[3, 0], [0, 0], [0, 2], [3, 0]]])
# Rule 0 has one place, rule 1 none, rule 2 three.
NUM_PLACES = np.int32([[1, 0, 3]])
# p(rule) = 1/4, 0, 3/4; p(place | rule 2) = 1/6, 2/6, 3/6; place 3 belongs to no rule.
OUTPUTS = np.concatenate(
    [
        np.log([[1.0, 9.0, 3.0]]),
        MAX_PLACE_LOGIT * np.arctanh(np.log([[1.0, 2.0, 3.0, 50.0]]) / MAX_PLACE_LOGIT),
    ],
    axis=1,
).astype(np.float32)
OF_PAIRS = {(0, 0): 1 / 4, (2, 0): 1 / 8, (2, 1): 1 / 4, (2, 2): 3 / 8}
OF_LIST = {(3, 0): 1 / 8, (0, 0): 2 / 8, (0, 2): 5 / 8}
COUNT = 20_000


def listed(*odds):
    """Of LIST at these odds; its last row is a padding that repeats the first."""
    return ListedActions(logits=tf.constant([[*np.log(np.float32(odds)), MASKED]]), actions=LIST)


def numbered(has_own_places):
    """With logits of places for all rules, or with each rule's own; those of others are noise."""
    shared = NumberedActions.of(tf.constant(OUTPUTS), tf.constant(NUM_PLACES))
    if not has_own_places:
        return shared
    noise = tf.constant([[7.0, -1.0, 2.0, 3.0], [0.0, 4.0, 5.0, -6.0]])
    own = tf.concat([noise, shared.place_logits], axis=0)[tf.newaxis]
    return NumberedActions(
        rule_logits=shared.rule_logits, place_logits=own, num_places=shared.num_places
    )


def numpy_of(distribution, count=1):
    """The same in NumPy, in so many rows."""
    return {
        name: np.repeat(getattr(distribution, name).numpy(), count, axis=0)
        for name in distribution.EVENT_NDIMS
    }


@pytest.fixture(params=["listed", "shared places", "own places"])
def case(request):
    """A distribution, and the probabilities of its actions."""
    if request.param == "listed":
        return listed(1, 2, 5), OF_LIST
    return numbered(request.param == "own places"), OF_PAIRS


def test_probabilities(case):
    distribution, shares = case
    for action, share in shares.items():
        assert np.exp(distribution.log_prob([action])) == pytest.approx(share, rel=1e-5)
        of_rule = sum(own for (rule, _), own in shares.items() if rule == action[0])
        assert np.exp(distribution.rule_log_prob(tf.constant([action]))) == pytest.approx(of_rule)
    for action in ((1, 0), (2, 3), (0, 1)):
        assert distribution.log_prob([action]).numpy() <= MASKED / 2


def test_mode_and_entropy(case):
    distribution, shares = case
    likeliest = [list(max(shares, key=shares.get))]
    assert distribution.mode().numpy().tolist() == likeliest
    assert distributions.mode(numpy_of(distribution)).tolist() == likeliest
    expected = -sum(share * math.log(share) for share in shares.values())
    assert distribution.entropy().numpy() == pytest.approx(expected, rel=1e-5)
    assert distributions.entropy(numpy_of(distribution)) == pytest.approx(expected, rel=1e-5)


def assert_drawn(rows, shares):
    assert {tuple(row) for row in rows.tolist()} == set(shares)
    for action, share in shares.items():
        assert np.mean(np.all(rows == action, axis=1)) == pytest.approx(share, abs=0.02)


def test_draws(case):
    distribution, shares = case
    assert_drawn(distribution.sample(COUNT, seed=[1, 2]).numpy()[:, 0], shares)
    many = numpy_of(distribution, COUNT)
    assert_drawn(distributions.draw(many, np.random.default_rng(0)), shares)


@pytest.mark.parametrize("has_own_places", [False, True])
def test_by_chance_all_pairs_are_equally_likely(has_own_places):
    even = distributions.uniform(numpy_of(numbered(has_own_places), COUNT))
    rows = distributions.draw(even, np.random.default_rng(0))
    assert_drawn(rows, dict.fromkeys(OF_PAIRS, 1 / 4))


@pytest.mark.parametrize("has_own_places", [False, True])
def test_the_same_over_a_list(has_own_places):
    actions = np.int32([[(2, 1), (0, 0), (2, 2), (2, 0), (3, 0)]])
    is_listed = np.array([[True, True, True, True, False]])
    wide = numpy_of(numbered(has_own_places))
    wide["rule_logits"] = np.append(wide["rule_logits"], [[0]], axis=1)
    wide["num_places"] = np.append(wide["num_places"], [[0]], axis=1)
    if has_own_places:
        wide["place_logits"] = np.pad(wide["place_logits"], [(0, 0), (0, 1), (0, 0)])
    logits = distributions.of_list(wide, actions, is_listed)["logits"][0]
    shares = np.exp(logits - logits.max())
    expected = [OF_PAIRS.get(tuple(pair), 0) for pair in actions[0].tolist()]
    np.testing.assert_allclose(shares / shares.sum(), expected, rtol=1e-5)
    assert logits[-1] == np.float32(MASKED)


def test_a_distribution_is_made_again_of_what_is_kept(case):
    distribution, shares = case
    parameters = distribution_utils.get_parameters(distribution)
    tensors = distribution_utils.parameters_to_dict(parameters, tensors_only=True)
    assert tensors.keys() == distribution.EVENT_NDIMS.keys()
    again = distribution_utils.make_from_parameters(
        distribution_utils.merge_to_parameters_from_dict(parameters, tensors)
    )
    assert type(again) is type(distribution)
    for action, share in shares.items():
        assert np.exp(again.log_prob([action])) == pytest.approx(share, rel=1e-5)
    assert (again.batch_shape, again.event_shape) == ([1], [2])


def test_nothing_is_allowed():
    """The distribution stays one, so that padding does no harm."""
    distribution = NumberedActions.of(tf.constant(OUTPUTS), tf.zeros([1, 3], tf.int32))
    assert np.isfinite(distribution.entropy().numpy()).all()
    assert distribution.sample(seed=[1, 2]).numpy()[0, 1] == 0


@pytest.mark.parametrize("odds", [(1, 2, 5), (0, 3, 0)], ids=["three", "one"])
def test_no_gradient_reaches_what_is_masked(odds):
    """Exactly 0, of the log-probability and of the entropy, and no NaN where one is left."""
    logits = [np.log(share) if share else MASKED for share in odds] + [MASKED]
    logits = tf.Variable([logits], dtype=tf.float32)
    with tf.GradientTape(persistent=True) as tape:
        distribution = ListedActions(logits=logits, actions=LIST)
        log, entropy = distribution.log_prob([[0, 0]]), distribution.entropy()
    for output in (log, entropy):
        gradient = tape.gradient(output, logits).numpy()[0]
        assert np.isfinite(gradient).all()
        assert (gradient[np.array([*odds, 0]) == 0] == 0).all()
    if odds[0] == 0:
        assert (log.numpy(), entropy.numpy()) == (0, 0)


def test_neither_a_rule_without_places_nor_a_place_of_no_rule_is_moved():
    outputs = tf.Variable(OUTPUTS)
    with tf.GradientTape() as tape:
        distribution = NumberedActions.of(outputs, tf.constant(NUM_PLACES))
        total = distribution.entropy() + distribution.log_prob(tf.constant([[2, 1]]))
    gradient = tape.gradient(total, outputs).numpy()
    assert np.isfinite(gradient).all()
    assert gradient[0, [1, -1]] == pytest.approx(0, abs=1e-6)


@pytest.fixture
def mixture():
    """A quarter of the actions is drawn around 0, the rest around 2."""
    return Mixture(
        logits=np.log(np.float32([[0.25, 0.75]])),
        loc=np.float32([[[0], [2]]]),
        scale_diag=np.ones((1, 2, 1), np.float32),
    )


def test_a_mixture_by_hand(mixture):
    """Midway both are as dense, N(1; 0, 1); at 0 the other is less dense by exp(-2)."""
    midway = math.exp(-0.5) / math.sqrt(2 * math.pi)
    own = 1 / (1 + 3 * math.exp(-2))
    assert mixture.log_prob([[1.0]]).numpy() == pytest.approx(math.log(midway), rel=1e-5)
    for action, shares in ((1, (0.25, 0.75)), (0, (own, 1 - own))):
        responsibilities = mixture.responsibilities(tf.constant([[float(action)]]))
        np.testing.assert_allclose(responsibilities, [shares], rtol=1e-5)
    assert mixture.mode().numpy() == distributions.mode(numpy_of(mixture)) == 2
    # The entropy of the component, and of a normal distribution.
    of_component = -0.25 * math.log(0.25) - 0.75 * math.log(0.75)
    expected = of_component + 0.5 * math.log(2 * math.pi * math.e)
    assert mixture.entropy().numpy() == pytest.approx(expected, rel=1e-5)
    assert distributions.entropy(numpy_of(mixture)) == pytest.approx(expected, rel=1e-5)


def test_draws_of_a_mixture(mixture):
    """Mean 3/4 · 2, variance 1 + 3/4 · 1/4 · 2²."""
    for drawn in (
        distributions.draw(numpy_of(mixture, COUNT), np.random.default_rng(0)),
        mixture.sample(COUNT, seed=(0, 1)).numpy()[:, 0],
    ):
        assert drawn.shape == (COUNT, 1) and drawn.dtype == np.float32
        assert (drawn.mean(), drawn.var()) == pytest.approx((1.5, 1.75), abs=0.05)
