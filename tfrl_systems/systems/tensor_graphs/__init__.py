"""tensor_graphs: which rule to apply where in a deep-learning graph, for a faster model."""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from environments.errors import UserError
from environments.tensor_graphs.settings import Settings as EnvironmentSettings
from tfrl_systems.reporting import Reporter, percent
from tfrl_systems.settings import Settings
from tfrl_systems.systems.tensor_graphs import shipped, texts
from tfrl_systems.systems.tensor_graphs.evaluating import Evaluation, evaluate, model_table
from tfrl_systems.systems.tensor_graphs.problem import Benchmarks, Problem
from tfrl_systems.training.system import FLOAT_SETTINGS, Check, System
from tfrl_systems.training.training_run import TrainingRun

if TYPE_CHECKING:
    from tfrl_systems.drivers.collect import Collect
    from tfrl_systems.training.online import OnlineTask

# The reward pays for the cheapest graph of an episode, because users get that one, not the last.
# The thesis pays for each step alone (3.2.4) and lets NO-OP end an episode (3.2.3): reward=runtime,
# may_stop=true, constants=true and max_locations=200, with head=hierarchical, graph_block=full,
# two_policies=true and graph_rounds=5 for its agent (3.1.1, 3.3).
# Sizes of 0 are filled in from the models (`learning.with_room`).
_ENVIRONMENT = EnvironmentSettings(
    reward="least_and_runtime",
    max_steps=60,
    may_stop=False,
    constants=False,
    max_nodes=0,
    max_edges=0,
    max_locations=0,
    max_actions=0,
)
# Episodes have tens of steps. A step is rewarded at once for what it saves, and later for the steps
# that it makes possible.
_POLICY_GRADIENT: dict[str, Any] = {
    "hidden_sizes": (32, 32),
    "learning_rate": 3e-3,
    "final_learning_rate": 1e-4,
    "gamma": 0.95,
    "entropy_regularization": 0.02,
    "value_weight": 0.1,
    "gradient_clipping": 1.0,
}
_PPO: dict[str, Any] = {
    "num_epochs": 3,
    "minibatch_size": 100,
    "relative_advantages": True,
    "normalize_rewards": True,
}
_ES = {
    "learning_rate": 0.02,
    "final_learning_rate": 0.002,
    "noise_std": 0.1,
    "final_noise_std": 0.02,
    "graph_rounds": 3,
}
_OF: dict[str, dict[str, Any]] = {
    "ppo": {**_POLICY_GRADIENT, **_PPO},
    "reinforce": {**_POLICY_GRADIENT, "episodes_per_update": 2},
    "es": _ES,
    "bc_max": {
        "learning_rate": 3e-3,
        "final_learning_rate": 1e-4,
        "context_weights": "buckets",
        "updates": 200,
    },
    "world_model": {
        **_POLICY_GRADIENT,
        **_PPO,
        "minibatch_size": 0,
        "hidden_sizes": (64, 64),
        "graph_rounds": 3,
    },
}
_LOOP = {"iterations": 40, "episodes_per_chunk": 4}
# Few real steps: 48 episodes in all.
_LOOP_OF = {
    "es": {"num_chunks": 8, "episodes_per_chunk": 1, "checkpoint_every": 5},
    "bc_max": {
        "iterations": 5,
        "num_chunks": 32,
        "episodes_per_chunk": 1,
        "max_failed_chunks": 8,
        "evaluate_every": 1,
        "checkpoint_every": 1,
    },
    "world_model": {"iterations": 12, "episodes_per_chunk": 1, "checkpoint_every": 2},
}
# A policy for several models must not be too certain: a rule that pays on one may not on another.
_MAX_LOGIT_OF_SEVERAL_MODELS = 4.0


class TensorGraphs(System):
    """The record of the system; see the module."""

    name = "tensor_graphs"
    problem_type = Problem
    result_fields = ("best_cost_ms", "start_cost_ms")
    evaluation_type = Evaluation
    bench_type = Benchmarks
    policies = {
        "regions": "our search: region by region, what was learned of one is used in all alike",
        "removal": "takes steps that only remove computations: what needs no search",
        "regions:DIR": "the same, led by the learned policy in DIR",
        "greedy": "the rule that saves most, until none saves anything",
        "taso": "TASO's backtracking with a queue of graphs (alpha 1.05)",
        "beam": "the cheapest few graphs of each depth",
        "random": "random rules",
        shipped.NAME: "learned from measured costs, and part of the installation",
    }
    verbs = {"optimize": "tfrl_systems.systems.tensor_graphs.optimize.optimization"}
    examples = {
        "train": texts.TRAIN,
        "evaluate": texts.EVALUATE,
        "bench": texts.BENCH,
        "optimize": texts.OPTIMIZE,
    }
    unused_settings = FLOAT_SETTINGS
    refused = {
        "surrogate": "expected an agent for episodes of many decisions, found surrogate, which "
        "tries single ones; take another, such as ppo"
    }

    def settings(self, agent: str, problem: Problem | None) -> Settings:
        """See `System.settings`."""
        agent_type = self.agent(agent)
        several = problem is not None and problem.has_several_models
        own = dict(_OF.get(agent, {}))
        own["max_logit"] = _MAX_LOGIT_OF_SEVERAL_MODELS if several else 0.0
        settings = {
            "loop": agent_type.make_loop_config(**{**_LOOP, **_LOOP_OF.get(agent, {})}),
            "environment": _ENVIRONMENT,
            "agent": agent_type.make_config(**own),
        }
        if agent != "bc_max":
            return settings
        from tfrl_systems.systems.tensor_graphs.teaching import Teaching

        # An imitated path goes through all layers of a model, and ends there. Random steps lead to
        # graphs that no exporter writes.
        environment = dataclasses.replace(_ENVIRONMENT, max_steps=400, patience=40, random_steps=8)
        return {**settings, "environment": environment, "teaching": Teaching()}

    def complete(self, run: TrainingRun) -> TrainingRun:
        """See `System.complete`; fills in how large observations are, and a head without masks."""
        from tfrl_systems.systems.tensor_graphs import learning

        return learning.with_room(_with_head(run))

    def describe(self, run: TrainingRun) -> dict[str, Any]:
        """See `System.describe`."""
        return dict(run.problem.describe())

    @contextlib.contextmanager
    def online_task(
        self, run: TrainingRun, collect: Collect, reporter: Reporter
    ) -> Iterator[OnlineTask]:
        """See `System.online_task`."""
        from tfrl_systems.systems.tensor_graphs import learning

        yield learning.online_task(run)

    def evaluate(
        self, policies: Sequence[str], request: Evaluation, seed: int, reporter: Reporter
    ) -> dict[str, Any]:
        """See `System.evaluate`."""
        return evaluate(policies, request, seed, reporter)

    def bench(self, request: Benchmarks, reporter: Reporter) -> dict[str, Any]:
        """See `System.bench`."""
        from tfrl_systems.systems.tensor_graphs import benchmarks

        return benchmarks.measure(self, request, reporter)

    def checks(self) -> list[Check]:
        """See `System.checks`."""
        from tfrl_systems.systems.tensor_graphs import doctor

        return [doctor.check_onnx()]

    def outcome(self, result: Mapping[str, Any]) -> tuple[str, str]:
        """See `System.outcome`."""
        change = percent(result["evaluation"]["last_tenth"]["cost"], 1.0)
        return "costs", (
            f"{change} of estimated cost (mean of the models and of the last tenth of the "
            "iterations)"
        )

    def next_command(self, policy: pathlib.Path, problem: Problem) -> str:
        """See `System.next_command`."""
        # A built-in model or a family is no file.
        files = [name for name in problem.models if name.endswith(".onnx")]
        model = files[0] if files else "model.onnx"
        return f"tfrl optimize {model} -o fast.onnx --method policy --policy {policy}"

    def table(self, evaluation: Mapping[str, Any]) -> str:
        """See `System.table`."""
        return "\n".join(map(model_table, evaluation["models"]))


def _with_head(run: TrainingRun) -> TrainingRun:
    """Return the run with the only head that needs no list of matches, if there are no masks.

    Raises:
      UserError: the agent imitates searches, whose steps are matches of the list.
    """
    config = run.settings["agent"]
    if run.settings["environment"].masked:
        return run
    if run.agent == "bc_max":
        raise UserError(
            "masked: expected true for bc_max, which learns from the listed matches; found false"
        )
    if getattr(config, "head", "") != "local":
        return run
    numbered = dataclasses.replace(config, head="hierarchical")
    return dataclasses.replace(run, settings={**run.settings, "agent": numbered})


SYSTEM = TensorGraphs()
