"""Networks: exact on their grid, close to what was trained, equal to their NumPy twin."""

from __future__ import annotations

import tempfile

import numpy as np
import tensorflow as tf

from tests.tfrl_systems.systems.inlining import decision_rows
from tfrl_systems.systems.inlining.policy import decision_network, numpy_networks, votes

GRID = 1 << votes.GRID_BITS


EFFORT = {"epochs": 3, "batch_size": 64, "learning_rate": 1e-2, "weight_decay": 1e-2}


def make(num_features=1, num_models=2, hidden_sizes=(8,), num_knots=9):
    return decision_network.DecisionNetworks(num_features, num_models, hidden_sizes, num_knots)


def fitted(rows: np.ndarray, epochs=3, **sizes) -> decision_network.DecisionNetworks:
    model = make(rows.shape[1], **sizes)
    weights = np.ones(len(rows))
    model.fit(rows, decision_rows.labels(rows), weights, 0, **(EFFORT | {"epochs": epochs}))
    return model


def test_training_writes_no_files(monkeypatch, tmp_path):
    # AutoGraph does; a run whose disk is full ended with its traceback.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    fitted(decision_rows.draw(64, 3), hidden_sizes=(5, 3))


def test_a_network_worked_by_hand():
    """x in 0..4 becomes x/4; hidden relu(2x - 1/2), relu(1 - 4x); logit 3 h0 - h1 + 1/4."""
    model = make(num_models=1, hidden_sizes=(2,), num_knots=5)
    model.normalise.learn(np.arange(5)[:, np.newaxis])
    layers = ([[[2, -4]]], [[[-0.5, 1]]], [[[3], [-1]]], [[[0.25]]])
    for variable, value in zip(model.grid, layers, strict=True):
        variable.assign(np.multiply(value, GRID))
    # x = 0: h = (0, 1); ¼: (0, 0); ½: (½, 0); ¾: (1, 0); 1: (3/2, 0)
    expected = np.array([-0.75, 0.25, 1.75, 3.25, 4.75]) * votes.ONE
    rows = np.arange(5)[:, np.newaxis]
    assert model.votes(tf.constant(rows)).numpy().tolist() == expected.tolist()
    twin = numpy_networks.NumpyNetworks(model.arrays(), 1)
    assert twin.votes(rows).tolist() == expected.tolist()


def test_numpy_twin_agrees_on_every_bit():
    model = fitted(decision_rows.draw(500, 1), hidden_sizes=(16, 256))
    rows = np.concatenate([decision_rows.draw(2000, 2), decision_rows.wild(2000, 3)])
    expected = model.votes(tf.constant(rows)).numpy()
    twin = numpy_networks.NumpyNetworks(model.arrays(), rows.shape[1])
    np.testing.assert_array_equal(expected, twin.votes(rows))
    assert len(np.unique(expected)) > 1000
    first, second = model.grid[0].numpy()
    assert not np.array_equal(first, second)  # the members differ
    one_by_one = [int(twin.votes(rows[i : i + 1])[0]) for i in range(0, len(rows), 20)]
    assert expected[::20].tolist() == one_by_one


def test_largest_values_stay_exact():
    """Everything at its limit: sums of 256 products of 2^24 and 2^20 fit into 53 bits."""
    model = make(num_models=1, hidden_sizes=(256, 256))
    model.normalise.learn(np.arange(2)[:, np.newaxis])
    for variable in model.grid:
        variable.assign(np.full(variable.shape, float(decision_network.MAX_WEIGHT * GRID)))
    model.grid[4].assign(tf.ones_like(model.grid[4]))  # 2^-16 each: 256 * 256 * 2^-16 = 1
    model.grid[5].assign([[[0.0]]])
    row = tf.constant([[1]], tf.int64)
    assert model.votes(row).numpy().tolist() == [votes.ONE]
    twin = numpy_networks.NumpyNetworks(model.arrays(), 1)
    assert twin.votes(row.numpy()).tolist() == [votes.ONE]
    limits = (votes.MAX_ACTIVATION, decision_network.MAX_WEIGHT, GRID)
    assert limits[0] * limits[1] * limits[2] ** 2 * 256 + limits[1] * limits[2] ** 2 < 2**53


def test_fewer_rows_than_a_batch():
    model = fitted(decision_rows.draw(3, 6))
    assert np.any(model.grid[0].numpy())
