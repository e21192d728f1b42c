"""How good a policy is: by the values that it reaches, or by their distance from the least ones."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

from environments.caches.table import MINIMA
from environments.errors import UserError
from environments.learn_to_optimize import references, solvers
from environments.learn_to_optimize.functions import Objective
from tfrl_systems.settings import option

JUDGES = ("values", "truth")
"""By what policies are compared."""
LEARNING_JUDGES = (*JUDGES, "model")
"""By what a policy is judged while it learns."""
_NUM_DRAWS = 1000


@dataclasses.dataclass(frozen=True)
class Judging:
    """How a policy is judged while it learns.

    Attributes:
      judge: by the mean of the "values" that it reaches, or by the errors of these against the
        "truth", the least values, which are searched for. The search takes more evaluations of the
        function than most training does; it is announced. By the agent's "model", if it has one, no
        evaluation is made.
      judged_points: the most c at which the policy is judged by values; by the truth there are at
        most 1,000.
    """

    judge: str = option("values", choices=LEARNING_JUDGES)
    judged_points: int = option(100, minimum=1)

    def __post_init__(self) -> None:
        """Check the judge.

        Raises:
          UserError: there is no such judge.
        """
        if self.judge not in LEARNING_JUDGES:
            raise UserError(
                f"judge: expected one of {', '.join(LEARNING_JUDGES)}, found {self.judge!r}; "
                "correct it"
            )

    def points(self, num_free: int) -> np.ndarray:
        """Return the c [M, k] at which policies are judged."""
        if self.judge == "truth":
            return references.reference_points(num_free)
        return references.reference_points(num_free, self.judged_points)


def judge(objective: Objective, x: np.ndarray, free: np.ndarray, by: str) -> dict[str, Any]:
    """Return figures of the x [M, n - k] that a policy chose for c [M, k].

    `cost` is the mean value. These are added by the truth, and wherever the least values are known
    without a search: `mse`, `msle`, and `regret`, the mean value beyond the least ones, with
    `regret_interval`, where it lies for 95% of the draws of as many c. `function_evaluations` is
    what judging took, `truth_evaluations` the part that found the least values.

    Raises:
      UserError: the function fails.
    """
    before = objective.evaluations.count
    values = references.values_of(objective, x, free)
    # A sum of shares, because the sum of the largest values may be no number.
    figures: dict[str, Any] = {"cost": float(np.sum(values / len(values)))}
    if by == "truth" or objective.minimiser is not None:
        searched = objective.evaluations.count
        least = references.truth(objective, free, MINIMA.open()).values
        figures |= references.errors_of(objective, values, least)._asdict()
        figures |= _regret(np.maximum(values - least, 0))
        figures["truth_evaluations"] = objective.evaluations.count - searched
    figures["function_evaluations"] = objective.evaluations.count - before
    return figures


def _regret(regrets: np.ndarray) -> dict[str, Any]:
    """Return the mean of regrets [M], and its bootstrap interval over the c."""
    places = np.random.default_rng(0).integers(len(regrets), size=(_NUM_DRAWS, len(regrets)))
    interval = np.quantile(regrets[places].mean(axis=1), [0.025, 0.975])
    return {"regret": float(regrets.mean()), "regret_interval": interval.tolist()}


def announcement(objective: Objective, num_points: int) -> str:
    """Return what finding the least values will cost, as a line for people; "" if it is little."""
    if objective.minimiser is not None:
        return ""
    number = solvers.usual_evaluations(objective.num_tuned, num_points)
    return (
        f"the truth: a search for the least value at {num_points:,} c takes about {number:,} "
        f"evaluations of {objective.name}, unless it is known from before"
    )
