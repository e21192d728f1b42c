"""What BC-Max imitates here: the best x that anyone found for each c.

For each c of a chunk, these propose an x:

  teachers   minimisers of `baselines`, such as scipy, which begin anew for each c
  policy     the last policy
  led        descents from the last policy's answer, and from answers that the policy draws, which
             leave small valleys. They stand for BC-Max's exploration (its Algorithm 3), which
             departs from the policy at one of many steps: here an episode has one
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
from tf_agents.trajectories import time_step as ts
from tf_agents.trajectories import trajectory

from environments.errors import UserError
from environments.learn_to_optimize.baselines import NAMES, make_baseline
from environments.learn_to_optimize.descent import descend
from environments.learn_to_optimize.environment import LearnToOptimizeEnvironment
from environments.learn_to_optimize.levels import Levels
from environments.learn_to_optimize.settings import Settings
from tfrl_systems.drivers.jobs import Chunk
from tfrl_systems.episodes import Experience
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.systems.learn_to_optimize.problem import Problem

# Not the best constant: to find it takes the least values, which nobody knows while learning.
_TEACHERS = tuple(name for name in NAMES if name != "constant")


@dataclasses.dataclass(frozen=True)
class Teaching:
    """Who teaches.

    Attributes:
      teachers: minimisers whose answers are imitated where they are best: scipy, cma, random.
      explored: for each c, answers that the last policy draws, and descents begin at.
      descent_rounds: the most steps of a descent.
    """

    teachers: tuple[str, ...] = ("scipy",)
    explored: int = 8
    descent_rounds: int = 30

    def __post_init__(self) -> None:
        """Check the teachers.

        Raises:
          UserError: there is no such minimiser.
        """
        for name in self.teachers:
            if name not in _TEACHERS:
                raise UserError(
                    f"teachers: expected some of {', '.join(_TEACHERS)}; found {name!r}; correct it"
                )


class Teacher:
    """Gives the best answers for the free parameters of a chunk (`jobs.Runner`).

    The info of its experience is `cost`, f at the answer, and `learned_cost`, f at the last
    policy's; NaN if there is no learned policy yet. Each episode has one step. The environments
    draw the points, in turn; all have the same function.
    """

    def __init__(
        self,
        environments: Sequence[LearnToOptimizeEnvironment],
        actor: NumpyActor,
        teaching: Teaching,
    ) -> None:
        self._environments, self._objective = list(environments), environments[0].objective
        self._actor, self._teaching = actor, teaching

    def load(self, data: bytes) -> None:
        """Load new variables into the policy."""
        self._actor.load(data)

    def close(self) -> None:
        """Close the environments."""
        for environment in self._environments:
            environment.close()

    def run(self, job: Chunk) -> Experience:
        """Return the lessons of a chunk, [B, 1]."""
        environment = self._environments[job.number % len(self._environments)]
        generator = np.random.default_rng(job.seed_sequence())
        before = self._objective.evaluations.count
        environment.seed(int(generator.integers(1 << 32)))
        begun = environment.reset()
        free = begun.observation[:, self._objective.num_tuned :].astype(np.float64)
        seed = int(generator.integers(1 << 31))
        answers = [
            make_baseline(name, self._objective, seed=seed)(free)
            for name in self._teaching.teachers
        ]
        learned_cost = np.full(len(free), np.nan)
        if job.iteration > 0:
            learned = self._answers(begun, generator)
            learned_cost = self._values(learned[0], free)
            answers += [*learned, *(self._descended(answer, free) for answer in learned)]
        values = np.stack([self._values(answer, free) for answer in answers])
        best = np.where(np.isfinite(values), values, np.inf).argmin(axis=0)
        rows = np.arange(len(free))
        action = np.stack(answers)[best, rows].astype(np.float32)
        then = environment.step(action)
        steps = trajectory.Trajectory(
            begun.step_type[:, np.newaxis],
            begun.observation[:, np.newaxis],
            action[:, np.newaxis],
            (),
            np.full((len(free), 1), ts.StepType.LAST, np.int32),
            then.reward[:, np.newaxis],
            np.zeros((len(free), 1), np.float32),
        )
        info = {"cost": values[best, rows], "learned_cost": learned_cost}
        evaluations = self._objective.evaluations.count - before
        return Experience(steps, begun.observation.astype(np.float64), info, evaluations)

    def _answers(self, begun: ts.TimeStep, generator: np.random.Generator) -> list[np.ndarray]:
        """Return the policy's likeliest answers, and those that it draws, float64 [B, m] each."""
        drawn = [self._actor.act(begun, generator).action for _ in range(self._teaching.explored)]
        answers = [self._actor.mode(begun.observation), *drawn]
        return [np.clip(answer.astype(np.float64), -1, 1) for answer in answers]

    def _descended(self, x: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Return the ends of descents from x [B, m]."""

        def values_of(rows: np.ndarray, points: np.ndarray) -> np.ndarray:
            joined = self._objective.join(points, free[rows][:, np.newaxis])
            flat = self._objective(joined.reshape(-1, joined.shape[-1]))
            return flat.reshape(points.shape[:2])

        return descend(values_of, x, self._teaching.descent_rounds)

    def _values(self, x: np.ndarray, free: np.ndarray) -> np.ndarray:
        return self._objective(self._objective.join(x, free))


def make_teacher(
    problem: Problem,
    settings: Settings,
    num_answers: int,
    actor: NumpyActor,
    levels: Levels,
    teaching: Teaching,
) -> Teacher:
    """Make a worker's teacher, which answers `num_answers` c in each chunk."""
    environments = problem.make_environments(settings, actor, num_answers, levels)
    return Teacher(environments, actor, teaching)
