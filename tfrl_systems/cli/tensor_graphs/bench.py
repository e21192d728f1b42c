"""`tfrl bench tensor_graphs`, once the command line is read."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import random
import shlex
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from environments.tensor_graphs.engine import Engine, State
from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.match_index import MatchIndex, Starts
from environments.tensor_graphs.matching import Match, Rule, compile_rules
from tfrl_systems.cli.console import Progress, format_table, show, show_json
from tfrl_systems.cli.tensor_graphs.problem import Problem, model_of, num_operators

_WALK = 20
_HEADER = ("benchmark", "", "full re-match ms", "ours ms")


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one step, in milliseconds of CPU time.

    Attributes:
      step_ms: a rule applied, matches, cost and masks brought up to date; median.
      slowest_ms: the same, the 95th percentile.
      full_match_ms: all matches searched anew; median.
    """

    step_ms: float
    slowest_ms: float
    full_match_ms: float


def run(options: argparse.Namespace) -> int:
    """Measures as the command line says."""
    benchmarks: list[dict[str, Any]] = []
    with Progress() as progress:
        advance = progress.task("measuring", len(options.models))
        for name in options.models:
            problem = Problem.of(name, model_of(options, name), options)
            cost = measure(problem, options.steps, options.seed)
            benchmarks += _described(problem, cost)
            advance(1)
    words = [word for name in options.models for word in ("--model", name)]
    command = shlex.join(["tfrl", "bench", "tensor_graphs", "--steps", str(options.steps), *words])
    benchmarks = [{**one, "command": command} for one in benchmarks]
    if options.json:
        show_json({"benchmarks": benchmarks})
    else:
        show(format_table(_HEADER, [_cells(one) for one in benchmarks]))
    return 0


def measure(problem: Problem, num_steps: int, seed: int) -> Cost:
    """Times steps of random walks, each beside a full re-match of the same graph.

    Args:
      problem: the model.
      num_steps: to time.
      seed: of the walks.
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
        match = chosen.choice(state.matches)
        # Once untimed: what a rule makes of tensors of new types is worked out only once.
        state.apply(match)
        taken_ms, following = _time(functools.partial(_step, state, match))
        steps_ms.append(taken_ms)
        taken_ms, _ = _time(functools.partial(_search_anew, following.graph, compiled, starts))
        full_ms.append(taken_ms)
        state = following
    if not steps_ms:
        return Cost(0.0, 0.0, 0.0)
    slowest = sorted(steps_ms)[int(0.95 * (len(steps_ms) - 1))]
    return Cost(statistics.median(steps_ms), slowest, statistics.median(full_ms))


def _step(state: State, match: Any) -> State:
    """All that an environment needs of a step."""
    following = state.apply(match)
    following.matches, following.cost_ms, following.xfer_mask, following.num_matches  # noqa: B018
    return following


def _search_anew(graph: Graph, rules: tuple[Rule, ...], starts: Starts) -> Sequence[Match]:
    return MatchIndex(graph, rules, starts).matches


def _time(function: Callable[[], Any]) -> tuple[float, Any]:
    began_s = time.process_time()
    found = function()
    return 1e3 * (time.process_time() - began_s), found


def _described(problem: Problem, cost: Cost) -> list[dict[str, Any]]:
    of = (
        f"{num_operators(problem.graph)} operators, {len(problem.rules)} rules, "
        f"{len(problem.start.matches)} matches"
    )
    return [
        {
            "name": f"engine_step_ms_{problem.name}",
            "value": cost.step_ms,
            "unit": "ms",
            "slowest_ms": cost.slowest_ms,
            "of": of,
        },
        {
            "name": f"incremental_over_full_match_{problem.name}",
            "ratio": cost.full_match_ms / cost.step_ms if cost.step_ms else 1.0,
            "against": "all matches searched anew",
            "theirs_ms": cost.full_match_ms,
            "ours_ms": cost.step_ms,
        },
    ]


def _cells(one: Mapping[str, Any]) -> Sequence[str]:
    if "ratio" not in one:
        return [one["name"], f"{one['value']:.3f} ms", "", ""]
    return [
        one["name"], f"{one['ratio']:.1f} x", f"{one['theirs_ms']:.3f}", f"{one['ours_ms']:.3f}"
    ]  # fmt: skip
