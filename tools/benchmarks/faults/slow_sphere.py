"""A function that is slow where it is collected, so that faults find workers at work."""

from __future__ import annotations

import sys
import time

import numpy as np

_SECONDS_PER_CALL = 0.05
# The programs of workers are called worker_main.py and, in a Ray cluster, default_worker.py.
_IS_IN_WORKER = "worker" in sys.argv[0]


def value(points: np.ndarray) -> np.ndarray:
    """Return the values [N] of points [N, n], in a worker after a while."""
    if _IS_IN_WORKER:
        time.sleep(_SECONDS_PER_CALL)
    return np.sum((points - 0.3) ** 2, axis=-1)
