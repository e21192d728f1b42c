"""The benchmarks of tensor_graphs: what a step costs, and what learning costs."""

from __future__ import annotations

import dataclasses
import functools
import random
import statistics
from collections.abc import Sequence
from typing import Any

import numpy as np
import psutil

from environments import contexts
from environments.tensor_graphs.environment import Model, TensorGraphEnvironment
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.rewriting.engine import Engine, State
from environments.tensor_graphs.rewriting.match_index import MatchIndex, Starts
from environments.tensor_graphs.rewriting.matching import CompiledRule, Match, compile_rules
from environments.tensor_graphs.settings import Settings
from tfrl_systems.cpu_time import timed_ms
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.tensor_graphs.benchmarks.learning import (
    DREAM_STEPS,
    NUM_DREAMS,
    measure_dreaming,
    measure_learning,
)
from tfrl_systems.systems.tensor_graphs.problem import (
    Benchmarks,
    GraphProblem,
    find_model,
    num_operators,
)
from tfrl_systems.training.system import System

_WALK = 20


@dataclasses.dataclass(frozen=True)
class Cost:
    """CPU time of steps, in milliseconds.

    Attributes:
      median_ms: median over the steps.
      slowest_ms: 95th percentile over the steps.
    """

    median_ms: float
    slowest_ms: float

    @classmethod
    def of(cls, steps_ms: Sequence[float]) -> Cost:
        """Summarise the times of steps; both figures are 0 if there are no steps."""
        if not steps_ms:
            return cls(0.0, 0.0)
        slowest_ms = sorted(steps_ms)[int(0.95 * (len(steps_ms) - 1))]
        return cls(statistics.median(steps_ms), slowest_ms)


def measure(system: System, request: Benchmarks, reporter: Reporter) -> dict[str, Any]:
    """Measure, and return what `tfrl bench tensor_graphs --json` prints."""
    benchmarks: list[dict[str, Any]] = []
    advance = reporter.task("measuring", 3 * len(request.models) + 1)
    for name in request.models:
        problem = GraphProblem.of(name, find_model(name, request.seed), request)
        benchmarks += _of_engine(problem, *measure_engine(problem, request.steps, request.seed))
        advance(1)
        cost, growth_mib = measure_environment(problem, request.steps, request.seed)
        benchmarks += _of_environment(problem, request.steps, cost, growth_mib)
        advance(1)
        benchmarks += _of_learning(problem, *measure_learning(system, request, name, request.seed))
        advance(1)
    first = request.models[0]
    benchmarks.append(
        {
            "name": "dream_steps_per_second",
            "value": measure_dreaming(system, request, first, request.seed),
            "unit": "steps/s",
            "of": f"{NUM_DREAMS} dreams of {first} side by side, {DREAM_STEPS} steps each",
        }
    )
    advance(1)
    return {"benchmarks": benchmarks}


def measure_engine(problem: GraphProblem, num_steps: int, seed: int) -> tuple[Cost, Cost]:
    """Time steps of random walks, and for each a search for all matches of the same graph anew.

    Returns:
      The cost of a step, which applies a rule and updates matches, cost and masks; and the cost of
      searching all matches anew.
    """
    engine = Engine(problem.rules, problem.objective)
    compiled = compile_rules(problem.rules)
    starts = Starts(compiled)
    start = engine.start(problem.graph)
    chosen = random.Random(seed)
    steps_ms, full_ms = [], []
    state = start
    for number in range(num_steps):
        if number % _WALK == 0 or not state.matches:
            state = start
        if not state.matches:
            break
        taken_ms, following = timed_ms(
            functools.partial(_step, state, chosen.choice(state.matches))
        )
        steps_ms.append(taken_ms)
        taken_ms, _ = timed_ms(functools.partial(_search_anew, following.graph, compiled, starts))
        full_ms.append(taken_ms)
        state = following
    return Cost.of(steps_ms), Cost.of(full_ms)


def measure_environment(problem: GraphProblem, num_steps: int, seed: int) -> tuple[Cost, float]:
    """Time steps of random allowed actions, each with its observation, but no resets.

    Returns:
      The cost of a step; and by how many MiB this process grew in the last nine tenths of the
      steps.
    """
    model = Model(problem.name, problem.graph)
    environment = TensorGraphEnvironment(
        contexts.sequential([model]), Settings(max_steps=_WALK), problem.rules, problem.objective
    )
    generator = np.random.default_rng(seed)
    steps_ms: list[float] = []
    early_mib = 0.0
    time_step = environment.reset()
    while len(steps_ms) < num_steps:
        if time_step.is_last():
            time_step = environment.reset()
        observation = time_step.observation
        # The first action is NO-OP, which is taken only if no other is allowed.
        num_actions = int(observation["action_mask"].sum())
        row = generator.integers(1, num_actions) if num_actions > 1 else 0
        step = functools.partial(environment.step, observation["actions"][row])
        taken_ms, time_step = timed_ms(step)
        steps_ms.append(taken_ms)
        if len(steps_ms) == max(1, num_steps // 10):
            early_mib = _memory_mib()
    return Cost.of(steps_ms), _memory_mib() - early_mib


def _memory_mib() -> float:
    """Return the memory that this process has in use, in MiB."""
    memory_mib: float = psutil.Process().memory_info().rss / 2**20
    return memory_mib


def _step(state: State, match: Any) -> State:
    """Apply a match, and compute everything that an environment needs from the new state."""
    following = state.apply(match)
    following.matches, following.cost_ms, following.xfer_mask, following.num_matches  # noqa: B018
    return following


def _search_anew(graph: Graph, rules: tuple[CompiledRule, ...], starts: Starts) -> Sequence[Match]:
    return MatchIndex(graph, rules, starts).matches


def _of_engine(problem: GraphProblem, step: Cost, full_match: Cost) -> list[dict[str, Any]]:
    of = (
        f"{num_operators(problem.graph)} operators, {len(problem.rules)} rules, "
        f"{len(problem.start.matches)} matches"
    )
    return [
        _in_ms(f"engine_step_ms_{problem.name}", step, of),
        {
            "name": f"incremental_over_full_match_{problem.name}",
            "ratio": full_match.median_ms / step.median_ms if step.median_ms else 1.0,
            "against": "all matches searched anew",
            "theirs_ms": full_match.median_ms,
            "ours_ms": step.median_ms,
        },
    ]


def _of_environment(
    problem: GraphProblem, num_steps: int, step: Cost, growth_mib: float
) -> list[dict[str, Any]]:
    return [
        _in_ms(f"environment_step_ms_{problem.name}", step, "random allowed actions"),
        {
            "name": f"memory_growth_mib_{problem.name}",
            "value": growth_mib,
            "unit": "MiB",
            "of": f"the last nine tenths of {num_steps} steps of the environment",
        },
    ]


def _of_learning(
    problem: GraphProblem, policy_ms: Sequence[float], updates_ms: Sequence[float]
) -> list[dict[str, Any]]:
    graphs = f"{len(policy_ms)} graphs"
    return [
        _in_ms(f"policy_ms_{problem.name}", Cost.of(policy_ms), f"one of {graphs}, in NumPy"),
        _in_ms(f"train_step_ms_{problem.name}", Cost.of(updates_ms), f"PPO's update from {graphs}"),
    ]


def _in_ms(name: str, cost: Cost, of: str) -> dict[str, Any]:
    return {
        "name": name,
        "value": cost.median_ms,
        "unit": "ms",
        "slowest_ms": cost.slowest_ms,
        "of": of,
    }
