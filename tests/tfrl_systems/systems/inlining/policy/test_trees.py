"""Boosted trees: flattened as scikit-learn grew them, and exact in TensorFlow and NumPy."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from tests.tfrl_systems.systems.inlining import decision_rows
from tfrl_systems.systems.inlining.policy import numpy_models, trees, votes

SETTINGS = trees.TreeSettings(
    num_models=1,
    num_trees=10,
    max_leaf_nodes=6,
    learning_rate=0.3,
    min_samples_leaf=5,
    l2=1.0,
    feature_fraction=1.0,
)


def numpy_votes(model: trees.BoostedTrees, rows: np.ndarray) -> np.ndarray:
    twin = numpy_models.NumpyTrees(model.arrays(), rows.shape[1])
    return twin.votes(rows[:, twin.used])


def fitted(rows: np.ndarray, actions: np.ndarray, seed: int = 0, **settings) -> trees.BoostedTrees:
    model = trees.BoostedTrees(rows.shape[1], dataclasses.replace(SETTINGS, **settings))
    model.fit(rows, actions, np.ones(len(rows)), seed)
    return model


def test_a_tree_worked_by_hand():
    """x0 <= 3 ? (x1 <= -2 ? 1 : 10) : 100, with a base of 1000 and a second tree of one leaf."""
    settings = dataclasses.replace(SETTINGS, num_trees=2, max_leaf_nodes=3)
    model = trees.BoostedTrees(2, settings)
    model.feature.assign([[0, 1, 0, 0, 0], [0] * 5])
    model.threshold.assign([[3, -2, 0, 0, 0], [0] * 5])
    model.left.assign([[1, 2, 2, 3, 4], [0] * 5])
    model.right.assign([[4, 3, 2, 3, 4], [0] * 5])
    model.value.assign([[0, 0, 1, 10, 100], [20000, 0, 0, 0, 0]])
    model.base.assign(1000)
    model.depth.assign(2)
    rows = np.array([[3, -2], [3, -1], [4, -2], [-(2**40), -(2**40)]])
    expected = [21001, 21010, 21100, 21001]
    assert model.votes(tf.constant(rows)).numpy().tolist() == expected
    assert numpy_votes(model, rows).tolist() == expected


def test_untrained_trees_vote_nothing():
    model = trees.BoostedTrees(5, SETTINGS)
    rows = decision_rows.draw(3, 0)
    assert model.votes(tf.constant(rows)).numpy().tolist() == [0, 0, 0]
    assert numpy_votes(model, rows).tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    "column, edges",
    [
        ([4, 4, 4], []),
        ([0, 1, 5, 1], [0, 3]),
        ([-4, -1], [-3]),
        (list(range(255)), list(range(254))),
    ],
)
def test_edges_lie_between_values(column, edges):
    assert trees.learn_edges(np.array(column)).tolist() == edges


def test_many_values_share_bins_of_equal_weight():
    column = np.concatenate([np.arange(10_000), np.full(5_000, 77)])
    edges = trees.learn_edges(column)
    assert len(edges) < trees.MAX_BINS
    counts = np.bincount(np.searchsorted(edges, column))
    assert np.sum(counts > 5_000) == 1
    assert np.sort(counts)[-2] <= 60 and np.median(counts) == pytest.approx(59, abs=1)


def test_flattened_trees_give_scikit_learns_probabilities():
    import sklearn.ensemble

    rows = decision_rows.draw(2000, 1)
    edges = [trees.learn_edges(column) for column in rows.T]
    bins = np.stack([np.searchsorted(e, c) for e, c in zip(edges, rows.T, strict=True)], axis=1)
    classifier = sklearn.ensemble.HistGradientBoostingClassifier(
        max_iter=10, max_leaf_nodes=6, early_stopping=False
    ).fit(bins, decision_rows.labels(rows))
    flat = trees.flatten(classifier, edges, trees.FlatTrees.empty(10, 6))
    model = trees.BoostedTrees(rows.shape[1], SETTINGS)
    for field in dataclasses.fields(flat):
        getattr(model, field.name).assign(getattr(flat, field.name))
    logits = model.votes(tf.constant(rows)).numpy() / votes.ONE
    expected = classifier.predict_proba(bins)[:, 1]
    assert expected.std() > 0.2
    # Eleven roundings to 2^-24 at most.
    np.testing.assert_allclose(1 / (1 + np.exp(-logits)), expected, rtol=0, atol=11 * 2**-25)


@pytest.mark.parametrize("max_leaf_nodes, num_models", [(2, 1), (31, 2), (33, 1), (64, 1)])
def test_numpy_twin_agrees_on_every_bit(max_leaf_nodes, num_models):
    rows = decision_rows.draw(3000, 2)
    model = fitted(
        rows,
        decision_rows.labels(rows),
        max_leaf_nodes=max_leaf_nodes,
        num_models=num_models,
        min_samples_leaf=1,
    )
    grown = (model.left.numpy() != np.arange(model.left.shape[1])).sum(axis=1) + 1
    assert grown.max() == max_leaf_nodes
    fresh = np.concatenate([decision_rows.draw(2000, 3), decision_rows.wild(1000, 4)])
    np.testing.assert_array_equal(model.votes(tf.constant(fresh)), numpy_votes(model, fresh))


@pytest.mark.parametrize("action", [0, 1])
def test_one_action_only(action):
    rows = decision_rows.draw(100, 5)
    model = fitted(rows, np.full(100, action), num_models=2)
    expected = 2 * votes.to_fixed(np.array((2 * action - 1) * np.log(101)))
    assert np.all(model.votes(tf.constant(rows)).numpy() == expected)


def test_a_second_fit_leaves_nothing_of_the_first():
    rows = decision_rows.draw(500, 6)
    model = fitted(rows, decision_rows.labels(rows))
    model.fit(rows, 1 - decision_rows.labels(rows), np.ones(500), 0)
    fresh = fitted(rows, 1 - decision_rows.labels(rows))
    for name, array in fresh.arrays().items():
        np.testing.assert_array_equal(array, model.arrays()[name])


def test_features_that_no_tree_tests_are_not_used():
    rows = decision_rows.draw(500, 7)
    model = fitted(rows, (rows[:, 3] > 20).astype(int), num_trees=3)
    assert numpy_models.NumpyTrees(model.arrays(), 5).used.tolist() == [3]
