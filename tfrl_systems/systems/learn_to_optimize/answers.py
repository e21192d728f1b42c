"""What a model says of a policy's answers: the value expected there, how sure it is, a picture."""

from __future__ import annotations

import csv
import dataclasses
import io
import pathlib
from collections.abc import Callable
from typing import Any

import numpy as np

from environments import files
from environments.learn_to_optimize.functions import Objective
from environments.learn_to_optimize.loading import describe, to_domain
from tfrl_systems.training.pictures import drawn

# An answer is unsure where the standard deviation is more than this share of the values' spread.
_UNSURE = 0.25

_NUM_CONTEXTS, _NUM_ACTIONS = 60, 60
_INCHES = 8.0, 3.4

ExpectedFn = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Actions [M, m] and contexts [M, k] of the box -> expected values [M], standard deviations [M]."""


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


@dataclasses.dataclass(frozen=True)
class Landscape:
    """Expected values and how sure they are, over the first c and the first x.

    Other c are in the middle of their range, and other x are the policy's answers.

    Attributes:
      c: the values of the first c, in the function's own units [C].
      x: the values of the first x [R].
      answers: the policy's first x for each c [C].
      expected: expected values [R, C].
      std: their standard deviations [R, C].
    """

    c: np.ndarray
    x: np.ndarray
    answers: np.ndarray
    expected: np.ndarray
    std: np.ndarray

    @classmethod
    def of(
        cls,
        objective: Objective,
        policy: Callable[[np.ndarray], np.ndarray],
        expected_fn: ExpectedFn,
    ) -> Landscape | None:
        """Look at the model around a policy's answers; return None where there is no c."""
        num_tuned, num_free = objective.num_tuned, objective.num_free
        if not num_free:
            return None
        contexts = np.zeros((_NUM_CONTEXTS, num_free))
        contexts[:, 0] = np.linspace(-1, 1, _NUM_CONTEXTS)
        answers = policy(contexts.astype(np.float32)).astype(np.float64)
        # Rows of the picture are values of x, columns values of c.
        actions = np.repeat(answers[np.newaxis], _NUM_ACTIONS, axis=0)
        actions[:, :, 0] = np.linspace(-1, 1, _NUM_ACTIONS)[:, np.newaxis]
        everywhere = np.broadcast_to(contexts, (_NUM_ACTIONS, *contexts.shape))
        expected, std = expected_fn(
            actions.reshape(-1, num_tuned), everywhere.reshape(-1, num_free)
        )

        def own_units(columns: np.ndarray, place: int) -> np.ndarray:
            points = np.zeros((len(columns), num_tuned + num_free))
            points[:, place] = columns
            moved: np.ndarray = to_domain(points, objective.low, objective.high)[:, place]
            return moved

        shape = _NUM_ACTIONS, _NUM_CONTEXTS
        return cls(
            own_units(contexts[:, 0], num_tuned),
            own_units(actions[:, 0, 0], 0),
            own_units(answers[:, 0], 0),
            expected.reshape(shape),
            std.reshape(shape),
        )

    def to_image(self) -> np.ndarray | None:
        """Return the picture; see `training.pictures.Picture`."""
        return drawn(_INCHES, self.draw_on)

    def draw_on(self, figure: Any) -> None:
        """Draw expected values and their deviations on a figure of matplotlib, with the answers."""
        sides = (self.c[0], self.c[-1], self.x[0], self.x[-1])
        parts = {"expected value": self.expected, "standard deviation": self.std}
        for axes, (title, table) in zip(figure.subplots(1, 2), parts.items(), strict=True):
            image = axes.imshow(table, extent=sides, origin="lower", aspect="auto", cmap="viridis")
            figure.colorbar(image, ax=axes)
            axes.plot(self.c, self.answers, color="white", linewidth=2)
            axes.plot(self.c, self.answers, color="black", linewidth=1, label="policy")
            axes.set(title=title, xlabel="c0", ylabel="x0")
            axes.legend()
