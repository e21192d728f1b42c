"""The runner of systems whose only teacher is the policy itself: its best episodes are cloned."""

from __future__ import annotations

import dataclasses

import numpy as np

from tfrl_systems.drivers.jobs import Chunk, MakeRunner, Runner
from tfrl_systems.episodes import Experience


class LessonRunner:
    """Plays episodes, and says what they cost: the negative return (`jobs.Runner`).

    The policy draws its actions, so episodes in one context differ, and the best one is worth
    cloning.

    Args:
      runner: plays episodes.
    """

    def __init__(self, runner: Runner[Chunk, Experience]) -> None:
        self._runner = runner
        self.load, self.close = runner.load, runner.close

    def run(self, job: Chunk) -> Experience:
        """Play the chunk's episodes."""
        played = self._runner.run(job)
        cost = -played.trajectory.reward.sum(axis=1, dtype=np.float64)
        info = {**played.info, "cost": cost, "learned_cost": cost}
        return dataclasses.replace(played, info=info)


@dataclasses.dataclass(frozen=True)
class MakeLessonRunner:
    """A function that makes a worker's runner.

    Attributes:
      make_runner: makes the runner that plays episodes.
    """

    make_runner: MakeRunner[Chunk, Experience]

    def __call__(self) -> LessonRunner:
        """Make the runner."""
        return LessonRunner(self.make_runner())
