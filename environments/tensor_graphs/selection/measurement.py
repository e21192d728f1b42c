"""What is known of a candidate once it was measured at length: a row for each of the sizes."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from environments.tensor_graphs.execution.measuring import Comparison
from environments.tensor_graphs.execution.sizes import Sizes


class Row(NamedTuple):
    """A comparison of a candidate with the original, both fully optimised by the backend.

    Attributes:
      sizes: the sizes at which both ran.
      comparison: how fast they are.
      is_single: whether both ran on one thread, where the others ran on several.
    """

    sizes: Sizes
    comparison: Comparison
    is_single: bool = False

    @property
    def where(self) -> str:
        """What distinguishes it from the others, for people to read."""
        return "1 thread" if self.is_single else str(self.sizes)


@dataclasses.dataclass(frozen=True)
class Measurement:
    """How fast a candidate runs, measured end to end against the original.

    Attributes:
      rows: the comparisons at each of the sizes, those that led the search first. The last one is
        that at which the candidate failed, if it did.
      at_best_levels: the comparison with each at its own best level of optimisation.
      original_level: name of the backend at the original's best level.
      candidate_level: name of the backend at the candidate's best level.
      unmeasured: sizes at which it is right, but for which there was no time.
    """

    rows: tuple[Row, ...]
    at_best_levels: Comparison
    original_level: str
    candidate_level: str
    unmeasured: tuple[Sizes, ...] = ()

    @property
    def fully_optimised(self) -> Comparison:
        """The comparison at the sizes that led the search."""
        return self.rows[0].comparison

    @property
    def slower(self) -> Row | None:
        """The first comparison in which the candidate is slower beyond A/A; None without one."""
        return next((row for row in self.rows if not is_no_slower(row.comparison)), None)

    @property
    def is_gain(self) -> bool:
        """Whether to prefer the candidate to the original."""
        is_faster = self.fully_optimised.is_faster and is_no_slower(self.at_best_levels)
        return is_faster and self.slower is None


def is_no_slower(comparison: Comparison) -> bool:
    """Whether the other model is not slower by more than two copies differ."""
    return comparison.ratio.value <= 1 + comparison.margin
