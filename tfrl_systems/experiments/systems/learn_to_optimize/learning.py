"""The learning task of learn_to_optimize: to minimise a function."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from environments.caches.table import MINIMA
from environments.learn_to_optimize import references
from environments.learn_to_optimize.settings import Settings
from tfrl_systems.drivers.episode_runner import EpisodeRunner
from tfrl_systems.experiments.online import OnlineTask
from tfrl_systems.experiments.systems.learn_to_optimize.problem import Problem
from tfrl_systems.experiments.systems.learn_to_optimize.teaching import MakeTeacher
from tfrl_systems.experiments.training_run import TrainingRun
from tfrl_systems.policies.numpy_actor import NumpyActor
from tfrl_systems.policies.optimizer_policy import OptimizerPolicy
from tfrl_systems.training.online import EvaluateFn


@dataclasses.dataclass(frozen=True)
class MakeRunner:
    """A function that makes a worker's runner.

    Attributes:
      problem: the problem to collect on.
      settings: settings of the environment.
      actor: the policy, without variables; the pool broadcasts those.
      num_episodes: number of episodes in a chunk.
    """

    problem: Problem
    settings: Settings
    actor: NumpyActor
    num_episodes: int

    def __call__(self) -> EpisodeRunner:
        """Make the runner."""
        environments = self.problem.make_environments(self.settings, self.actor, self.num_episodes)
        return EpisodeRunner(environments, self.actor, self.num_episodes)


def online_task(run: TrainingRun) -> OnlineTask:
    """Make the task of all agents."""
    problem, settings = run.problem, run.settings["environment"]
    plain = dataclasses.replace(problem, sampler="random")
    (environment,) = plain.make_environments(settings)
    num_episodes = run.settings["loop"].episodes_per_chunk
    return OnlineTask(
        environment.time_step_spec(),
        environment.action_spec(),
        lambda actor: MakeRunner(problem, settings, actor, num_episodes),
        lambda agent: _evaluator(problem, agent),
        make_teacher=lambda actor: MakeTeacher(
            problem, settings, actor, run.settings["teaching"], num_episodes
        ),
        about={
            **problem.describe(),
            "use": [
                f"tfrl evaluate learn_to_optimize --policy DIR --function {problem.function}",
                "tfrl_systems.policies.optimizer_policy.OptimizerPolicy.load(DIR)(c)",
                "tf.saved_model.load(DIR)",
            ],
        },
    )


def _evaluator(problem: Problem, agent: Any) -> EvaluateFn:
    """Return a function that measures the greedy policy at c = -1, -0.9, …, 1 (thesis, 4.2.3)."""
    free = references.reference_points(problem.free)
    actor = NumpyActor.from_policy(agent.collect_policy)

    def evaluate_fn(variables: bytes) -> Mapping[str, float]:
        actor.load(variables)
        x = OptimizerPolicy(actor.network.first_step(), problem.objective.num_tuned)(free)
        errors = references.errors(problem.objective, x, free, MINIMA.files())
        return {**errors._asdict(), "steps": float(len(free))}

    return evaluate_fn
