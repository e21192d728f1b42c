"""How far a policy's answers are from the least values."""

from __future__ import annotations

import numpy as np

from environments.learn_to_optimize import references
from environments.learn_to_optimize.functions import Objective


def errors(objective: Objective, x: np.ndarray, free: np.ndarray) -> references.Errors:
    """The errors of the x [M, n - k] that a policy chose for c [M, k]."""
    values = references.values_of(objective, x, free)
    return references.errors_of(objective, values, references.truth(objective, free).values)
