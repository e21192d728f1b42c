"""Policies that rewrite graphs, and what they come to when the real engine judges them."""

from __future__ import annotations

import dataclasses
import pathlib
import time
from typing import Any

import numpy as np

from environments.tensor_graphs.environment import TensorGraphEnvironment
from environments.tensor_graphs.search import Budget
from tfrl_systems import experiments
from tfrl_systems.experiments import Reporter
from tfrl_systems.systems.tensor_graphs import learning
from tfrl_systems.systems.tensor_graphs.policy import Chance, GraphPolicy
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem, Problem, find_model
from tools.benchmarks import shared
from tools.benchmarks.tensor_graphs.cases import slug

CHANCE = "chance"
STEPS_PER_ITERATION = 240
"""Real steps of an iteration: 4 episodes of 60 steps."""

Settings = tuple[tuple[str, Any], ...]


@dataclasses.dataclass(frozen=True)
class Case:
    """One policy on one model.

    Attributes:
      label: what the tables call it.
      agent: the agent that learns it; `CHANCE` to draw all actions by chance.
      model: the model.
      seed: seed of everything random.
      iterations: iterations of `STEPS_PER_ITERATION` real steps.
      settings: settings of the agent, by name.
      objective: the cost to minimise.
    """

    label: str
    agent: str
    model: str
    seed: int
    iterations: int = 12
    settings: Settings = ()
    objective: str = "analytic"

    @property
    def name(self) -> str:
        """Name of the record's file."""
        return slug(f"{self.label}-{self.model}-{self.iterations}-seed-{self.seed}")


def learned(case: Case, runs: pathlib.Path) -> experiments.Run:
    """Train a case's policy in a directory of its own in `runs`, or go on with that."""
    settings = {"evaluate_every": case.iterations, "episodes_per_chunk": 1}
    return experiments.train(
        "tensor_graphs",
        agent=case.agent,
        workdir=runs / case.name,
        seed=case.seed,
        iterations=case.iterations,
        settings={**settings, **dict(case.settings)},
        resume=True,
        reporter=Reporter(),
        models=[case.model],
        objective=case.objective,
    )


def environment_of(case: Case) -> TensorGraphEnvironment:
    """Make an environment of a case's model, with the usual settings."""
    run = experiments.plan(
        "tensor_graphs", agent="ppo", models=[case.model], objective=case.objective
    )
    return learning.make_environment(run.problem, run.settings["environment"])


@dataclasses.dataclass(frozen=True)
class Play:
    """A task: learn, then play real episodes, the first of them by the likeliest actions.

    Attributes:
      case: what to learn.
      output: directory of the records.
      num_episodes: number of episodes.
    """

    case: Case
    output: pathlib.Path
    num_episodes: int

    def __call__(self) -> shared.Record:
        """Do it, unless there is a record of it; return the record."""
        path = self.output / f"{self.case.name}.json"
        decided = {**dataclasses.asdict(self.case), "num_episodes": self.num_episodes}
        return shared.kept(path, decided, self._made)

    def _made(self) -> shared.Record:
        case = self.case
        began_s = time.monotonic()
        told: dict[str, Any] = {"environment_steps": 0}
        policy = GraphPolicy(Chance(), seed=case.seed)
        if case.agent != CHANCE:
            run = learned(case, self.output / "runs")
            told = {name: run.result.get(name) for name in ("environment_steps", "world_model")}
            policy = GraphPolicy.load(run.policy, case.seed)
        learned_s = time.monotonic() - began_s
        environment = environment_of(case)
        by_chance = case.agent == CHANCE
        numbers = range(by_chance, by_chance + self.num_episodes)
        played = [self._played(policy, environment, number) for number in numbers]
        costs = [cost for cost, _ in played]
        return {
            **told,
            "label": case.label,
            "model": case.model,
            "seed": case.seed,
            "seconds": learned_s,
            "greedy": None if by_chance else costs[0],
            "mean": float(np.mean(costs)),
            "best": min(costs),
            "return": float(np.mean([gained for _, gained in played[not by_chance :]])),
        }

    def _played(
        self, policy: GraphPolicy, environment: TensorGraphEnvironment, number: int
    ) -> tuple[float, float]:
        """Return the cost of an episode's cheapest graph beside the model's, and the return."""
        gained = sum(
            float(environment.current_time_step().reward) for _ in policy.play(environment, number)
        )
        info = environment.get_info()
        return info["best_cost_ms"] / info["start_cost_ms"], gained


@dataclasses.dataclass(frozen=True)
class Search:
    """A task: search by `regions`.

    Attributes:
      model: the model.
      seconds: the most time.
      objective: the cost to minimise.
      output: directory of the records.
    """

    model: str
    seconds: float
    objective: str
    output: pathlib.Path

    def __call__(self) -> shared.Record:
        """Do it, unless there is a record of it; return the record."""
        settings = {"seconds": self.seconds, "objective": self.objective}
        return shared.kept(self.output / f"regions-{self.model}.json", settings, self._made)

    def _made(self) -> shared.Record:
        asked = Problem(models=(self.model,), objective=self.objective)
        problem = GraphProblem.of(self.model, find_model(self.model), asked)
        found = problem.search("regions", Budget(self.seconds))
        return {
            "model": self.model,
            "best": found.best.cost_ms / problem.start.cost_ms,
            "seconds": found.seconds,
            "expansions": found.expansions,
        }
