"""The decision models in NumPy, fast for single rows and equal to TensorFlow's bit for bit.

Each class takes the arrays of its model (`votes.DecisionModel.arrays`) and returns the same votes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tfrl_systems.systems.inlining.policy import votes

# Values are clipped to 2^40, and the features' thresholds are put on one line, 2^42 apart. So one
# search finds the intervals of all features of a row. Thresholds and knots lie within 2^31.
_LIMIT = np.int64(1 << 40)
_SPAN = np.int64(1 << 42)

# The masks gathered for a chunk of rows should fit into the second-level cache.
_CHUNK_BYTES = 1 << 19

# The masks have 64 bits.
_MAX_LEAVES = 64

# De Bruijn sequences: 2^i times the factor, shifted right, differs for each i.
_DE_BRUIJN: dict[int, tuple[np.dtype, int, int]] = {
    32: (np.dtype(np.uint32), 0x077CB531, 27),
    64: (np.dtype(np.uint64), 0x03F79D71B4CB0A89, 58),
}


class NumpyTrees:
    """The boosted trees of `networks.trees.BoostedTrees`, evaluated by bit masks.

    This is QuickScorer (Lucchese et al., SIGIR 2015). Each tree has a mask of the leaves that can
    still be reached, numbered from the left. A test that fails (x > threshold) clears the leaves of
    its left subtree. After all tests the row ends at the leftmost remaining leaf. Here the masks of
    all tests of a feature are combined beforehand, for each interval between its thresholds. A row
    then takes one search for all features, and one gather and AND for each feature, for all trees
    at once.

    Args:
      arrays: the fields of `networks.trees.FlatTrees`.
      num_features: F.

    Attributes:
      used: int64 [U], sorted: the features that some tree tests. No other feature has an effect.

    Raises:
      IndexError, KeyError, ValueError: the arrays are no trees.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], num_features: int) -> None:
        if not all(np.issubdtype(array.dtype, np.integer) for array in arrays.values()):
            raise ValueError("tables that are not of whole numbers")
        trees = [_Tree(arrays, number) for number in range(len(arrays["feature"]))]
        if not max((tree.depth for tree in trees), default=0) <= arrays["depth"] <= _MAX_LEAVES:
            raise ValueError(f"a depth of {arrays['depth']}")
        num_leaves = max((len(tree.leaves) for tree in trees), default=1)
        bits = 32 if num_leaves <= 32 else 64
        self._dtype, factor, self._shift = _DE_BRUIJN[bits]
        self._factor = self._dtype.type(factor)
        self._base = np.int64(arrays["base"].item())
        self._first = np.arange(len(trees), dtype=np.int64) * bits
        self._values = self._place_values(trees, arrays["value"], bits)
        tests = np.array([test for tree in trees for test in tree.tests], np.object_)
        tests = tests.reshape(-1, 4)
        self.used = np.unique(tests[:, 0].astype(np.int64))
        if self.used.size and not 0 <= self.used[0] <= self.used[-1] < num_features:
            raise IndexError(f"tests of features {self.used[0]} to {self.used[-1]}")
        self._offsets = np.arange(len(self.used)) * _SPAN
        self._keys, self._masks = self._combine(tests, len(trees))
        row_bytes = max(1, len(self.used) * len(trees) * self._dtype.itemsize)
        self._chunk = max(1, _CHUNK_BYTES // row_bytes)

    def votes(self, features: np.ndarray) -> np.ndarray:
        """Return sums of the members' logits, int64 [N]; features int64 [N, U], those of `used`."""
        if len(features) <= self._chunk:
            return self._votes(features)
        chunks = range(0, len(features), self._chunk)
        return np.concatenate([self._votes(features[i : i + self._chunk]) for i in chunks])

    def _votes(self, features: np.ndarray) -> np.ndarray:
        places = np.minimum(np.maximum(features, -_LIMIT), _LIMIT) + self._offsets
        rows = self._keys.searchsorted(places) + np.arange(len(self.used))
        alive = np.bitwise_and.reduce(self._masks.take(rows, axis=0), axis=1)
        alive &= np.negative(alive)
        alive *= self._factor
        alive >>= self._dtype.type(self._shift)
        leaves = alive.astype(np.int64) + self._first
        return self._values.take(leaves).sum(axis=1) + self._base

    def _place_values(self, trees: Sequence[_Tree], value: np.ndarray, bits: int) -> np.ndarray:
        """Return the leaf values by tree and by the De Bruijn number of the leaf's bit, flat."""
        one, shift = self._dtype.type(1), self._dtype.type(self._shift)
        with np.errstate(over="ignore"):
            codes = [
                int(((one << self._dtype.type(i)) * self._factor) >> shift) for i in range(bits)
            ]
        placed = np.zeros((len(trees), bits), np.int64)
        for number, tree in enumerate(trees):
            placed[number, codes[: len(tree.leaves)]] = value[number, tree.leaves]
        return placed.reshape(-1)

    def _combine(self, tests: np.ndarray, num_trees: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the thresholds of all features, sorted on one line, and each interval's masks."""
        keys, masks = [np.zeros(0, np.int64)], [np.zeros((0, num_trees), self._dtype)]
        every = self._dtype.type(np.iinfo(self._dtype).max)
        for number, feature in enumerate(self.used):
            _, threshold, tree, cleared = tests[tests[:, 0] == feature].T
            bounds, place = np.unique(threshold.astype(np.int64), return_inverse=True)
            table = np.full((len(bounds) + 1, num_trees), every)
            at = (place.reshape(-1) + 1, tree.astype(np.int64))
            np.bitwise_and.at(table, at, ~cleared.astype(self._dtype))
            keys.append(bounds + number * _SPAN)
            masks.append(np.bitwise_and.accumulate(table, axis=0))
        return np.concatenate(keys), np.concatenate(masks)


class _Tree:
    """One tree as a list of tests.

    Attributes:
      depth: number of steps from the root to the deepest leaf.
      leaves: node numbers of the leaves, from left to right.
      tests: (feature, threshold, tree number, mask of the left subtree's leaves) of each inner
        node.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], number: int) -> None:
        names = ("feature", "threshold", "left", "right")
        self._feature, self._threshold, self._left, self._right = (
            arrays[name][number].tolist() for name in names
        )
        self._number = number
        self.depth = 0
        self.leaves: list[int] = []
        self.tests: list[tuple[int, int, int, int]] = []
        self._visit(0, 0)

    def _visit(self, node: int, depth: int) -> None:
        # Branches may come back to a node, or meet in one.
        if node < 0 or depth >= _MAX_LEAVES or len(self.leaves) >= _MAX_LEAVES:
            raise ValueError(f"a tree of more than {_MAX_LEAVES} leaves")
        if self._left[node] == node:
            self.leaves.append(node)
            self.depth = max(self.depth, depth)
            return
        first = len(self.leaves)
        self._visit(self._left[node], depth + 1)
        cleared = (1 << len(self.leaves)) - (1 << first)
        self.tests.append((self._feature[node], self._threshold[node], self._number, cleared))
        self._visit(self._right[node], depth + 1)


class NumpyNetworks:
    """The networks of `networks.decision_network.DecisionNetworks`.

    Args:
      arrays: the knots, and `weights_i` and `biases_i` of each layer.
      num_features: F.

    Attributes:
      used: int64 [F], all features.
    """

    def __init__(self, arrays: Mapping[str, np.ndarray], num_features: int) -> None:
        self.used = np.arange(num_features)
        start = arrays["start"]
        self._low, self._high = start[:, 0], start[:, -1]
        self._offsets = np.arange(num_features) * _SPAN
        self._keys = (start + self._offsets[:, np.newaxis]).reshape(-1)
        self._start, self._base, self._rise, self._run = (
            arrays[name].reshape(-1) for name in ("start", "base", "rise", "run")
        )
        num_layers = sum(name.startswith("weights_") for name in arrays)
        self._layers = [
            (arrays[f"weights_{i}"], arrays[f"biases_{i}"] * _UNIT) for i in range(num_layers)
        ]

    def votes(self, features: np.ndarray) -> np.ndarray:
        """Return sums of the members' logits, int64 [N]; features int64 [N, F]."""
        hidden = self._normalise(features).astype(np.float64)[np.newaxis]
        for weights, biases in self._layers:
            sums = np.matmul(hidden, weights)
            sums += biases
            hidden = np.minimum(np.maximum(np.rint(sums / _UNIT), 0.0), _MAX_ACTIVATION)
        logits = np.minimum(np.maximum(np.rint(sums / _LOGIT_SCALE), -_MAX_LOGIT), _MAX_LOGIT)
        return logits.sum(axis=(0, 2)).astype(np.int64)

    def _normalise(self, features: np.ndarray) -> np.ndarray:
        """Normalise as `networks.normalisation.QuantileNormalisation` does, int64 [N, F]."""
        clipped = np.minimum(np.maximum(features, self._low), self._high)
        place = self._keys.searchsorted(clipped + self._offsets, side="right") - 1
        climbed = (clipped - self._start.take(place)) * self._rise.take(place)
        return self._base.take(place) + climbed // self._run.take(place)


# The grid of networks.decision_network, whose import needs TensorFlow. A test checks that the two
# are equal.
_GRID_BITS = 16
_UNIT = float(1 << _GRID_BITS)
_MAX_ACTIVATION = float(1 << (8 + _GRID_BITS))
_LOGIT_SCALE = float(1 << (2 * _GRID_BITS - votes.FRACTION_BITS))
_MAX_LOGIT = float(votes.MAX_LOGIT * votes.ONE)

MODELS: dict[str, type[NumpyTrees | NumpyNetworks]] = {
    "trees": NumpyTrees,
    "networks": NumpyNetworks,
}
"""The model class of each kind; each is made from (arrays, num_features)."""
