"""Functions to learn on that nobody has tuned on, and a slow one.

All take points [N, n], the free parameter c last, and return values [N].
"""

from __future__ import annotations

import sys
import time

import numpy as np

_SECONDS_PER_CALL = 0.05
# The programs of workers are called worker_main.py and, in a Ray cluster, default_worker.py.
_IS_IN_WORKER = "worker" in sys.argv[0]


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


def arm(points: np.ndarray) -> np.ndarray:
    """Return how far an arm of four joints misses a point that c turns, and how bent it is; n = 5.

    The elbow may be up or down, so several basins lie beside each other.
    """
    joints, c = 0.9 * np.pi * points[:, :4], points[:, 4]
    turned = np.cumsum(joints, axis=1)
    lengths = np.array([0.4, 0.3, 0.2, 0.1])
    missed = np.cos(turned) @ lengths - 0.6 * np.cos(0.8 * np.pi * c)
    missed_up = np.sin(turned) @ lengths - 0.6 * np.sin(0.8 * np.pi * c)
    bent = 0.3 * np.sum(1 - np.cos(joints), axis=1) + 0.2 * np.sin(3 * joints[:, 0] + c)
    return 20 * (missed**2 + missed_up**2) + bent


def slow_sphere(points: np.ndarray) -> np.ndarray:
    """Return a sphere's values, in a worker after a while, so that faults find workers at work."""
    if _IS_IN_WORKER:
        time.sleep(_SECONDS_PER_CALL)
    return np.sum((points - 0.3) ** 2, axis=-1)
