"""A function to minimise as the command line names it, and what collects experience on it."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from typing import Any

from environments.learn_to_optimize.environment import LearnToOptimizeEnvironment
from environments.learn_to_optimize.functions import Objective, make_objective
from environments.learn_to_optimize.samplers import make_samplers
from tfrl_systems.drivers.episode_driver import EpisodeRunner
from tfrl_systems.policies.numpy_actor import NumpyActor


@dataclasses.dataclass(frozen=True)
class EnvironmentConfig:
    """Settings of the environment.

    Attributes:
      episode_length: steps of an episode; with gamma 0 it only says how experience is made.
      reward: "difference" of the values, "log1p" of their logarithms (for functions of several
        orders of magnitude), or "scaled" by the function's spread; "auto" takes log1p for
        rosenbrock and its variants, scaled for all others.
      reference: what a new point is better than: the "mean" of the function, or the "old" point,
        the thesis's, which at gamma 0 teaches the same with more noise.
      num_strata: intervals of latin_hypercube.
      num_candidates: candidates for each point of uncertainty sampling.
    """

    episode_length: int = 2
    reward: str = "auto"
    reference: str = "mean"
    num_strata: int = 64
    num_candidates: int = 64


@dataclasses.dataclass(frozen=True)
class Problem:
    """Function, sampler and environment of a run; it travels to workers.

    Attributes:
      function: name of the function, or module:callable.
      dimensions: n.
      free: k.
      bounds: of the user's own function, or None.
      sampler: name of the sampler of start points.
      config: settings of the environment.
    """

    function: str
    dimensions: int
    free: int
    bounds: tuple[float, float] | None = None
    sampler: str = "random"
    config: EnvironmentConfig = EnvironmentConfig()

    @classmethod
    def of(cls, options: argparse.Namespace, config: EnvironmentConfig | None = None) -> Problem:
        """What the command line asks for."""
        return cls(
            options.function,
            options.dimensions,
            options.free,
            options.bounds,
            getattr(options, "sampler", "random"),
            config or EnvironmentConfig(),
        )

    @property
    def objective(self) -> Objective:
        """The function.

        Raises:
          UserError: there is none of that name, or it cannot be used.
        """
        return _make_objective(self.function, self.dimensions, self.free, self.bounds)

    @property
    def reward(self) -> str:
        """The environment's reward, "auto" resolved."""
        if self.config.reward != "auto":
            return self.config.reward
        return "log1p" if self.function.endswith("rosenbrock") else "scaled"

    def describe(self) -> dict[str, Any]:
        """What identifies the function, as JSON values."""
        return {
            "function": self.function,
            "dimensions": self.dimensions,
            "free": self.free,
            "bounds": list(self.bounds) if self.bounds else None,
        }

    def make_environments(
        self, actor: NumpyActor | None = None, batch_size: int | None = None
    ) -> list[LearnToOptimizeEnvironment]:
        """One environment for each sampler.

        Args:
          actor: whose entropy guides uncertainty sampling.
          batch_size: episodes side by side; None for environments that are not batched.
        """
        samplers = make_samplers(
            self.sampler,
            self.dimensions,
            num_strata=self.config.num_strata,
            num_candidates=self.config.num_candidates,
            entropy_fn=None if actor is None else actor.entropy,
        )
        return [
            LearnToOptimizeEnvironment(
                self.objective,
                sampler=sampler,
                batch_size=batch_size,
                episode_length=self.config.episode_length,
                reward=self.reward,
                reference=self.config.reference,
            )
            for sampler in samplers
        ]


# The same object each time, because what is known of its minima goes with it.
_make_objective = functools.lru_cache(maxsize=8)(make_objective)


@dataclasses.dataclass(frozen=True)
class MakeRunner:
    """Makes a worker's runner.

    Attributes:
      problem: what to collect on.
      actor: a policy without variables, which are broadcast.
      num_episodes: of a chunk.
    """

    problem: Problem
    actor: NumpyActor
    num_episodes: int

    def __call__(self) -> EpisodeRunner:
        """The runner."""
        environments = self.problem.make_environments(self.actor, self.num_episodes)
        return EpisodeRunner(environments, self.actor, self.num_episodes)
