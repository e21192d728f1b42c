"""Baselines to compare a learned policy with: they choose x for each c without learning.

random    a uniform x
constant  the single x that is best over all c of `references.reference_points`; a policy that is no
          better has not learned to use c
scipy     minimises for each c from the centre of the box: minimize_scalar (bounded) for one tuned
          coordinate, L-BFGS-B for more. Fast, but local minima trap it
cma       minimises for each c by CMA-ES with restarts: slow, but hard to beat in many dimensions.
          Needs two tuned coordinates or more, and the extra `cma`
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from environments.errors import UserError
from environments.learn_to_optimize import references, solvers
from environments.learn_to_optimize.descent import descend
from environments.learn_to_optimize.functions import Objective

NAMES = ("random", "constant", "scipy", "cma")

# Maps c [M, k] to x [M, n - k] in the box.
Baseline = Callable[[np.ndarray], np.ndarray]

_CMA_RESTARTS = 2
# The best constant is sought with about this many of the reference c.
_SEARCH_POINTS = 100
# The most rows in one call of the function.
_MAX_ROWS = 1 << 17


def make_baseline(name: str, objective: Objective, seed: int = 0) -> Baseline:
    """Make a baseline by its name, which minimises the objective.

    Raises:
      UserError: no baseline has that name, or "cma" does not fit this objective or is not
        installed.
    """
    if name not in NAMES:
        raise UserError(
            f"baseline: expected one of {', '.join(NAMES)}, found {name!r}; correct the name"
        )
    if name == "random":
        generator = np.random.default_rng(seed)
        return lambda free: generator.uniform(-1, 1, (len(free), objective.num_tuned))
    if name == "constant":
        best = best_constant(objective)
        return lambda free: np.tile(best, (len(free), 1))
    if name == "cma":
        _check_cma(objective)
    solve = _solve_by_scipy if name == "scipy" else _solve_by_cma
    return lambda free: np.stack([solve(objective, c, seed) for c in free])


def best_constant(objective: Objective) -> np.ndarray:
    """Return the constant x [n - k] with the least mean squared error at the reference points."""
    free = references.reference_points(objective.num_free)
    best = references.truth(objective, free).values
    # A part of the c is enough to find the valley; the exact minimum takes all of them.
    some = slice(None, None, -(-len(free) // _SEARCH_POINTS))
    rough = _error_of_constants(objective, free[some], best[some])
    x, _ = solvers.minimise(rough, objective.num_tuned, np.zeros((1, 0)))
    exact = _error_of_constants(objective, free, best)
    return descend(lambda _, points: exact(points[0])[np.newaxis], x)[0]


def _error_of_constants(
    objective: Objective, free: np.ndarray, best: np.ndarray
) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function from rows x [N, n - k] to the mean squared error [N] of each over all c."""

    def errors_of(rows: np.ndarray) -> np.ndarray:
        points = objective.join(rows[:, np.newaxis], free[np.newaxis])
        values = objective(points.reshape(-1, objective.dimensions)).reshape(len(rows), -1)
        return references.mean_square(objective, values - best)

    size = max(1, _MAX_ROWS // len(free))
    return lambda rows: np.concatenate(
        [errors_of(rows[first : first + size]) for first in range(0, len(rows), size)]
    )


def _solve_by_scipy(objective: Objective, c: np.ndarray, seed: int) -> np.ndarray:
    from scipy import optimize

    def value(x: np.ndarray) -> float:
        return float(objective(np.append(x, c)[np.newaxis])[0])

    if objective.num_tuned == 1:
        solution = optimize.minimize_scalar(value, bounds=(-1, 1), method="bounded")
        return np.array([solution.x])
    centre, bounds = np.zeros(objective.num_tuned), [(-1, 1)] * objective.num_tuned
    solution = optimize.minimize(value, centre, method="L-BFGS-B", bounds=bounds)
    return np.clip(solution.x, -1, 1)


def _check_cma(objective: Objective) -> None:
    try:
        import cma  # noqa: F401
    except ImportError as error:
        raise UserError(
            "cma: expected the package cma, found none; install it with: "
            "pip install 'tfrl-systems[cma]'"
        ) from error
    if objective.num_tuned < 2:
        raise UserError(
            f"cma: expected 2 tuned coordinates or more, found {objective.num_tuned}; take scipy "
            "for one"
        )


def _solve_by_cma(objective: Objective, c: np.ndarray, seed: int) -> np.ndarray:
    import cma

    def values(points: list[np.ndarray]) -> list[float]:
        return objective(objective.join(np.asarray(points), c)).tolist()

    # cma takes the seed 0 to mean the clock.
    options = {"bounds": [-1, 1], "seed": seed + 1, "verbose": -9, "verb_log": 0}
    x, _ = cma.fmin2(
        None,
        np.zeros(objective.num_tuned),
        0.5,
        options,
        restarts=_CMA_RESTARTS,
        bipop=True,
        parallel_objective=values,
    )
    return np.clip(x, -1, 1)
