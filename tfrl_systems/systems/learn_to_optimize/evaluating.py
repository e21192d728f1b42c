"""Evaluation of learned optimisers: how near they come to the minimum of a function."""

from __future__ import annotations

import dataclasses
import pathlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from environments import files
from environments.errors import UsageError, UserError
from environments.files import is_directory
from environments.learn_to_optimize import baselines, references
from environments.learn_to_optimize.functions import Objective
from tfrl_systems.reporting import Reporter, format_table
from tfrl_systems.settings import option
from tfrl_systems.systems.learn_to_optimize import judging
from tfrl_systems.systems.learn_to_optimize.optimizer_policy import (
    OptimizerPolicy,
    load_description,
)
from tfrl_systems.systems.learn_to_optimize.problem import Function, describe

_TIMED_S = 0.2
_TIMED_CALLS = 1000

Choose = Callable[[np.ndarray], np.ndarray]
"""c [M, k] -> x [M, n - k]."""


@dataclasses.dataclass(frozen=True)
class Evaluation(Function):
    """What to evaluate on.

    Attributes:
      polish: evaluations of the function that make each answer of a learned policy better, at most;
        0 for none.
      judge: by the errors against the "truth", the least values, which are searched for; or only by
        the mean of the "values" that policies reach.
    """

    polish: int = option(0, metavar="N", minimum=0)
    judge: str = option("truth", choices=judging.JUDGES)


def evaluate_policies(
    policies: Sequence[str], request: Evaluation, seed: int, reporter: Reporter
) -> dict[str, Any]:
    """Evaluate policies, and return what `tfrl evaluate learn_to_optimize --json` prints."""
    objective = _objective(policies, request)
    chosen = [_load(name, objective, request.polish, seed) for name in policies]
    num_points = len(references.reference_points(objective.num_free))
    if request.judge == "truth" and (line := judging.announcement(objective, num_points)):
        reporter.say(line)
    rows = [
        evaluate(name, choose, objective, request.judge)
        for name, choose in zip(policies, chosen, strict=True)
    ]
    return {
        **describe(objective),
        "polish": request.polish,
        "function_evaluations": objective.evaluations.count,
        "truth_evaluations": sum(row.pop("truth_evaluations", 0) for row in rows),
        "policies": rows,
    }


def function_table(evaluation: Mapping[str, Any]) -> str:
    """Format for people how far off each policy is, and what it costs."""
    policies = evaluation["policies"]
    names = [name for name in ("cost", "mse", "msle") if name in policies[0]]
    intervals = ["regret"] if "regret" in policies[0] else []
    rows = [
        [
            policy["policy"],
            *(f"{policy[name]:.3g}" for name in names),
            *(_interval(policy) for _ in intervals),
            f"{policy['learned_from']:,}" if policy["learned_from"] else "",
            f"{policy['evaluations']:,}",
            f"{policy['microseconds_per_query']:.1f}",
        ]
        for policy in policies
    ]
    costs = ["learned from", "evaluations", "µs a query"]
    table = format_table([evaluation["function"], *names, *intervals, *costs], rows)
    return (
        f"{table}\n{evaluation['function_evaluations']:,} evaluations of the function in all, "
        f"{evaluation['truth_evaluations']:,} of them to find the least values"
    )


def _interval(policy: Mapping[str, Any]) -> str:
    low, high = policy["regret_interval"]
    return f"{policy['regret']:.3g} ({low:.2g} to {high:.2g})"


def _training_of(name: str) -> dict[str, Any]:
    """Return what a policy cost to learn, if its run is there; 0 evaluations if it is not."""
    unknown = {"learned_from": 0, "learning_seconds": 0.0}
    if not is_directory(name):
        return unknown
    try:
        result = files.read_json(pathlib.Path(name).parent / "result.json")
        spent_s = result["seconds"]
        wall_s = sum(spent_s[part] for part in ("broadcasting", "waiting", "training"))
        return {"learned_from": result.get("function_evaluations", 0), "learning_seconds": wall_s}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return unknown


def evaluate(name: str, choose: Choose, objective: Objective, judge: str) -> dict[str, Any]:
    """Measure one policy: its figures in `evaluate_policies`, those of `judging.judge` among them.

    `evaluations` are those that its answers took, `learned_from` those that it was learned from;
    `microseconds_per_query` is the median wall time of one answer.
    """
    free = references.reference_points(objective.num_free)
    before, began_s = objective.evaluations.count, time.perf_counter()
    x = choose(free)
    microseconds = 1e6 * (time.perf_counter() - began_s) / len(free)
    evaluations = objective.evaluations.count - before
    if not evaluations:  # answers are cheap: time more of them
        microseconds = _microseconds(choose, free)
    figures = judging.judge(objective, x, free, judge)
    del figures["function_evaluations"]
    return {
        "policy": name,
        **figures,
        **_training_of(name),
        "evaluations": evaluations,
        "microseconds_per_query": microseconds,
    }


def _microseconds(choose: Choose, free: np.ndarray) -> float:
    spent_s: list[float] = []
    began_s = time.perf_counter()
    while len(spent_s) < _TIMED_CALLS and time.perf_counter() - began_s < _TIMED_S:
        row = free[len(spent_s) % len(free)][np.newaxis]
        started_s = time.perf_counter()
        choose(row)
        spent_s.append(time.perf_counter() - started_s)
    return 1e6 * statistics.median(spent_s)


def _load(name: str, objective: Objective, polish: int, seed: int) -> Choose:
    if name in baselines.NAMES and not is_directory(name):
        return baselines.make_baseline(name, objective, seed=seed)
    policy = OptimizerPolicy.load(name, polish=polish, function=objective if polish else None)
    about = load_description(name)
    for field, size in (("dimensions", objective.dimensions), ("free", objective.num_free)):
        if about[field] != size:
            raise UserError(
                f"{name}: expected a policy for {field} = {size}, found one for {about[field]}; "
                f"evaluate it with the function that it was trained on, {about['function']}"
            )
    return policy


def _objective(policies: Sequence[str], request: Function) -> Objective:
    """Return the function that was asked for, else the one that the first policy was trained on.

    Raises:
      UserError: that one is not what it was when the policy learned, or cannot be used.
    """
    if request.function is not None:
        return request.make_objective()
    directories = [
        policy for policy in policies if policy not in baselines.NAMES or is_directory(policy)
    ]
    if not directories:
        raise UsageError(
            "evaluate learn_to_optimize: expected --function, found only named policies"
        )
    about = load_description(directories[0])
    if str(about.get("function", "")).startswith("log:"):
        raise UserError(
            f"{directories[0]}: expected a function to evaluate, found a policy that was learned "
            "from a log alone; give --function, --dimensions and --free, or see answers.csv"
        )
    needed = {"function": str, "dimensions": int, "free": int}
    wrong = [name for name, kind in needed.items() if type(about.get(name)) is not kind]
    bounds = about.get("bounds")
    if wrong or not isinstance(bounds, dict | list | None):
        raise UserError(
            f"{directories[0]}: expected a policy that names its function, found "
            f"{' and '.join(wrong or ['bounds'])} missing or wrong; give --function, or export the "
            "policy again"
        )
    named = {name: about[name] for name in needed}
    objective = Function(**named, bounds=bounds).make_objective()
    if about.get("source_sha256") not in (None, objective.source_sha256):
        raise UserError(
            f"{directories[0]}: expected {objective.name} as it was when the policy learned, found "
            f"that its source has changed; to judge the policy by what it is now, add --function "
            f"{objective.name}"
        )
    return objective
