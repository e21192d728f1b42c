"""A decision problem with a known optimum, which checks whatever training hands to it."""

from __future__ import annotations

import numpy as np

from environments.errors import UserError
from environments.inlining.linking.images import ImageSize
from tfrl_systems.systems.inlining.imitation.decision_problem import Exploration, Outcome

NAMES = ("size", "default_action", "gain")
GAIN = NAMES.index("gain")
BASE_COST = 1000.0


class Fixed:
    """A policy made from a function of the features int64 [N, F]."""

    def __init__(self, name, decide_fn) -> None:
        self.name = self.fingerprint = name
        self._decide_fn = decide_fn

    def begin(self, module_name, names):
        assert names == NAMES
        return lambda features, first: self._decide_fn(features).astype(np.int8)


class SiteProblem:
    """Contexts are lists of sites; action 1 at a site adds its Δ to the context's cost.

    The Δ is minus the feature "gain", so the best policy plays 1 where the gain is positive and
    costs BASE_COST less all positive gains. The default plays 1 where the size is below 5.

    Args:
      sites: for each context (its group, sites [T, 2]: size and gain).
      broken: contexts that cannot be explored, as if a compiler had failed on them.
      moved: bytes of unwind tables that each action 1 turns into code, by group.
    """

    feature_names = NAMES
    baseline_feature = "default_action"
    scope_feature = ""
    table_weight = 1.0

    def __init__(self, sites, broken=(), moved=None) -> None:
        self.group_of = {name: group for name, (group, _) in sites.items()}
        self.broken = set(broken)
        self.moved = moved or {}
        self.linked: list[str] = []
        self.labels: list[str] = []
        self.explored: list[tuple[str, str, dict[str, int] | None]] = []
        self._features = {
            name: np.array([[size, size < 5, gain] for size, gain in rows], np.int64).reshape(-1, 3)
            for name, (_, rows) in sites.items()
        }

    def baseline(self, name):
        if name == "default":
            return Fixed(name, lambda features: features[:, 1])
        if name in ("always", "never"):
            return Fixed(name, lambda features: np.full(len(features), name == "always"))
        raise UserError(f"policy: expected default, always or never, found {name}")

    def play_default(self, label):
        return self.play(self.baseline("default"), label)

    def play(self, policy, label):
        self.labels.append(label)
        return [
            self._outcome(name, self._actions(policy, name))
            for name in self.group_of
            if name not in self.broken
        ]

    def link(self, policy, label):
        self.linked.append(label)
        sizes = dict.fromkeys(self.group_of.values(), (0, 0))
        for outcome in self.play(policy, label):
            group = self.group_of[outcome.context]
            moved = self.moved.get(group, 0) * int(outcome.actions.sum())
            code, tables = sizes[group]
            sizes[group] = code + int(outcome.cost) + moved, tables - moved
        return {
            group: ImageSize(code, tables, 0, 0, code + tables)
            for group, (code, tables) in sizes.items()
        }

    def explore(self, policy, explorer, label, scoped, max_flips=None):
        self.explored.append((policy.name, explorer.name if explorer else "", max_flips))
        scope = self.scope_feature if scoped else ""
        bases = self.play(policy, label)
        if max_flips is not None:
            return [self._flip(base, explorer, max_flips[base.context]) for base in bases]
        return [self._explore(base, explorer, scope) for base in bases]

    def best_cost(self) -> float:
        """Sum of the least costs of all contexts."""
        gains = [features[:, GAIN] for features in self._features.values()]
        return sum(BASE_COST - float(gain[gain > 0].sum()) for gain in gains)

    def _actions(self, policy, name):
        features = self._features[name]
        decide = policy.begin(name, NAMES)
        actions = decide(features, 0)
        assert actions.shape == (len(features),) and actions.dtype == np.int8
        assert np.isin(actions, (0, 1)).all()
        # A decision may depend on its features and its place alone.
        one_by_one = [decide(features[k : k + 1], k)[0] for k in range(len(features))]
        assert one_by_one == actions.tolist()
        return actions

    def _outcome(self, name, actions):
        features = self._features[name]
        cost = BASE_COST - float(np.sum(features[:, GAIN] * actions))
        return Outcome(name, features, actions, cost)

    def _flip(self, base, explorer, max_flips):
        """Algorithm 3; what was decided changes neither features nor later decisions here."""
        gaps = explorer.certainty(NAMES, base.features)
        tried, start = [base], 0
        while len(tried) <= max_flips and start < len(gaps):
            step = start + int(np.argmin(gaps[start:]))
            actions = tried[-1].actions.copy()
            actions[step] ^= 1
            tried.append(self._outcome(base.context, actions))
            start = step + 1
        best = min(tried, key=lambda outcome: outcome.cost)
        return Exploration(base, np.empty(0, np.int64), np.empty(0), best)

    def _explore(self, base, explorer, scope):
        if explorer is not None:
            certainty = explorer.certainty(NAMES, base.features)
            assert ((certainty >= 0) & (certainty <= 1)).all()
        steps = np.arange(len(base.actions))
        if scope:
            steps = steps[base.features[steps, NAMES.index(scope)] == 1]
        towards = np.where(base.actions[steps] == 0, 1, -1)
        deltas = -(base.features[steps, GAIN] * towards).astype(np.float64)
        best = base.actions.copy()
        best[steps[deltas < 0]] ^= 1
        return Exploration(base, steps, deltas, self._outcome(base.context, best))


def draw_sites(seed, num_contexts=8, num_sites=12):
    """Contexts of four groups, in which the default is often wrong."""
    rng = np.random.default_rng(seed)
    return {
        f"g{k % 4}/context-{k}": (
            f"g{k % 4}",
            np.stack([rng.integers(0, 10, num_sites), rng.integers(-40, 41, num_sites)], axis=1),
        )
        for k in range(num_contexts)
    }


def outcome(context, cost, actions=(), features=None):
    """An outcome whose features are, if not given, rows of zeros."""
    rows = np.zeros((len(actions), len(NAMES)), np.int64) if features is None else features
    return Outcome(context, np.asarray(rows, np.int64), np.array(actions, np.int8), float(cost))


def exploration(base, steps, deltas):
    """An exploration that met nothing better than its base."""
    return Exploration(base, np.array(steps, np.int64), np.array(deltas, np.float64), base)
