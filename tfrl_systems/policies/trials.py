"""Trials of a function: what was asked, and the values that came back."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Trials:
    """N trials of a function of actions and contexts, smaller values are better.

    Attributes:
      points: (x, c) float64 [N, m + k], of the box [-1, 1]^(m + k).
      values: float64 [N]; NaN where a trial failed.
      messages: why trials failed.
      evaluations: how often the function was evaluated for them.
    """

    points: np.ndarray
    values: np.ndarray
    messages: tuple[str, ...] = ()
    evaluations: int = 0

    @classmethod
    def concatenate(cls, parts: Sequence[Trials]) -> Trials:
        """Join trials, in their order."""
        return cls(
            np.concatenate([part.points for part in parts]),
            np.concatenate([part.values for part in parts]),
            tuple(message for part in parts for message in part.messages),
            sum(part.evaluations for part in parts),
        )

    @property
    def num_steps(self) -> int:
        """Return the number of trials."""
        return len(self.values)

    @property
    def num_episodes(self) -> int:
        """Return the number of trials, at least 1: a log alone asks for none."""
        return max(len(self.values), 1)

    @property
    def mean_return(self) -> float:
        """Return the mean of the negative values that there are; 0 if there are none."""
        good = self.values[np.isfinite(self.values)]
        return -float(np.sum(good / len(good))) if len(good) else 0.0

    def sha256(self) -> str:
        """Return a hash of all numbers."""
        return hashlib.sha256(self.points.tobytes() + self.values.tobytes()).hexdigest()
