"""`tfrl bench tensor_graphs`, once the command line is read."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import random
import shlex
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import psutil

from environments import contexts
from environments.tensor_graphs.engine import Engine, State
from environments.tensor_graphs.environment import Model, TensorGraphEnvironment
from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.match_index import MatchIndex, Starts
from environments.tensor_graphs.matching import Match, Rule, compile_rules
from tfrl_systems.cli.console import Progress, format_table, show, show_json
from tfrl_systems.cli.cpu_time import timed_ms
from tfrl_systems.cli.tensor_graphs.bench_learning import measure_learning
from tfrl_systems.cli.tensor_graphs.problem import Problem, model_of, num_operators

_WALK = 20
_HEADER = ("benchmark", "", "full re-match ms", "ours ms")


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of steps, in milliseconds of CPU time.

    Attributes:
      median_ms: half of them take less.
      slowest_ms: 95 in a hundred take less.
    """

    median_ms: float
    slowest_ms: float

    @classmethod
    def of(cls, steps_ms: Sequence[float]) -> Cost:
        """Of steps that took so long; 0 where none could be taken."""
        if not steps_ms:
            return cls(0.0, 0.0)
        slowest_ms = sorted(steps_ms)[int(0.95 * (len(steps_ms) - 1))]
        return cls(statistics.median(steps_ms), slowest_ms)


def run(options: argparse.Namespace) -> int:
    """Measures as the command line says."""
    benchmarks: list[dict[str, Any]] = []
    with Progress() as progress:
        advance = progress.task("measuring", 3 * len(options.models))
        for name in options.models:
            problem = Problem.of(name, model_of(options, name), options)
            benchmarks += _of_engine(problem, *measure_engine(problem, options.steps, options.seed))
            advance(1)
            cost, growth_mib = measure_environment(problem, options.steps, options.seed)
            benchmarks += _of_environment(problem, options.steps, cost, growth_mib)
            advance(1)
            benchmarks += _of_learning(problem, *measure_learning(options, name))
            advance(1)
    words = [word for name in options.models for word in ("--model", name)]
    command = shlex.join(["tfrl", "bench", "tensor_graphs", "--steps", str(options.steps), *words])
    benchmarks = [{**one, "command": command} for one in benchmarks]
    if options.json:
        show_json({"benchmarks": benchmarks})
    else:
        show(format_table(_HEADER, [_cells(one) for one in benchmarks]))
    return 0


def measure_engine(problem: Problem, num_steps: int, seed: int) -> tuple[Cost, Cost]:
    """Times steps of random walks, each beside a full re-match of the same graph.

    Args:
      problem: the model.
      num_steps: to time.
      seed: of the walks.

    Returns:
      Of a step: a rule applied, matches, cost and masks brought up to date; and of searching all
      matches anew.
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


def measure_environment(problem: Problem, num_steps: int, seed: int) -> tuple[Cost, float]:
    """Times steps of random allowed actions, each with its observation.

    Args:
      problem: the model.
      num_steps: to time; resets are not.
      seed: of the actions.

    Returns:
      Of a step; and by how many MiB this process grew after a tenth of the steps.
    """
    model = Model(problem.name, problem.graph)
    environment = TensorGraphEnvironment(
        contexts.sequential([model]), problem.rules, problem.objective, max_steps=_WALK
    )
    generator = np.random.default_rng(seed)
    steps_ms: list[float] = []
    early_mib = 0.0
    time_step = environment.reset()
    while len(steps_ms) < num_steps:
        if time_step.is_last():
            time_step = environment.reset()
        observation = time_step.observation
        # The first action is NO-OP, the last resort.
        num_actions = int(observation["action_mask"].sum())
        row = generator.integers(1, num_actions) if num_actions > 1 else 0
        step = functools.partial(environment.step, observation["actions"][row])
        taken_ms, time_step = timed_ms(step)
        steps_ms.append(taken_ms)
        if len(steps_ms) == max(1, num_steps // 10):
            early_mib = _memory_mib()
    return Cost.of(steps_ms), _memory_mib() - early_mib


def _memory_mib() -> float:
    """What this process has in memory."""
    found: float = psutil.Process().memory_info().rss / 2**20
    return found


def _step(state: State, match: Any) -> State:
    """All that an environment needs of a step."""
    following = state.apply(match)
    following.matches, following.cost_ms, following.xfer_mask, following.num_matches  # noqa: B018
    return following


def _search_anew(graph: Graph, rules: tuple[Rule, ...], starts: Starts) -> Sequence[Match]:
    return MatchIndex(graph, rules, starts).matches


def _of_engine(problem: Problem, step: Cost, full_match: Cost) -> list[dict[str, Any]]:
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
    problem: Problem, num_steps: int, step: Cost, growth_mib: float
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
    problem: Problem, policy_ms: Sequence[float], updates_ms: Sequence[float]
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


def _cells(one: Mapping[str, Any]) -> Sequence[str]:
    if "ratio" not in one:
        return [one["name"], f"{one['value']:.3f} {one['unit']}", "", ""]
    return [
        one["name"], f"{one['ratio']:.1f} x", f"{one['theirs_ms']:.3f}", f"{one['ours_ms']:.3f}"
    ]  # fmt: skip
