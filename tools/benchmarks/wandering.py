"""Functions whose minimum moves with c, to learn on without having been tuned on.

Both take points [N, n] of the box [-1, 1]^n, the free parameter c last, and return values [N] that
are 0 at the minimum.
"""

from __future__ import annotations

import numpy as np


def wandering(points: np.ndarray) -> np.ndarray:
    """Return a bowl with ripples around x(c), which swings twice as c goes from -1 to 1; n = 2."""
    x, c = points[:, 0], points[:, 1]
    distance = x - 0.45 * np.sin(2.5 * c + 0.3) - 0.2 * c**2
    return 3 * distance**2 + 0.3 * (1 - np.cos(9 * np.pi * distance))


def rotated(points: np.ndarray) -> np.ndarray:
    """Return a valley 50 times as long as wide, which turns with c as its floor moves; n = 3."""
    c = points[:, 2]
    angle = 1.2 * c
    u = points[:, 0] - 0.5 * np.cos(1.5 * c)
    v = points[:, 1] + 0.4 * c
    along = np.cos(angle) * u + np.sin(angle) * v
    across = np.cos(angle) * v - np.sin(angle) * u
    return along**2 + 50 * across**2
