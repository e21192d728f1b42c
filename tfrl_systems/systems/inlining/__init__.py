"""inlining: which call sites LLVM replaces by the function's body, for smaller programs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tfrl_systems.agents.table import Agent
from tfrl_systems.reporting import Reporter
from tfrl_systems.settings import Settings
from tfrl_systems.systems.inlining import texts
from tfrl_systems.systems.inlining.problem import (
    Benchmarks,
    Evaluation,
    ObjectiveConfig,
    Problem,
    ScopeConfig,
)
from tfrl_systems.training.system import System
from tfrl_systems.training.training_run import TrainingRun

if TYPE_CHECKING:
    from tfrl_systems.drivers.collect import Collect
    from tfrl_systems.training.checkpoints import Workdir
    from tfrl_systems.training.online import OnlineTask

# An episode is long, costs a compile, and is rewarded only at its end.
_POLICY_GRADIENT = {
    "hidden_sizes": (64, 64),
    "learning_rate": 3e-3,
    "final_learning_rate": 1e-5,
    "gamma": 1.0,
    "gradient_clipping": 0.5,
}
_OF: dict[str, dict[str, Any]] = {
    "ppo": {
        **_POLICY_GRADIENT,
        "num_epochs": 10,
        "gae_lambda": 1.0,
        "relative_advantages": False,
        "normalize_rewards": True,
    },
    "reinforce": _POLICY_GRADIENT,
    "es": {
        "hidden_sizes": (64, 64),
        "learning_rate": 0.1,
        "final_learning_rate": 0.01,
        "noise_std": 0.1,
        "final_noise_std": 0.02,
    },
}


# The noise on a network must be able to change decisions from the start.
_EPISODES_OF: dict[str, dict[str, Any]] = {"es": {"default_probability": 0.6}}


_IMITATION = "tfrl_systems.systems.inlining.imitation"
_BC_MAX = Agent(f"{_IMITATION}.agent", f"{_IMITATION}.loop", may_change=("iterations",))


class Inlining(System):
    """The record of the system; see the module."""

    name = "inlining"
    problem_type = Problem
    evaluation_type = Evaluation
    bench_type = Benchmarks
    own_agents = {"bc_max": _BC_MAX}
    collects_by_workers = True
    policies = {
        "default": "LLVM's own decisions at -Oz",
        "always": "inlines wherever it can",
        "never": "inlines nothing",
        "random": "inlines by chance",
        "cost<N": "inlines where LLVM's cost estimate is below N; -Oz uses 5",
    }
    refused = {
        "world_model": "expected an agent whose policy decides each call site by itself, found "
        "world_model, whose policy remembers the episode, which no compiler does for it; take "
        "another, such as bc_max"
    }
    examples = {
        "train": texts.TRAIN,
        "evaluate": texts.EVALUATE,
        "bench": texts.BENCH,
    }

    def settings(self, agent: str, problem: Problem | None) -> Settings:
        """See `System.settings`."""
        from environments.inlining.exploration.explore import ExplorationConfig

        found = self.agent(agent)
        if agent in self.own_agents:
            return {
                "loop": found.make_loop_config(),
                "exploration": ExplorationConfig(),
                "objective": ObjectiveConfig(),
                "scope": ScopeConfig(),
                "agent": found.make_config(baseline_feature="inlining_default"),
            }
        from tfrl_systems.systems.inlining.learning import EpisodeConfig

        return {
            "loop": found.make_loop_config(
                iterations=100,
                num_chunks=8,
                episodes_per_chunk=4,
                max_failed_chunks=2,
                evaluate_every=20,
            ),
            "episodes": EpisodeConfig(**_EPISODES_OF.get(agent, {})),
            "objective": ObjectiveConfig(),
            "agent": found.make_config(**_OF.get(agent, {})),
        }

    def describe(self, run: TrainingRun) -> dict[str, Any]:
        """See `System.describe`; corpora and policies are identified by their contents."""
        from tfrl_systems.systems.inlining import policies
        from tfrl_systems.systems.inlining.corpora import Corpora

        described = Corpora.of(run.problem).settings()
        found = policies.fingerprints(getattr(run.settings["loop"], "baselines", ()))
        return {**described, "baselines_sha256": found} if found else described

    @contextlib.contextmanager
    def online_task(
        self, run: TrainingRun, collect: Collect, reporter: Reporter
    ) -> Iterator[OnlineTask]:
        """See `System.online_task`."""
        from tfrl_systems.systems.inlining import learning

        with learning.online_task(run, collect, reporter) as task:
            yield task

    def train(
        self, run: TrainingRun, workdir: Workdir, collect: Collect, reporter: Reporter
    ) -> dict[str, Any]:
        """See `System.train`."""
        if run.agent not in self.own_agents:
            return super().train(run, workdir, collect, reporter)
        from tfrl_systems.systems.inlining import learning
        from tfrl_systems.systems.inlining.imitation import task

        with learning.imitation_task(run, collect, reporter) as imitation:
            return task.train(run, imitation, workdir, reporter)

    def evaluate(
        self, policies: Sequence[str], asked: Evaluation, seed: int, reporter: Reporter
    ) -> dict[str, Any]:
        """See `System.evaluate`."""
        from tfrl_systems.systems.inlining import evaluating

        return evaluating.evaluate(policies, asked, seed, reporter)

    def bench(self, asked: Benchmarks, reporter: Reporter) -> dict[str, Any]:
        """See `System.bench`."""
        from tfrl_systems.systems.inlining.benchmarks import bench

        return bench.measure(asked, reporter)


SYSTEM = Inlining()
