"""The runner of systems whose only teacher is the policy itself: its best episodes are cloned."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.episodes import Experience


class LessonRunner:
    """Plays each context several times, and says what that cost (`jobs.Runner`).

    The policy draws its actions, so the episodes of a context differ, and the best one is worth
    cloning. The info of the experience is `cost`, the negative return, and `learned_cost`, its mean
    over the episodes of the same context.

    Args:
      make_runner: makes the runner that plays episodes.
      num_attempts: episodes in each context.
    """

    def __init__(self, make_runner: Callable[[], EpisodeRunner], num_attempts: int) -> None:
        self._runner, self._num_attempts = make_runner(), num_attempts
        self.load, self.close = self._runner.load, self._runner.close

    def run(self, job: Chunk) -> Experience:
        """Play each of the chunk's contexts `num_attempts` times."""
        played = [self._runner.run(job, attempt) for attempt in range(self._num_attempts)]
        costs = [
            -experience.trajectory.reward.sum(axis=1, dtype=np.float64) for experience in played
        ]
        learned_cost = np.mean(costs, axis=0)
        return Experience.concatenate(
            [
                dataclasses.replace(experience, info={"cost": cost, "learned_cost": learned_cost})
                for experience, cost in zip(played, costs, strict=True)
            ]
        )
