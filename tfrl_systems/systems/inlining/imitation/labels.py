"""Labelled decisions: the rows that BC-Max fits a policy to.

There are two kinds of label. The paper has the first; the second is ours, and needs an exploration
that tries decisions by themselves:

* *Imitation* (Marinov et al., Algorithm 1, line 7; without its stray factor a before the
  logarithm): the actions of the cheapest episode of each context, weighted by context.
* *Advantage*: the better action of each explored step, weighted by its known Δcost, which says how
  much the choice mattered.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tfrl_systems.systems.inlining.imitation.decision_problem import Exploration, Outcome

# Weight of an explored step at which both actions cost the same.
_OFFSET = 3.0


class Labels(NamedTuple):
    """Rows to learn from.

    Attributes:
      features: int64 [N, F], the features of each row.
      actions: int64 [N], the action to learn.
      weights: float64 [N], the weight of each row in the loss.
      groups: str [N], the group of each row's context.
    """

    features: np.ndarray
    actions: np.ndarray
    weights: np.ndarray
    groups: np.ndarray

    @staticmethod
    def concatenate(parts: Sequence[Labels]) -> Labels:
        """Return all rows of `parts`, in order."""
        return Labels(*map(np.concatenate, zip(*parts, strict=True)))

    def sha256(self) -> str:
        """Return a hexadecimal digest of all rows in their order, equal for equal rows."""
        digest = hashlib.sha256(str(self.features.shape).encode())
        for array in (self.features, self.actions, self.weights):
            digest.update(np.ascontiguousarray(array).tobytes())
        digest.update("\0".join(self.groups).encode())
        return digest.hexdigest()

    def where(self, mask: np.ndarray) -> Labels:
        """Return the rows that `mask` chooses: bool [N], or row numbers."""
        return Labels(*(column[mask] for column in self))


def best_per_context(pool: Sequence[Sequence[Outcome]]) -> dict[str, Outcome]:
    """Return the cheapest episode of each context, over the episodes of several policies.

    This is the oracle, and line 5 of BC-Max's Algorithm 1 (which prints argmin of the reward beside
    the words "highest reward"; Algorithm 2 and the text say argmax). Ties go to the first episode.
    """
    best: dict[str, Outcome] = {}
    for outcomes in pool:
        for outcome in outcomes:
            if outcome.context not in best or outcome.cost < best[outcome.context].cost:
                best[outcome.context] = outcome
    return best


def advantage_labels(
    explorations: Sequence[Exploration], group_of: Mapping[str, str], clip: float
) -> Labels:
    """Make a row for each explored step: the better action, of weight min(clip, 3 + |Δcost|).

    If the other action did not lower the cost, the better action is the one that was played.
    """
    parts = []
    for base, steps, deltas, _ in explorations:
        played = base.actions[steps].astype(np.int64)
        parts.append(
            Labels(
                base.features[steps],
                np.where(deltas < 0, 1 - played, played),
                np.minimum(clip, _OFFSET + np.abs(deltas)),
                np.full(len(steps), group_of[base.context]),
            )
        )
    return Labels.concatenate(parts)


def imitation_labels(
    episodes: Mapping[str, Outcome],
    context_weights: Mapping[str, float],
    group_of: Mapping[str, str],
    scale: float,
    max_rows: int,
    seed: int,
) -> Labels:
    """Make a row for each step of each context's episode, or for a random sample of these steps.

    Args:
      episodes: the episodes to imitate, by context.
      context_weights: the weight w of line 7, by context.
      group_of: the group of each context.
      scale: factor of all weights, to balance them against `advantage_labels`.
      max_rows: the most rows. If there are more steps, this many are drawn at random, and their
        weights are raised so that the sum stays the same on average.
      seed: decides the draw.
    """
    parts = []
    for context in sorted(episodes):
        outcome = episodes[context]
        num_steps = len(outcome.actions)
        parts.append(
            Labels(
                outcome.features,
                outcome.actions.astype(np.int64),
                np.full(num_steps, scale * context_weights[context]),
                np.full(num_steps, group_of[context]),
            )
        )
    rows = Labels.concatenate(parts)
    num_rows = len(rows.actions)
    if num_rows <= max_rows:
        return rows
    chosen = np.sort(np.random.default_rng(seed).choice(num_rows, max_rows, replace=False))
    drawn = rows.where(chosen)
    return drawn._replace(weights=drawn.weights * num_rows / max_rows)
