"""The runner that tries a direction of an evolution strategy: a chunk is a direction."""

from __future__ import annotations

import operator
from collections.abc import Callable

import numpy as np

from tfrl_systems.drivers.jobs import Chunk, MakeRunner, Runner
from tfrl_systems.episodes import Experience
from tfrl_systems.policies.directions import SIGNS, Directions, Perturbation

ScoreFn = Callable[[Experience], float]
"""What episodes came to, more is better."""

MEAN_RETURN: ScoreFn = operator.attrgetter("mean_return")


class DirectionRunner:
    """Plays the same episodes at both ends of a direction (`jobs.Runner`).

    All directions of an iteration play the same episodes, so that they can be ranked: what differs
    is the policy.
    """

    def __init__(
        self,
        make_runner: MakeRunner[Chunk, Experience],
        perturbation: Perturbation,
        score_fn: ScoreFn = MEAN_RETURN,
    ) -> None:
        self._runner: Runner[Chunk, Experience] = make_runner()
        self._perturbation, self._score_fn = perturbation, score_fn
        self._data = b""

    def load(self, data: bytes) -> None:
        """Load the variables in the middle."""
        self._runner.load(data)
        self._data = data

    def run(self, job: Chunk) -> Directions:
        """Try both ends; one whose episodes fail has no return."""
        seeds = (job.seed, job.iteration, job.index)
        # Environments with different samplers take turns.
        episodes = Chunk(job.iteration, job.iteration, job.seed)
        returns, messages = [], []
        num_steps = num_episodes = evaluations = 0
        for sign in SIGNS:
            self._runner.load(self._perturbation.perturbed(self._data, seeds, sign))
            try:
                experience = self._runner.run(episodes)
            # A perturbed policy may be too bad to play; the run goes on while others can.
            except Exception as error:
                returns.append(float("nan"))
                messages.append(f"{job}, sign {sign:+.0f}: {type(error).__name__}: {error}")
                continue
            returns.append(self._score_fn(experience))
            num_steps += experience.num_steps
            num_episodes += experience.num_episodes
            evaluations += experience.evaluations
        return Directions(
            np.array([seeds], np.int64),
            np.array([returns], np.float64),
            num_steps,
            num_episodes,
            tuple(messages),
            evaluations,
        )

    def close(self) -> None:
        """Close the runner."""
        self._runner.close()
