"""What a model says of a policy's answers: x, the value expected there, and how sure it is."""

from __future__ import annotations

import csv
import dataclasses
import io
import pathlib

import numpy as np

from environments import files
from environments.learn_to_optimize.functions import Objective
from environments.learn_to_optimize.loading import describe, to_domain

# An answer is unsure where the standard deviation is more than this share of the values' spread.
_UNSURE = 0.25


@dataclasses.dataclass(frozen=True)
class Answers:
    """Answers for M contexts.

    Attributes:
      points: (x, c) float64 [M, n] in the function's own units.
      expected, std: expected values and their standard deviations, float64 [M].
      num_tuned: n - k.
      spread: standard deviation of all values that are known.
    """

    points: np.ndarray
    expected: np.ndarray
    std: np.ndarray
    num_tuned: int
    spread: float

    @classmethod
    def of(
        cls,
        objective: Objective,
        rows: np.ndarray,
        expected: tuple[np.ndarray, np.ndarray],
        spread: float,
    ) -> Answers:
        """Return answers from rows (x, c) [M, n] of the box, and expected values and stds [M]."""
        points = to_domain(rows, objective.low, objective.high)
        return cls(points, *expected, objective.num_tuned, spread)

    @property
    def is_unsure(self) -> np.ndarray:
        """Return for which contexts the model hardly knows the value, bool [M]."""
        return self.std > _UNSURE * self.spread

    def describe(self) -> str:
        """Return where the model is unsure, as one line for people; "" if nowhere."""
        unsure = np.count_nonzero(self.is_unsure)
        if not unsure:
            return ""
        worst = int(self.std.argmax())
        where = describe(self.points[worst], self.num_tuned)
        return (
            f"unsure at {unsure} of {len(self.std)} c, most of all at {where}: expected "
            f"{self.expected[worst]:.4g} ± {2 * self.std[worst]:.2g}; trials there would tell"
        )

    def write(self, path: pathlib.Path) -> None:
        """Write a CSV file: c0, …, x0, …, expected, std.

        Raises:
          UserError: it cannot be written.
        """
        num_free = self.points.shape[1] - self.num_tuned
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        names = [f"c{place}" for place in range(num_free)]
        names += [f"x{place}" for place in range(self.num_tuned)]
        writer.writerow([*names, "expected", "std"])
        moved = np.roll(self.points, num_free, axis=1)
        table = np.column_stack([moved, self.expected, self.std])
        writer.writerows([f"{number:.6g}" for number in row] for row in table)
        files.replace(path, text.getvalue().encode())
