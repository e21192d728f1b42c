"""The baselines that learned optimisers are compared with, measured at the same points.

They are those of `environments.learn_to_optimize.baselines`, and "supervised": a network as large
as the learned policy's, fitted by least squares to the true minima of random c. It is shown the
minima, which the learned policies have to find.
"""

from __future__ import annotations

import functools
import time
import warnings
from typing import Any

import numpy as np

from environments.caches.table import MINIMA
from environments.learn_to_optimize import baselines, references
from environments.learn_to_optimize.functions import Objective, make_objective
from tfrl_systems.systems.learn_to_optimize.evaluating import evaluate
from tools.benchmarks.shared import kept
from tools.benchmarks.thesis_cases import Case, Run
from tools.benchmarks.thesis_measurements import Benchmark

SUPERVISED = "supervised"
_EXAMPLES = 1000
_MAX_STEPS = 5000


def names_of(case: Case) -> tuple[str, ...]:
    """Return the names of the baselines of a case."""
    names = ("constant", "random", SUPERVISED, "scipy")
    return (*names, "cma") if case.dimensions - case.free > 1 else names


def depends_on_chance(name: str) -> bool:
    """Return whether a baseline is random, so that it must be measured with every seed."""
    return name in ("random", SUPERVISED)


def measure(benchmark: Benchmark, agent: str, case: Case, name: str, seed: int) -> dict[str, Any]:
    """Return the record of one baseline; measure it if no record is kept.

    Args:
      benchmark: directory and settings.
      agent: name of the agent; the supervised network is as large as this agent's.
      case: the function to minimise.
      name: name of the baseline.
      seed: seed of everything random.
    """
    run = Run("quality", agent, case, "random", seed)
    hidden_sizes = list(benchmark.plan(run).settings["agent"].hidden_sizes)
    settings = {"name": name, "seed": seed, "hidden_sizes": hidden_sizes}
    path = benchmark.output / "baselines" / f"{case.slug}-{name}-seed-{seed}.json"
    return kept(path, settings, functools.partial(_measure, case, name, seed, hidden_sizes))


def _measure(case: Case, name: str, seed: int, hidden_sizes: list[int]) -> dict[str, Any]:
    objective = make_objective(case.function, case.dimensions, case.free)
    began_s = time.perf_counter()
    if name == SUPERVISED:
        choose = fit(objective, seed, hidden_sizes)
    else:
        choose = baselines.make_baseline(name, objective, case.measure, seed)
    made_s = time.perf_counter() - began_s
    found = evaluate(name, choose, objective, "truth")
    return {
        "agent": name,
        "function": case.function,
        "dimensions": case.dimensions,
        "free": case.free,
        "seed": seed,
        "mse": found["mse"],
        "msle": found["msle"],
        "microseconds_per_query": found["microseconds_per_query"],
        "seconds_to_make": made_s,
    }


def fit(objective: Objective, seed: int, hidden_sizes: list[int]) -> baselines.Baseline:
    """Fit a network to the true minima of 1,000 uniform c."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.neural_network import MLPRegressor

    free = np.random.default_rng(seed).uniform(-1, 1, (_EXAMPLES, objective.num_free))
    minima = references.truth(objective, free, MINIMA.open()).x
    network = MLPRegressor(
        hidden_layer_sizes=hidden_sizes,
        activation="tanh",
        solver="lbfgs",
        alpha=0.0,
        max_iter=_MAX_STEPS,
        max_fun=_MAX_STEPS,
        tol=1e-10,
        random_state=seed,
    )
    with warnings.catch_warnings():
        # The fit stops at its limit of steps, when its errors are too small to show in the table.
        warnings.simplefilter("ignore", ConvergenceWarning)
        network.fit(free, minima[:, 0] if minima.shape[1] == 1 else minima)
    return lambda given: network.predict(given).reshape(len(given), -1)
