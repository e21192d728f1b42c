"""A function of a user's, in a module that loads fast."""

from __future__ import annotations

import numpy as np


def double_well(points: np.ndarray) -> np.ndarray:
    """(x² - 1/4)² + (x - c) / 10: where a search begins decides in which well it ends."""
    x, c = points[:, 0], points[:, 1]
    return (x**2 - 0.25) ** 2 + (x - c) / 10
