"""Boosted decision trees behind the interface of a decision model.

scikit-learn grows the trees. They are stored as flat arrays of integers in TensorFlow variables,
whose shapes the settings fix. So a policy made of trees is saved, sent to workers and loaded like
one made of networks. Features are integers, and so are thresholds.

scikit-learn gets bin numbers instead of values. Its own binning is slow if features have many
distinct values and rows have weights, and it would differ from bag to bag.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import tensorflow as tf
import threadpoolctl

from tfrl_systems.systems.inlining.policy import votes

if TYPE_CHECKING:
    import sklearn.ensemble

MAX_BINS = 255
"""The most bins that scikit-learn can handle."""


@dataclasses.dataclass(frozen=True)
class TreeSettings:
    """Settings for growing trees.

    Attributes:
      num_models: number of bags; each is a boosted classifier with its own `num_trees` trees.
      num_trees: boosting rounds of each bag.
      max_leaf_nodes: the most leaves of a tree, at most 64.
      learning_rate: shrinkage of each tree's leaves.
      min_samples_leaf: the fewest rows that a leaf may hold.
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

    At each node a row goes left if `row[feature] <= threshold`. A leaf's children are the leaf
    itself. Inner nodes and unused ones have value 0.

    Attributes:
      feature: int32, the column that a node tests.
      threshold: int64, the greatest value that goes left.
      left: int32, the left child's position in its tree.
      right: int32, the right child's position.
      value: int64, a leaf's logit in fixed point.
      base: the logit in fixed point to which the leaves' are added.
      depth: number of steps from a root to the deepest leaf.
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
        """Return trees of a single leaf with value 0, with room for `max_leaf_nodes` leaves."""
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
    """An ensemble of bags of boosted trees, whose logits are averaged.

    Args:
      num_features: F.
      settings: for growing trees.
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

    @classmethod
    def from_arrays(
        cls, arrays: Mapping[str, np.ndarray], num_features: int, num_models: int
    ) -> BoostedTrees:
        """Make grown trees from the arrays that `arrays` returned."""
        num_trees, num_nodes = arrays["feature"].shape
        sizes = (num_models, num_trees // num_models, (num_nodes + 1) // 2)
        made = cls(num_features, TreeSettings(*sizes, 0.0, 1, 0.0, 1.0))
        for field in dataclasses.fields(FlatTrees):
            getattr(made, field.name).assign(arrays[field.name])
        return made

    def fit(
        self, features: np.ndarray, actions: np.ndarray, weights: np.ndarray, seed: int
    ) -> None:
        """Grow all trees anew; see `votes.DecisionModel.fit`. Do not call it in a tf.function."""
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
        """See `votes.DecisionModel.votes`; all trees are descended together, step by step."""
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
        import sklearn.ensemble  # a second, which only those who grow trees pay for

        settings = self._settings
        flat = FlatTrees.empty(settings.num_trees, settings.max_leaf_nodes)
        if len(np.unique(actions)) < 2:
            # If all N rows have the same action, its odds are N + 1 to 1 (rule of succession).
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
        # With one thread, sums of gradients do not depend on the number of cores.
        with threadpoolctl.threadpool_limits(1, user_api="openmp"):
            classifier.fit(bins, actions, sample_weight=weights)
        return flatten(classifier, edges, flat)


def learn_edges(column: np.ndarray) -> np.ndarray:
    """Divide the values of a feature into at most `MAX_BINS` bins.

    Bin c holds the values x with edges[c - 1] < x <= edges[c]. If there are few enough distinct
    values, each has its own bin. Otherwise bins hold about the same number of rows. Edges lie
    halfway between values that occur.

    Args:
      column: int64 [N], the feature's values.

    Returns:
      The edges, int64, increasing.
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
    """Convert a fitted binary classifier to flat trees.

    Only this function reads scikit-learn's own nodes.

    Args:
      classifier: fitted to bin numbers and to classes 0 and 1.
      edges: the bin edges of each feature.
      empty: trees with enough room; it is not changed.

    Returns:
      The trees.
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
        # A bin number is <= t if it is <= floor(t), so if the value is <= that bin's edge.
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
    """Return the fields of `flat` with the dtypes of their variables."""
    arrays = {field.name: getattr(flat, field.name) for field in dataclasses.fields(flat)}
    return arrays | {"base": np.int64(flat.base), "depth": np.int32(flat.depth)}
