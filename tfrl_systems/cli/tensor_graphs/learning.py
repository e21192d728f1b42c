"""Models to learn on, as the command line names them, and what collects experience on them."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import pathlib
from typing import Any

from environments import contexts
from environments.tensor_graphs import rules as rule_files
from environments.tensor_graphs.environment import Model, TensorGraphEnvironment
from environments.tensor_graphs.objectives import make_objective
from environments.tensor_graphs.observation import Sizes
from tfrl_systems.drivers.episode_driver import Actor, EpisodeRunner


@dataclasses.dataclass(frozen=True)
class EnvironmentConfig:
    """Settings of the environment.

    Attributes:
      reward: what a step is paid for: how much less the "runtime" became (the thesis's R5), the
        "runtime_and_memory" (R1, R3 and R4 by their symbols), how much less than at the start the
        "new_runtime" is (R2), that of the last step alone ("terminal"), or how much less the
        "least_runtime" of the episode became: that of the graph that one takes.
      alpha: weight of the runtime in runtime_and_memory.
      beta: weight of the memory that is accessed, likewise.
      max_steps: rules that an episode applies at most.
      max_nodes: nodes of a graph that an observation has room for.
      max_edges: edges, likewise.
      max_locations: matches of one rule, likewise.
      max_actions: matches of all rules, and NO-OP, likewise.
      truncate: whether what there is no room for is left out with a warning, instead of an error.
      constants: whether weights and other constants are nodes that a policy sees. Without them
        graphs have half as many nodes; which inputs are constant is said of each node in any case.
      measure_every: steps between measurements of the whole model; 0 for none.
    """

    reward: str = "least_runtime"
    alpha: float = 0.8
    beta: float = 0.2
    max_steps: int = 50
    max_nodes: int = 1024
    max_edges: int = 1536
    max_locations: int = 200
    max_actions: int = 1024
    truncate: bool = False
    constants: bool = False
    measure_every: int = 0


@dataclasses.dataclass(frozen=True)
class LearningProblem:
    """What is learned on. It travels to workers, and so names models and does not hold them.

    Attributes:
      models: files, or names of `models.NAMES`.
      rules: a file; None for those that come with the program.
      objective: name of what is to become less.
      dimensions: sizes that the models leave open, by name.
      config: settings of the environment.
    """

    models: tuple[str, ...]
    rules: pathlib.Path | None
    objective: str
    dimensions: tuple[tuple[str, int], ...]
    config: EnvironmentConfig = EnvironmentConfig()

    @classmethod
    def of(cls, options: argparse.Namespace, config: EnvironmentConfig) -> LearningProblem:
        """What the command line asks for."""
        return cls(
            tuple(options.models),
            options.rules,
            options.objective,
            tuple(sorted(options.dimensions)),
            config,
        )

    def describe(self) -> dict[str, Any]:
        """What identifies it, as JSON values."""
        return {
            "models": list(self.models),
            "rules": str(self.rules) if self.rules else None,
            "objective": self.objective,
            "dimensions": dict(self.dimensions),
            **dataclasses.asdict(self.config),
        }

    def make_environment(self, only: str | None = None) -> TensorGraphEnvironment:
        """One whose episodes begin at the models, each with the same probability.

        Args:
          only: one of the models, to begin at it alone.

        Raises:
          UserError: model, rules, objective or a setting cannot be used.
        """
        names = self.models if only is None else (only,)
        sizes = Sizes(**{field.name: getattr(self.config, field.name) for field in _SIZES})
        return TensorGraphEnvironment(
            contexts.uniform([_load_model(name) for name in names]),
            rule_files.load(self.rules),
            make_objective(self.objective, dict(self.dimensions)),
            reward=self.config.reward,
            alpha=self.config.alpha,
            beta=self.config.beta,
            max_steps=self.config.max_steps,
            sizes=sizes,
            constants=self.config.constants,
            measure_every=self.config.measure_every,
        )


_SIZES = dataclasses.fields(Sizes)
# Graphs are never changed, so environments share them.
_load_model = functools.cache(Model.load)


@dataclasses.dataclass(frozen=True)
class MakeRunner:
    """Makes a worker's runner.

    Attributes:
      problem: what to collect on.
      actor: a policy without variables, which are broadcast.
      num_episodes: of a chunk.
    """

    problem: LearningProblem
    actor: Actor
    num_episodes: int

    def __call__(self) -> EpisodeRunner:
        """The runner."""
        return EpisodeRunner([self.problem.make_environment()], self.actor, self.num_episodes)
