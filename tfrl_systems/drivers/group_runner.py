"""The runners that play each context several times, and compare a policy with itself.

One context may be worth more than another by far more than any action changes. Within a group of
episodes of one context, only the actions differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from environments.credit import Credit, group_advantages
from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.episodes import Experience


class _RepeatingRunner:
    """Plays each of a chunk's contexts several times (`jobs.Runner`).

    Args:
      make_runner: makes the runner that plays episodes.
      group: episodes of each context, at least 2.
    """

    def __init__(self, make_runner: Callable[[], EpisodeRunner], group: int) -> None:
        self._runner, self._group = make_runner(), group
        self.load, self.close = self._runner.load, self._runner.close


class GroupRunner(_RepeatingRunner):
    """Adds what the group says of each action.

    The policy info of the experience has a further entry `advantage`, float32 [B, T]: see
    `environments.credit.group_advantages`. It is 0 in padding.
    """

    def run(self, job: Chunk) -> Experience:
        """Play each of the chunk's contexts as often as a group has episodes."""
        credits: list[list[Credit]] = [[] for _ in range(self._group)]
        attempts = [self._runner.run(job, *numbered) for numbered in enumerate(credits)]
        of_contexts = [group_advantages(group) for group in zip(*credits, strict=True)]
        for number, experience in enumerate(attempts):
            steps = experience.trajectory
            column = np.zeros(steps.reward.shape, np.float32)
            for row, advantages in zip(column, of_contexts, strict=True):
                row[: len(advantages[number])] = advantages[number]
            steps = steps._replace(policy_info={**(steps.policy_info or {}), "advantage": column})
            attempts[number] = dataclasses.replace(experience, trajectory=steps)
        return Experience.concatenate(attempts)


class LessonRunner(_RepeatingRunner):
    """Says what each episode cost, in systems whose only teacher is the policy itself.

    The policy draws its actions, so the episodes of a context differ, and the best one is worth
    cloning. The info of the experience is `cost`, the negative return, and `learned_cost`, its mean
    over the episodes of the same context.
    """

    def run(self, job: Chunk) -> Experience:
        """Play each of the chunk's contexts as often as a group has episodes."""
        attempts = [self._runner.run(job, attempt) for attempt in range(self._group)]
        costs = [
            -experience.trajectory.reward.sum(axis=1, dtype=np.float64) for experience in attempts
        ]
        learned_cost = np.mean(costs, axis=0)
        return Experience.concatenate(
            [
                dataclasses.replace(experience, info={"cost": cost, "learned_cost": learned_cost})
                for experience, cost in zip(attempts, costs, strict=True)
            ]
        )
