"""inlining: which call sites LLVM replaces by the function's body, for smaller programs."""

from __future__ import annotations

import contextlib
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tfrl_systems.agents.table import Agent
from tfrl_systems.reporting import Reporter
from tfrl_systems.settings import Settings
from tfrl_systems.systems.inlining import shipped, texts
from tfrl_systems.systems.inlining.problem import (
    Benchmarks,
    Evaluation,
    ObjectiveConfig,
    Problem,
    ScopeConfig,
)
from tfrl_systems.training.system import FLOAT_SETTINGS, GRAPH_SETTINGS, Check, System
from tfrl_systems.training.training_run import TrainingRun

if TYPE_CHECKING:
    from tfrl_systems.drivers.collect import Collect
    from tfrl_systems.training.checkpoints import Workdir
    from tfrl_systems.training.online import OnlineTask

# An episode is long, costs a compile, and is rewarded only at its end. What a module is worth, and
# what its other functions became, would drown what a decision changed: so modules are compared with
# themselves, and decisions answer for the functions that they may have changed.
_POLICY_GRADIENT = {
    "hidden_sizes": (64, 64),
    "learning_rate": 3e-3,
    "final_learning_rate": 3e-4,
    "group": 4,
    "clip_advantages": 3.0,
    "entropy_regularization": 0.005,
    "gamma": 1.0,
    "gradient_clipping": 0.5,
}
_OF: dict[str, dict[str, Any]] = {
    "ppo": {
        **_POLICY_GRADIENT,
        "num_epochs": 4,
        "minibatch_size": 1000,
        "gae_lambda": 1.0,
        "relative_advantages": False,
        "normalize_rewards": True,
    },
    "reinforce": {
        **_POLICY_GRADIENT,
        "episodes_per_update": 16,
        # First most departures lose; with less entropy all of them end before good ones are known.
        "entropy_regularization": 1.5,
    },
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
_BC_MAX = Agent(f"{_IMITATION}.cloning", f"{_IMITATION}.loop", may_change=("iterations",))


class Inlining(System):
    """The record of the system; see the module."""

    name = "inlining"
    problem_type = Problem
    result_fields = ("size_bytes", "default_size_bytes")
    evaluation_type = Evaluation
    bench_type = Benchmarks
    own_agents = {"bc_max": _BC_MAX}
    collects_by_workers = True
    policies = {
        shipped.NAME: "learned, and part of the installation",
        "default": "LLVM's own decisions at -Oz",
        "always": "inlines wherever it can",
        "never": "inlines nothing",
        "random": "inlines by chance",
        "cost<N": "inlines where LLVM's cost estimate is below N; -Oz uses 5",
    }
    default_policy = shipped.NAME
    refused = {
        "world_model": "expected an agent whose policy decides each call site by itself, found "
        "world_model, whose policy remembers the episode, which no compiler does for it; take "
        "another, such as bc_max",
        "surrogate": "expected an agent for episodes of many decisions, found surrogate, which "
        "tries single ones; take another, such as bc_max",
    }
    examples = {
        "train": texts.TRAIN,
        "evaluate": texts.EVALUATE,
        "bench": texts.BENCH,
        "build": texts.BUILD,
        "export": texts.EXPORT,
        "corpus build": texts.CORPUS_BUILD,
        "corpus info": texts.CORPUS_INFO,
    }
    unused_settings = (*GRAPH_SETTINGS, *FLOAT_SETTINGS)
    export_formats = ("clang-plugin", "mlgo")
    verbs = {
        "build": "tfrl_systems.systems.inlining.building.steered_build",
        "corpus": "tfrl_systems.systems.inlining.corpus_verbs",
    }

    def settings(self, agent: str, problem: Problem | None) -> Settings:
        """See `System.settings`."""
        from environments.inlining.exploration.explore import ExplorationConfig

        method = self.agent(agent)
        if agent in self.own_agents:
            return {
                "loop": method.make_loop_config(),
                "exploration": ExplorationConfig(),
                "objective": ObjectiveConfig(),
                "scope": ScopeConfig(),
                "agent": method.make_config(baseline_feature="inlining_default"),
            }
        from tfrl_systems.systems.inlining.learning import EpisodeConfig

        return {
            "loop": method.make_loop_config(
                iterations=100,
                num_chunks=8,
                episodes_per_chunk=4,
                max_failed_chunks=2,
                evaluate_every=20,
            ),
            "episodes": EpisodeConfig(**_EPISODES_OF.get(agent, {})),
            "objective": ObjectiveConfig(),
            "scope": ScopeConfig(),
            "agent": method.make_config(**_OF.get(agent, {})),
        }

    def describe(self, run: TrainingRun) -> dict[str, Any]:
        """See `System.describe`; corpora and policies are identified by their contents."""
        from tfrl_systems.systems.inlining import policies
        from tfrl_systems.systems.inlining.corpora import Corpora

        described = Corpora.of(run.problem).settings()
        digests = policies.fingerprints(getattr(run.settings["loop"], "baselines", ()))
        return {**described, "baselines_sha256": digests} if digests else described

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

        return learning.imitate(run, workdir, collect, reporter)

    def evaluate(
        self, policies: Sequence[str], settings: Evaluation, seed: int, reporter: Reporter
    ) -> dict[str, Any]:
        """See `System.evaluate`."""
        from tfrl_systems.systems.inlining import evaluating

        return evaluating.evaluate(policies, settings, seed, reporter)

    def bench(self, settings: Benchmarks, reporter: Reporter) -> dict[str, Any]:
        """See `System.bench`."""
        from tfrl_systems.systems.inlining.benchmarks import bench

        return bench.measure(settings, reporter)

    def export(
        self, policy: str, form: str, compiler: str | None, output: pathlib.Path
    ) -> tuple[dict[str, Any], str]:
        """See `System.export`."""
        from tfrl_systems.systems.inlining import exporting

        if form == "mlgo":
            report = exporting.export_mlgo(policy, compiler or "embedded", output)
            return report, f"build LLVM with -DLLVM_INLINER_MODEL_PATH={output.resolve()}"
        clang = compiler or "clang"
        report = exporting.export_plugin(policy, clang, output)
        return report, f"{clang} -Oz -fpass-plugin={output.resolve()} -c x.c"

    def checks(self) -> list[Check]:
        """See `System.checks`."""
        from tfrl_systems.systems.inlining import doctor

        return doctor.checks()

    def outcome(self, result: Mapping[str, Any]) -> tuple[str, str]:
        """See `System.outcome`; the lines of progress have said it."""
        return "", ""

    def next_command(self, policy: pathlib.Path, problem: Problem) -> str:
        """See `System.next_command`."""
        corpus = problem.holdout or problem.corpus
        return f"tfrl evaluate inlining --policy {policy} --policy default --corpus {corpus}"

    def table(self, evaluation: Mapping[str, Any]) -> str:
        """See `System.table`."""
        from tfrl_systems.systems.inlining import evaluating

        return evaluating.size_tables(evaluation)


SYSTEM = Inlining()
