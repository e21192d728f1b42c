"""Boosted decision trees behind the interface of a decision model.

scikit-learn grows the trees; what remains of them is flat arrays of integers, kept in TensorFlow
variables of a shape that the settings fix, so that a policy made of trees is saved, sent to workers
and loaded like one made of networks. Features are integers, so thresholds are too.

scikit-learn is given bin numbers, not values: its own binning takes a minute where features have
many distinct values and rows have weights, and would differ from bag to bag.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import sklearn.ensemble
import tensorflow as tf
import threadpoolctl

from tfrl_systems.networks import votes

MAX_BINS = 255
"""As many as scikit-learn has."""


@dataclasses.dataclass(frozen=True)
class TreeSettings:
    """How trees are grown.

    Attributes:
      num_models: bags; each is a boosted classifier with `num_trees` trees of its own.
      num_trees: boosting rounds of each bag.
      max_leaf_nodes: leaves of a tree, at most 64.
      learning_rate: shrinkage of each tree's leaves.
      min_samples_leaf: rows that a leaf must hold.
      l2: L2 regularisation of the leaves.
      feature_fraction: share of the features that each split may choose from.
    """

    num_models: int
    num_trees: int
    max_leaf_nodes: int
    learning_rate: float
    min_samples_leaf: int
    l2: float
    feature_fraction: float


@dataclasses.dataclass(frozen=True)
class FlatTrees:
    """Trees as arrays [num_trees, num_nodes]; node 0 is the root.

    A row goes left at a node where `row[feature] <= threshold`. A leaf's children are the leaf
    itself; inner nodes and unused ones have value 0.

    Attributes:
      feature: int32.
      threshold: int64.
      left: int32 place of the left child in its tree.
      right: int32 place of the right child.
      value: int64, a leaf's logit in fixed point.
      base: int64 scalar, the logit to which the leaves are added.
      depth: steps from a root to the deepest leaf.
    """

    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray
    base: int
    depth: int

    @classmethod
    def empty(cls, num_trees: int, max_leaf_nodes: int) -> FlatTrees:
        """Trees that are a single leaf of value 0, with room for `max_leaf_nodes` leaves."""
        shape = (num_trees, 2 * max_leaf_nodes - 1)
        places = np.broadcast_to(np.arange(shape[1], dtype=np.int32), shape)
        return cls(
            feature=np.zeros(shape, np.int32),
            threshold=np.zeros(shape, np.int64),
            left=places.copy(),
            right=places.copy(),
            value=np.zeros(shape, np.int64),
            base=0,
            depth=0,
        )


class BoostedTrees(tf.Module):
    """Bags of boosted trees whose logits are averaged.

    Args:
      num_features: F.
      settings: how trees are grown.
    """

    kind = "trees"

    def __init__(self, num_features: int, settings: TreeSettings) -> None:
        super().__init__(name="boosted_trees")
        self.num_models = settings.num_models
        self._num_features = num_features
        self._settings = settings
        flat = FlatTrees.empty(settings.num_models * settings.num_trees, settings.max_leaf_nodes)
        for name, value in _arrays(flat).items():
            setattr(self, name, tf.Variable(value, trainable=False, name=name))

    def fit(
        self, features: np.ndarray, actions: np.ndarray, weights: np.ndarray, seed: int
    ) -> None:
        """Grows all trees anew (`votes.DecisionModel.fit`); not inside a tf.function."""
        edges = [learn_edges(column) for column in features.T]
        bins = np.stack(
            [np.searchsorted(*pair) for pair in zip(edges, features.T, strict=True)], axis=1
        )
        bags = votes.bag_weights(seed, self.num_models, len(actions))
        seeds = np.random.SeedSequence(seed).generate_state(self.num_models)
        flat = [
            self._fit_bag(bins, edges, actions, weights * bag, int(bag_seed))
            for bag, bag_seed in zip(bags, seeds, strict=True)
        ]
        joined = {
            name: np.concatenate([getattr(trees, name) for trees in flat])
            for name in ("feature", "threshold", "left", "right", "value")
        }
        base = sum(trees.base for trees in flat)
        depth = max(trees.depth for trees in flat)
        for name, value in _arrays(FlatTrees(**joined, base=base, depth=depth)).items():
            getattr(self, name).assign(value)

    def votes(self, features: tf.Tensor) -> tf.Tensor:
        """See `votes.DecisionModel.votes`; one step down all trees at a time."""
        num_trees, num_nodes = self.feature.shape
        roots = tf.range(num_trees, dtype=tf.int32) * num_nodes
        flat = {
            name: tf.reshape(getattr(self, name), [-1])
            for name in ("feature", "threshold", "left", "right", "value")
        }

        def descend(step: tf.Tensor, node: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            seen = tf.gather(features, tf.gather(flat["feature"], node), batch_dims=1)
            goes_left = seen <= tf.gather(flat["threshold"], node)
            child = tf.where(
                goes_left, tf.gather(flat["left"], node), tf.gather(flat["right"], node)
            )
            return step + 1, roots + child

        node = tf.broadcast_to(roots, tf.stack([tf.shape(features)[0], num_trees]))
        depth = self.depth.read_value()
        _, leaf = tf.while_loop(lambda step, _: step < depth, descend, (tf.constant(0), node))
        return tf.reduce_sum(tf.gather(flat["value"], leaf), axis=1) + self.base

    def arrays(self) -> dict[str, np.ndarray]:
        """See `votes.DecisionModel.arrays`; named as in `FlatTrees`."""
        names = (field.name for field in dataclasses.fields(FlatTrees))
        return {name: getattr(self, name).numpy() for name in names}

    def _fit_bag(
        self,
        bins: np.ndarray,
        edges: Sequence[np.ndarray],
        actions: np.ndarray,
        weights: np.ndarray,
        seed: int,
    ) -> FlatTrees:
        settings = self._settings
        flat = FlatTrees.empty(settings.num_trees, settings.max_leaf_nodes)
        if len(np.unique(actions)) < 2:
            # Rule of succession: N rows that all say 1 make the odds N + 1 to 1.
            logit = (2 * int(actions[0]) - 1) * np.log(len(actions) + 1)
            return dataclasses.replace(flat, base=int(votes.to_fixed(logit)))
        classifier = sklearn.ensemble.HistGradientBoostingClassifier(
            learning_rate=settings.learning_rate,
            max_iter=settings.num_trees,
            max_leaf_nodes=settings.max_leaf_nodes,
            min_samples_leaf=settings.min_samples_leaf,
            l2_regularization=settings.l2,
            max_features=settings.feature_fraction,
            categorical_features=None,
            early_stopping=False,
            random_state=seed,
        )
        # One thread, so that sums of gradients do not depend on the number of cores.
        with threadpoolctl.threadpool_limits(1, user_api="openmp"):
            classifier.fit(bins, actions, sample_weight=weights)
        return flatten(classifier, edges, flat)


def learn_edges(column: np.ndarray) -> np.ndarray:
    """Edges of at most `MAX_BINS` bins of a feature, int64, increasing.

    Bin c holds the values x with edges[c - 1] < x <= edges[c]. Every distinct value has a bin of
    its own where there are few enough; else bins hold about the same number of rows. Edges lie
    halfway between values that occur.
    """
    values = np.unique(column)
    if len(values) <= MAX_BINS:
        uppers = np.arange(len(values) - 1)
    else:
        quantiles = np.arange(1, MAX_BINS) / MAX_BINS
        marks = np.quantile(column, quantiles, method="inverted_cdf")
        uppers = np.unique(np.minimum(np.searchsorted(values, marks), len(values) - 2))
    return (values[uppers] + values[uppers + 1]) // 2


def flatten(
    classifier: sklearn.ensemble.HistGradientBoostingClassifier,
    edges: Sequence[np.ndarray],
    empty: FlatTrees,
) -> FlatTrees:
    """The trees of a fitted binary classifier; the only code that reads scikit-learn's own nodes.

    Args:
      classifier: fitted to bin numbers and to classes 0 and 1.
      edges: of the bins of each feature.
      empty: trees with enough room; not changed.
    """
    flat = dataclasses.replace(
        empty,
        **{name: getattr(empty, name).copy() for name in ("feature", "threshold")},
        **{name: getattr(empty, name).copy() for name in ("left", "right", "value")},
        base=int(votes.to_fixed(classifier._baseline_prediction).item()),
        depth=max(int(tree[0].nodes["depth"].max()) for tree in classifier._predictors),
    )
    for number, (predictor,) in enumerate(classifier._predictors):
        nodes = predictor.nodes
        (inner,) = np.nonzero(nodes["is_leaf"] == 0)
        (leaves,) = np.nonzero(nodes["is_leaf"])
        tested = nodes["feature_idx"][inner]
        # A bin number is <= t where it is <= floor(t), so where the value is <= that bin's edge.
        last_bins = np.floor(nodes["num_threshold"][inner]).astype(np.int64)
        flat.feature[number, inner] = tested
        flat.threshold[number, inner] = [
            edges[feature][last] for feature, last in zip(tested, last_bins, strict=True)
        ]
        flat.left[number, inner] = nodes["left"][inner]
        flat.right[number, inner] = nodes["right"][inner]
        flat.value[number, leaves] = votes.to_fixed(nodes["value"][leaves])
    return flat


def _arrays(flat: FlatTrees) -> dict[str, np.ndarray]:
    """The fields of `flat` with the types that its variables have."""
    arrays = {field.name: getattr(flat, field.name) for field in dataclasses.fields(flat)}
    return arrays | {"base": np.int64(flat.base), "depth": np.int32(flat.depth)}
