"""What a model knows of a function around a policy's answers, as a picture."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from environments.learn_to_optimize.functions import Objective
from environments.learn_to_optimize.loading import to_domain
from tfrl_systems.training.pictures import drawn

_NUM_CONTEXTS, _NUM_ACTIONS = 60, 60
_INCHES = 8.0, 3.4

ExpectedFn = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Actions [M, m] and contexts [M, k] of the box -> expected values [M], standard deviations [M]."""


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
