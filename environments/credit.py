"""Which part of an episode's outcome each of its actions answers for.

The reward of an episode in which hundreds of actions were taken says little about any of them. Some
environments can tell more once the episode has ended: what came out has parts, such as the
functions of an object file, and an action changes few of them.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np


@dataclasses.dataclass(frozen=True)
class Credit:
    """The parts of an episode's outcome.

    Attributes:
      values: what each part is worth; greater is better. Parts that are not named are worth 0. All
        episodes of an environment have the same unit, which need not be that of its rewards.
      parts: for each of the T steps the names of the parts that its action may have changed.
    """

    values: Mapping[str, float]
    parts: Sequence[Collection[str]]

    @classmethod
    def of_return(cls, value: float, num_steps: int) -> Credit:
        """Return the credit of an episode all of whose actions answer for its whole return."""
        return cls({"": value}, [("",)] * num_steps)


def group_advantages(group: Sequence[Credit]) -> list[np.ndarray]:
    """Compare each of K episodes in the same context with the K - 1 others.

    With one part this is the leave-one-out baseline of W. Kool, H. van Hoof, M. Welling: Buy 4
    REINFORCE Samples, Get a Baseline for Free! (2019), equation (6),

        Â_k = R_k - 1/(K - 1) Σ_{j≠k} R_j,

    and with several parts it is the same for the sum of those parts that an action answers for.
    The other episodes do not depend on the action, so the baseline leaves the gradient unbiased.

    Args:
      group: at least two episodes of the same context; their numbers of steps may differ.

    Returns:
      Advantages float64 [T] of each episode's steps.
    """
    others = 1 / (len(group) - 1)
    total: dict[str, float] = {}
    for credit in group:
        for part, value in credit.values.items():
            total[part] = total.get(part, 0.0) + value

    def advantage(credit: Credit, part: str) -> float:
        value = credit.values.get(part, 0.0)
        return value - (total.get(part, 0.0) - value) * others

    return [
        # An exact sum, because the order of a set's names differs between processes.
        np.array(
            [math.fsum(advantage(credit, part) for part in parts) for parts in credit.parts], float
        )
        for credit in group
    ]
