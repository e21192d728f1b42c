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
        "new_runtime" is (R2), that of the last step alone ("terminal"), how much less the
        "least_runtime" of the episode became: that of the graph that one takes; or the sum of this
        and the first, "least_and_runtime".
      alpha: weight of the runtime in runtime_and_memory, and of the least one in the last.
      beta: weight of the memory that is accessed, and of the runtime, likewise.
      max_steps: rules that an episode applies at most.
      may_stop: whether an episode may be ended by NO-OP while a rule matches.
      max_nodes: nodes of a graph that an observation has room for; 0 for twice as many as the
        largest of the models has.
      max_edges: edges, likewise.
      max_locations: matches of one rule; 0 for three times as many as there are at first.
      max_actions: matches of all rules, and NO-OP, likewise.
      truncate: whether what there is no room for is left out with a warning, instead of an error.
        It always is where all sizes were 0.
      constants: whether weights and other constants are nodes that a policy sees. Without them
        graphs have half as many nodes; which inputs are constant is said of each node in any case.
      measure_every: steps between measurements of the whole model; 0 for none.
    """

    reward: str = "least_and_runtime"
    alpha: float = 0.8
    beta: float = 0.2
    max_steps: int = 60
    may_stop: bool = False
    max_nodes: int = 0
    max_edges: int = 0
    max_locations: int = 0
    max_actions: int = 0
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
      config: settings of the environment; where its sizes are 0, call `sized`.
    """

    models: tuple[str, ...]
    rules: pathlib.Path | None = None
    objective: str = "onnxruntime"
    dimensions: tuple[tuple[str, int], ...] = ()
    config: EnvironmentConfig = EnvironmentConfig()

    @classmethod
    def of(cls, options: argparse.Namespace, config: EnvironmentConfig) -> LearningProblem:
        """What the command line asks for, with sizes instead of zeros.

        Raises:
          UserError: model, rules, objective or a setting cannot be used.
        """
        asked = cls(
            tuple(options.models),
            options.rules,
            options.objective,
            tuple(sorted(options.dimensions)),
            config,
        )
        return asked.sized()

    def sized(self) -> LearningProblem:
        """The same, with what the models need where the settings say 0.

        Raises:
          UserError: a model or the rules cannot be used.
        """
        zeros = [name for name in _GROWTH if getattr(self.config, name) == 0]
        if not zeros:
            return self
        rooms: dict[str, Any] = dict.fromkeys(_GROWTH, _MOST)
        roomy = dataclasses.replace(self.config, max_steps=1, truncate=True, **rooms)
        needed = dict.fromkeys(_GROWTH, 0)
        for name in self.models:
            # What a graph costs is of no interest here, and would have to be measured.
            one = dataclasses.replace(self, models=(name,), objective="analytic", config=roomy)
            for size, count in _counts(one).items():
                needed[size] = max(needed[size], count)
        found: dict[str, Any] = {name: _GROWTH[name] * needed[name] for name in zeros}
        truncate = self.config.truncate or len(found) == len(_GROWTH)
        config = dataclasses.replace(self.config, **found, truncate=truncate)
        return dataclasses.replace(self, config=config)

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
            may_stop=self.config.may_stop,
            sizes=sizes,
            constants=self.config.constants,
            measure_every=self.config.measure_every,
        )


@functools.cache
def _counts(problem: LearningProblem) -> dict[str, int]:
    """How large the first observation of a problem's model is, by the size that bounds it."""
    seen = problem.make_environment().reset().observation
    return {
        "max_nodes": int(seen["n_node"][0]),
        "max_edges": int(seen["n_edge"][0]),
        "max_locations": int(seen["location_masks"].sum(axis=1).max()),
        "max_actions": int(seen["action_mask"].sum()),
    }


_SIZES = dataclasses.fields(Sizes)
_MOST = 1 << 15
# Of the first graph's counts, so that there is room for what rules add.
_GROWTH = {"max_nodes": 2, "max_edges": 2, "max_locations": 3, "max_actions": 3}
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
