"""Evaluation of learned optimisers: how near they come to the minimum of a function."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from environments.caches.table import MINIMA
from environments.errors import UsageError, UserError
from environments.files import is_directory
from environments.learn_to_optimize import baselines, references
from environments.learn_to_optimize.functions import Objective
from tfrl_systems.experiments.settings import option
from tfrl_systems.experiments.systems.learn_to_optimize.problem import Function
from tfrl_systems.policies.optimizer_policy import OptimizerPolicy
from tfrl_systems.policies.policy_files import load_policy_json

_TIMED_S = 0.2
_TIMED_CALLS = 1000

Choose = Callable[[np.ndarray], np.ndarray]
"""c [M, k] -> x [M, n - k]."""


@dataclasses.dataclass(frozen=True)
class Evaluated:
    """The errors of a policy at the reference points, and its speed.

    Attributes:
      policy: the policy, as the user named it.
      mse: mean squared difference between the policy's values and the minima.
      msle: mean squared difference of their signed logarithms.
      microseconds_per_query: median wall time of one answer.
    """

    policy: str
    mse: float
    msle: float
    microseconds_per_query: float


@dataclasses.dataclass(frozen=True)
class Evaluation(Function):
    """What to evaluate on.

    Attributes:
      polish: evaluations of the function that make each answer of a learned policy better, at most;
        0 for none.
    """

    polish: int = option(0, metavar="N", minimum=0)


def evaluate_policies(policies: Sequence[str], asked: Evaluation, seed: int) -> dict[str, Any]:
    """Evaluate policies, and return what `tfrl evaluate learn_to_optimize --json` prints."""
    function = _function(policies, asked)
    chosen = [_load(name, function, asked.polish, seed) for name in policies]
    found = [
        evaluate(name, choose, function.objective)
        for name, choose in zip(policies, chosen, strict=True)
    ]
    about = {**function.describe(), "polish": asked.polish}
    return {**about, "policies": [dataclasses.asdict(one) for one in found]}


def evaluate(name: str, choose: Choose, objective: Objective) -> Evaluated:
    """Measure one policy.

    Args:
      name: name of the policy, for the table.
      choose: the policy.
      objective: the function that the policy minimises.
    """
    free = references.reference_points(objective.num_free)
    errors = references.errors(objective, choose(free), free, MINIMA.files())
    return Evaluated(name, errors.mse, errors.msle, _microseconds(choose, free))


def _microseconds(choose: Choose, free: np.ndarray) -> float:
    spent_s: list[float] = []
    began_s = time.perf_counter()
    while len(spent_s) < _TIMED_CALLS and time.perf_counter() - began_s < _TIMED_S:
        given = free[len(spent_s) % len(free)][np.newaxis]
        started_s = time.perf_counter()
        choose(given)
        spent_s.append(time.perf_counter() - started_s)
    return 1e6 * statistics.median(spent_s)


def _load(name: str, function: Function, polish: int, seed: int) -> Choose:
    if name in baselines.NAMES and not is_directory(name):
        return baselines.make_baseline(name, function.objective, seed=seed)
    policy = OptimizerPolicy.load(
        name, polish=polish, function=function.objective if polish else None
    )
    about = load_policy_json(name)
    for field in ("dimensions", "free"):
        if about[field] != getattr(function, field):
            raise UserError(
                f"{name}: expected a policy for {field} = {getattr(function, field)}, found one "
                f"for {about[field]}; evaluate it with the function that it was trained on, "
                f"{about['function']}"
            )
    return policy


def _function(policies: Sequence[str], asked: Function) -> Function:
    """Return the function that was asked for, else the one that the first policy was trained on."""
    if asked.function is not None:
        return asked
    directories = [one for one in policies if one not in baselines.NAMES or is_directory(one)]
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
    needed = {"function": str, "dimensions": int, "free": int}
    wrong = [name for name, kind in needed.items() if type(about.get(name)) is not kind]
    given = about.get("bounds")
    if wrong or not (given is None or (isinstance(given, list) and len(given) == 2)):
        raise UserError(
            f"{directories[0]}: expected a policy that names its function, found "
            f"{' and '.join(wrong or ['bounds'])} missing or wrong; give --function, or export the "
            "policy again"
        )
    bounds = tuple(given) if given is not None else None
    return Function(
        function=about["function"],
        dimensions=about["dimensions"],
        free=about["free"],
        bounds=bounds,
    )
