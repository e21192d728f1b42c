"""`tfrl evaluate learn_to_optimize`, once the command line is read."""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from environments.errors import UserError
from environments.learn_to_optimize import baselines, references
from environments.learn_to_optimize.functions import Objective
from tfrl_systems.cli import options as shared
from tfrl_systems.cli.console import UsageError, format_table, show, show_json
from tfrl_systems.cli.learn_to_optimize.problem import Problem
from tfrl_systems.policies.optimizer_policy import OptimizerPolicy
from tfrl_systems.policies.policy_files import load_policy_json

_TIMED_S = 0.2
_TIMED_CALLS = 1000

Choose = Callable[[np.ndarray], np.ndarray]
"""c [M, k] -> x [M, n - k]."""


@dataclasses.dataclass(frozen=True)
class Evaluation:
    """A policy at the reference points.

    Attributes:
      policy: as it was named.
      mse: mean squared error of its values.
      msle: mean squared error of their logarithms.
      microseconds_per_query: median time of one answer, of wall time.
    """

    policy: str
    mse: float
    msle: float
    microseconds_per_query: float


def run(options: argparse.Namespace) -> int:
    """Evaluates as the command line says."""
    problem = _problem(options)
    evaluations = [
        evaluate(name, _load(name, problem, options.seed), problem.objective)
        for name in options.policies
    ]
    if options.json:
        policies = [dataclasses.asdict(one) for one in evaluations]
        show_json({**problem.describe(), "policies": policies})
        return 0
    rows = [
        [one.policy, f"{one.mse:.3g}", f"{one.msle:.3g}", f"{one.microseconds_per_query:.1f}"]
        for one in evaluations
    ]
    show(format_table([problem.function, "mse", "msle", "µs a query"], rows))
    return 0


def evaluate(name: str, choose: Choose, objective: Objective) -> Evaluation:
    """Measures one policy.

    Args:
      name: of the policy, for the table.
      choose: the policy.
      objective: what it minimises.
    """
    free = references.reference_points(objective.num_free)
    errors = references.errors(objective, choose(free), free, truth_cache())
    return Evaluation(name, errors.mse, errors.msle, _microseconds(choose, free))


def truth_cache() -> pathlib.Path:
    """Where the minima of functions are kept."""
    return shared.default_cache().parent / "minima"


def _microseconds(choose: Choose, free: np.ndarray) -> float:
    spent_s: list[float] = []
    began_s = time.perf_counter()
    while len(spent_s) < _TIMED_CALLS and time.perf_counter() - began_s < _TIMED_S:
        given = free[len(spent_s) % len(free)][np.newaxis]
        started_s = time.perf_counter()
        choose(given)
        spent_s.append(time.perf_counter() - started_s)
    return 1e6 * statistics.median(spent_s)


def _load(name: str, problem: Problem, seed: int) -> Choose:
    if name in baselines.NAMES and not pathlib.Path(name).is_dir():
        return baselines.make_baseline(name, problem.objective, seed=seed)
    policy = OptimizerPolicy.load(name)
    about = load_policy_json(name)
    for field in ("dimensions", "free"):
        if about[field] != getattr(problem, field):
            raise UserError(
                f"{name}: expected a policy for {field} = {getattr(problem, field)}, found one for "
                f"{about[field]}; evaluate it with the function that it was trained on, "
                f"{about['function']}"
            )
    return policy


def _problem(options: argparse.Namespace) -> Problem:
    """What the command line names, or what the first policy was trained on."""
    directories = _directories(options.policies)
    if options.function is not None:
        return Problem.of(options)
    if not directories:
        raise UsageError(
            "evaluate learn_to_optimize: expected --function, found only named policies"
        )
    about = load_policy_json(directories[0])
    if about.get("environment") != "learn_to_optimize":
        raise UserError(
            f"{directories[0]}: expected a policy of learn_to_optimize, found one of "
            f"{about.get('environment')}; name another"
        )
    bounds = tuple(about["bounds"]) if about["bounds"] else None
    return Problem(about["function"], about["dimensions"], about["free"], bounds)


def _directories(policies: Sequence[str]) -> list[Any]:
    return [one for one in policies if one not in baselines.NAMES or pathlib.Path(one).is_dir()]
