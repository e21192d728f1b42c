"""The scale on which values of a function are compared in rewards."""

from __future__ import annotations

import dataclasses

import numpy as np

from environments.errors import UserError
from environments.learn_to_optimize.functions import Objective, signed_log1p
from environments.learn_to_optimize.settings import Settings

REWARDS = ("auto", "difference", "log1p", "scaled")
REFERENCES = ("old", "mean")
# The number of points at which a function's mean and spread are measured.
_NUM_FIXED_POINTS = 256


@dataclasses.dataclass(frozen=True)
class Levels:
    """How a value of f becomes a level; the differences of levels are the rewards.

    Attributes:
      reward: "difference", "log1p" or "scaled"; see `LearnToOptimizeEnvironment`.
      scale: what "scaled" divides values by, in units of f.
      mean: the level that points are compared with; None for the level of the old point.
      spread: standard deviation of f over the fixed points, in units of f; None if not measured.
      evaluations: how many evaluations of f measuring took.
    """

    reward: str
    scale: float = 1.0
    mean: float | None = None
    spread: float | None = None
    evaluations: int = 0

    def __call__(self, values: np.ndarray) -> np.ndarray:
        """Map values [N] of f to levels [N]."""
        if self.reward == "difference":
            return values
        return signed_log1p(values) if self.reward == "log1p" else values / self.scale


def check_levels(settings: Settings) -> None:
    """Check the names of the reward and its reference.

    Raises:
      UserError: there is no such reward or reference.
    """
    for name, choices in (("reward", REWARDS), ("reference", REFERENCES)):
        value = getattr(settings, name)
        if value not in choices:
            raise UserError(
                f"{name}: expected one of {', '.join(choices)}, found {value!r}; correct the name"
            )


def measure_levels(objective: Objective, settings: Settings) -> Levels:
    """Return the levels of a function, with its mean and spread at fixed points of the box.

    Raises:
      UserError: the function fails there, a setting is not valid, or its values differ by more than
        a reward can hold.
    """
    check_levels(settings)
    reward = settings.reward
    if reward == "auto":
        reward = "log1p" if objective.name.endswith("rosenbrock") else "scaled"
    if reward != "scaled" and settings.reference != "mean":
        return Levels(reward)
    shape = (_NUM_FIXED_POINTS, objective.dimensions)
    values = objective(np.random.default_rng(0).uniform(-1, 1, shape))
    spread = _spread(values)
    levels = Levels(reward, (spread or 1.0) if reward == "scaled" else 1.0)
    differences = np.ptp(levels(values / 2)) * 2 if spread else 1.0
    if not np.finfo(np.float32).tiny < differences < np.finfo(np.float32).max:
        raise UserError(
            f"{objective.name}: expected values whose differences are numbers of float32, found "
            f"values that differ by about {spread:g}; take --set reward=scaled, or scale them"
        )
    mean = float(np.mean(levels(values))) if settings.reference == "mean" else None
    return dataclasses.replace(levels, mean=mean, spread=spread, evaluations=len(values))


def _spread(values: np.ndarray) -> float:
    """Return the standard deviation, also where squares would overflow or vanish."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        spread = float(np.std(values))
    if spread and np.isfinite(spread):
        return spread
    half_ranges = values / 2 - np.min(values) / 2
    largest = float(np.max(half_ranges))
    return 2 * largest * float(np.std(half_ranges / largest)) if largest else 0.0
