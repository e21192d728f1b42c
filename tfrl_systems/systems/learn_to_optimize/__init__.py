"""learn_to_optimize: the x that minimises f(x; c), for any free parameters c at once.

The task is that of Mayer's thesis (`environments.learn_to_optimize.functions`). The defaults are
ours: rewards that are scaled and compared with the mean, gamma 0, 4 chunks of 256 episodes, and
standard deviations that a schedule lowers. The thesis has 5,000 to 10,000 iterations of 30 or 64
episodes of two steps, the reward f(s) - f(s') and PPO or REINFORCE with unnamed settings (Tables
4.1 to 4.3): --set reward=difference --set reference=old --set num_chunks=3
--set episodes_per_chunk=10.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from environments import files
from environments.errors import UsageError
from environments.learn_to_optimize.settings import Settings as EnvironmentSettings
from tfrl_systems.reporting import Reporter
from tfrl_systems.settings import Settings, option
from tfrl_systems.systems.learn_to_optimize import evaluating, texts
from tfrl_systems.systems.learn_to_optimize.judging import Judging
from tfrl_systems.systems.learn_to_optimize.optimizer_policy import OptimizerPolicy
from tfrl_systems.systems.learn_to_optimize.problem import Problem
from tfrl_systems.training.system import GRAPH_SETTINGS, System
from tfrl_systems.training.training_run import TrainingRun

if TYPE_CHECKING:
    from tfrl_systems.drivers.collect import Collect
    from tfrl_systems.training.online import OnlineTask

BENCHMARKS = (
    "collect_ms",
    "collect_over_eager_driver",
    "collect_over_tf_function_driver",
    "collect_over_parallel_py_environment",
    "collect_over_stable_baselines3",
    "numpy_actor_over_tf_actor",
    "pipes_collect_ms_2_workers",
    "pipes_scaling_sleep_1ms_2",
    "pipes_scaling_sleep_1ms_4",
    "pipes_scaling_sleep_1ms_8",
    "gymnasium_vector_over_batched",
    "broadcast_ms",
    "query_us",
    "query_us_per_row",
    "train_step_ms",
    "ppo_iteration_ms",
    "ppo_iteration_over_stable_baselines3",
    "ppo_iteration_over_stable_baselines3_vectorised",
)

# gamma is 0 because an action affects its own reward alone: no step can prepare a later one. Wide
# standard deviations average narrow valleys out until the policy has found the main one.
_POLICY_GRADIENT: dict[str, Any] = {
    "hidden_sizes": (32, 32),
    "learning_rate": 3e-3,
    "final_learning_rate": 3e-5,
    "gamma": 0.0,
    "gradient_clipping": 0.0,
    "action_std": 0.5,
    "search_action_std": 0.1,
    "final_action_std": 0.002,
}
_PPO = {"num_epochs": 2, "relative_advantages": True, "normalize_rewards": False}
# Dreams are of one step, because an action affects its own reward alone.
_WORLD_MODEL = {
    **_PPO,
    "hidden_sizes": (64, 64),
    "num_epochs": 8,
    "search_action_std": 0.015,
    "final_action_std": 0.004,
    "memory_size": 64,
    "num_waves": 2,
    "disagreement": 0.0,
    "dream_steps": 1,
    "num_dreams": 512,
    "dream_updates": 100,
    "random_share": 0.15,
    "fit_updates": 150,
    "fit_episodes": 128,
    "fit_learning_rate": 3e-3,
}
_ES = {
    "hidden_sizes": (32, 32),
    "learning_rate": 0.03,
    "final_learning_rate": 0.001,
    "noise_std": 0.05,
    "final_noise_std": 0.002,
}
_OF: dict[str, dict[str, Any]] = {
    # The best x may jump from one basin to another as c changes, and which basins a single answer
    # comes to depends on the seed.
    "ppo": {**_POLICY_GRADIENT, **_PPO, "components": 8},
    "reinforce": _POLICY_GRADIENT,
    "es": _ES,
    "bc_max": {
        "hidden_sizes": (64, 64),
        "learning_rate": 3e-3,
        "final_learning_rate": 3e-5,
        "updates": 500,
        "batch_size": 256,
        # Later policies lead to better answers, so those of the last few iterations count.
        "max_lesson_steps": 4096,
    },
    "world_model": {**_POLICY_GRADIENT, **_WORLD_MODEL},
    "surrogate": {"hidden_sizes": (64, 64)},
}
# The setting that lets a policy say where it is unsure.
_ASKED = "state_dependent_std"
_LOOP = {"iterations": 10_000, "episodes_per_chunk": 256, "checkpoint_every": 250}
# Where evaluations are dear: 19,200 of them in all.
_LOOP_OF = {
    "es": {"iterations": 1000, "num_chunks": 16, "episodes_per_chunk": 64, "checkpoint_every": 100},
    "bc_max": {"iterations": 50, "episodes_per_chunk": 256, "checkpoint_every": 5},
    "world_model": {"iterations": 40, "episodes_per_chunk": 40, "checkpoint_every": 5},
    "surrogate": {"iterations": 20, "episodes_per_chunk": 1, "checkpoint_every": 1},
}


@dataclasses.dataclass(frozen=True)
class Benchmarks:
    """What to measure.

    Attributes:
      only: name of a benchmark; only the named ones are measured.
      rounds: how often each benchmark takes its turn.
    """

    only: tuple[str, ...] = option((), metavar="NAME", choices=BENCHMARKS)
    rounds: int = option(3, metavar="N", minimum=1)


class LearnToOptimize(System):
    """The record of the system; see the module."""

    name = "learn_to_optimize"
    problem_type = Problem
    result_fields = ("cost", "start_cost")
    evaluation_type = evaluating.Evaluation
    bench_type = Benchmarks
    policies = {
        "random": "a random x",
        "constant": "the one x that is best for all c together",
        "scipy": "a search for each c, from the centre",
        "cma": "CMA-ES for each c (pip install 'tfrl-systems[cma]')",
    }
    examples = {
        "train": texts.TRAIN,
        "evaluate": texts.EVALUATE,
        "bench": texts.BENCH,
        "export": texts.EXPORT,
    }
    unused_settings = GRAPH_SETTINGS
    export_formats = ("onnx",)

    def settings(self, agent: str, problem: Problem | None) -> Settings:
        """See `System.settings`."""
        agent_type = self.agent(agent)
        config = agent_type.make_config(**_OF.get(agent, {}))
        if problem is not None and problem.asks_the_policy and hasattr(config, _ASKED):
            config = dataclasses.replace(config, **{_ASKED: True})
        proposes_trials = agent_type.collects == "trials"
        settings = {
            "loop": agent_type.make_loop_config(**_LOOP_OF.get(agent, _LOOP)),
            "environment": EnvironmentSettings(reward="auto", reference="mean"),
            "judging": Judging(judge="model" if proposes_trials else "values"),
            "agent": config,
        }
        if proposes_trials and problem is not None and problem.function is None:
            settings["agent"] = dataclasses.replace(config, evaluations=0)
        if agent != "bc_max":
            return settings
        from tfrl_systems.systems.learn_to_optimize.teaching import Teaching

        return {**settings, "teaching": Teaching()}

    def complete(self, run: TrainingRun) -> TrainingRun:
        """Read the function, which stays what it is for the whole run."""
        if run.how.collects != "trials":
            if run.problem.log is not None:
                raise UsageError(f"--log: expected --agent surrogate, found {run.agent}")
            return dataclasses.replace(run, problem=run.problem.resolved())
        evaluations, loop = run.settings["agent"].evaluations, run.settings["loop"]
        if run.problem.function is None and evaluations:
            raise UsageError(
                f"evaluations: expected 0 for a log without a function, found {evaluations}; give "
                "--function"
            )
        iterations = min(loop.iterations, max(evaluations, 1))
        batches = dataclasses.replace(
            loop,
            iterations=iterations,
            num_chunks=max(-(-evaluations // iterations), 1),
            evaluate_every=iterations,
        )
        settings = {**run.settings, "loop": batches}
        return dataclasses.replace(run, problem=run.problem.resolved(), settings=settings)

    def describe(self, run: TrainingRun) -> dict[str, Any]:
        """See `System.describe`."""
        return dict(run.problem.describe())

    @contextlib.contextmanager
    def online_task(
        self, run: TrainingRun, collect: Collect, reporter: Reporter
    ) -> Iterator[OnlineTask]:
        """See `System.online_task`."""
        from tfrl_systems.systems.learn_to_optimize import learning

        yield learning.online_task(run)

    def evaluate(
        self, policies: Sequence[str], request: evaluating.Evaluation, seed: int, reporter: Reporter
    ) -> dict[str, Any]:
        """See `System.evaluate`."""
        return evaluating.evaluate_policies(policies, request, seed, reporter)

    def bench(self, request: Benchmarks, reporter: Reporter) -> dict[str, Any]:
        """See `System.bench`."""
        from tfrl_systems.systems.learn_to_optimize.benchmarks import bench

        return bench.measure(request.only or BENCHMARKS, request.rounds, reporter)

    def export(
        self, policy: str, form: str, compiler: str | None, output: pathlib.Path
    ) -> tuple[dict[str, Any], str]:
        """See `System.export`."""
        data = OptimizerPolicy.load(policy).to_onnx().SerializeToString()
        files.replace(output, data)
        about = {"policy": policy, "format": form, "path": str(output), "size_bytes": len(data)}
        return about, f"onnxruntime.InferenceSession('{output}').run(['x'], {{'c': c}})"

    def next_command(self, policy: pathlib.Path, problem: Problem) -> str:
        """See `System.next_command`; of a log alone there is no function to evaluate."""
        if problem.function is None:
            output = f"{policy.parent.name}.onnx"
            words = ("export", "--policy", str(policy), "--format", "onnx", "-o", output)
            return shlex.join(["tfrl", *words])
        return f"{super().next_command(policy, problem)} --policy scipy --policy random"

    def table(self, evaluation: Mapping[str, Any]) -> str:
        """See `System.table`."""
        return evaluating.function_table(evaluation)


SYSTEM = LearnToOptimize()
