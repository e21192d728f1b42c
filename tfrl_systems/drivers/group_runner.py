"""The runner of groups: the policy plays each context several times, and is compared with itself.

One context may be worth more than another by far more than any action changes. Within a group of
episodes of one context, only the actions differ.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np
from tf_agents.trajectories import trajectory

from environments.credit import Credit, group_advantages
from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.episodes import Experience


class GroupRunner:
    """Plays each context several times, and adds what the group says of each action (`Runner`).

    The policy info of the experience has a further entry `advantage`, float32 [B, T]: see
    `environments.credit.group_advantages`. It is 0 in padding.

    Args:
      make_runner: makes the runner that plays episodes.
      group: episodes of each context, at least 2.
    """

    def __init__(self, make_runner: Callable[[], EpisodeRunner], group: int) -> None:
        self._runner, self._group = make_runner(), group
        self.load, self.close = self._runner.load, self._runner.close

    def run(self, job: Chunk) -> Experience:
        """Play each of the chunk's contexts as often as a group has episodes."""
        credits: list[list[Credit]] = [[] for _ in range(self._group)]
        attempts = [self._runner.run(job, *numbered) for numbered in enumerate(credits)]
        of_contexts = [group_advantages(group) for group in zip(*credits, strict=True)]
        return Experience.concatenate(
            [
                _with_advantages(experience, advantages)
                for experience, advantages in zip(
                    attempts, zip(*of_contexts, strict=True), strict=True
                )
            ]
        )


def _with_advantages(experience: Experience, advantages: Sequence[np.ndarray]) -> Experience:
    steps: trajectory.Trajectory = experience.trajectory
    column = np.zeros(steps.reward.shape, np.float32)
    for row, of_episode in zip(column, advantages, strict=True):
        row[: len(of_episode)] = of_episode
    info = {**(steps.policy_info or {}), "advantage": column}
    return dataclasses.replace(experience, trajectory=steps._replace(policy_info=info))
