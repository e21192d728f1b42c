"""What plays episodes of learn_to_optimize in a worker."""

from __future__ import annotations

import dataclasses

from environments.learn_to_optimize.environment import LearnToOptimizeEnvironment
from environments.learn_to_optimize.levels import Levels
from environments.learn_to_optimize.settings import Settings
from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.systems.learn_to_optimize.problem import Problem


@dataclasses.dataclass(frozen=True)
class MakeRunner:
    """A function that makes a worker's runner.

    Attributes:
      problem: the problem to collect on.
      settings: settings of the environment.
      actor: the policy, without variables; the pool broadcasts those.
      num_episodes: number of episodes in a chunk.
      levels: the function's levels; None to measure them with the runner.
    """

    problem: Problem
    settings: Settings
    actor: NumpyActor
    num_episodes: int
    levels: Levels | None = None

    def make_environments(self) -> list[LearnToOptimizeEnvironment]:
        """Make the batched environments, one for each sampler."""
        return self.problem.make_environments(
            self.settings, self.actor, self.num_episodes, self.levels
        )

    def __call__(self) -> EpisodeRunner:
        """Make the runner."""
        return EpisodeRunner(self.make_environments(), self.actor, self.num_episodes)
