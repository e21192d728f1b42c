"""The least value for given free parameters, and a policy's distance from it (thesis, 4.2.3).

Policies are compared at the thesis's c, -1, -0.9, …, 1, by its MSE and, for Rosenbrock, its MSLE
(6.3), whose logarithm is signed here for values below 0. The thesis estimates the least values by
Monte Carlo. Here they come from a formula where there is one (`Objective.minimiser`); otherwise
`solvers.minimise` finds them.
"""

from __future__ import annotations

import hashlib
import io
import pathlib
import weakref
import zipfile
from typing import NamedTuple

import numpy as np

from environments.caches.cache import Cache
from environments.errors import UserError
from environments.learn_to_optimize import solvers
from environments.learn_to_optimize.functions import Objective, signed_log1p

# -1, -0.9, ..., 1. Division gives each float that is closest to its decimal.
_GRID = np.arange(-10, 11) / 10

_ARRAYS = ("free", "x", "values")


class Solution(NamedTuple):
    """The minima of an objective for M vectors of free parameters.

    Attributes:
      x: float64 [M, n - k], where the minima lie.
      values: float64 [M], f(x, c).
    """

    x: np.ndarray
    values: np.ndarray


class Errors(NamedTuple):
    """Mean squared errors of a policy.

    Attributes:
      mse: mean over c of (f(policy(c), c) - min f(., c))^2.
      msle: the same of `signed_log1p` of both, for functions that span orders of magnitude.
    """

    mse: float
    msle: float


# Solutions of the objectives in use, by the bytes of c.
_known: weakref.WeakKeyDictionary[Objective, dict[bytes, Solution]] = weakref.WeakKeyDictionary()


def reference_points(num_free: int, count: int = 1000) -> np.ndarray:
    """Return the c at which policies are compared: -1, -0.9, ..., 1 for each free parameter.

    If there are more combinations than `count`, so many of them are drawn, always the same ones.

    Returns:
      c float64 [M, k]; one empty c for k = 0.
    """
    combinations = len(_GRID) ** num_free
    if combinations <= count:
        axes = np.meshgrid(*[_GRID] * num_free, indexing="ij")
        return np.stack(axes, axis=-1).reshape(-1, num_free) if axes else np.zeros((1, 0))
    generator = np.random.default_rng(0)
    if combinations >= np.iinfo(np.int64).max:
        # There are too many combinations to number them. Two draws are practically never equal.
        return _GRID[generator.integers(len(_GRID), size=(count, num_free))]
    chosen = np.sort(generator.choice(combinations, count, replace=False))
    digits = chosen[:, np.newaxis] // len(_GRID) ** np.arange(num_free - 1, -1, -1) % len(_GRID)
    return _GRID[digits]


def truth(objective: Objective, free: np.ndarray, cache: Cache | None = None) -> Solution:
    """Return the least value of an objective for each c [M, k], and where it lies, read-only.

    Solutions are kept in memory, and in the cache if there is one. A kept one is solved again if
    the function gives other values there.

    Raises:
      UserError: the function fails.
    """
    points = np.ascontiguousarray(free, np.float64)
    if points.ndim != 2 or points.shape[1] != objective.num_free:
        raise ValueError(
            f"{objective.name}: expected c [M, {objective.num_free}], found {points.shape}; give "
            "each as a row"
        )
    solutions = _known.setdefault(objective, {})
    key = points.tobytes()
    if key not in solutions:
        solutions[key] = _solve(objective, points, cache)
        for array in solutions[key]:
            array.setflags(write=False)
    return solutions[key]


def values_of(objective: Objective, policy_x: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return the values [M] that a policy reaches with x [M, n - k] for c [M, k].

    Its x are clipped to the box, as actions are.

    Raises:
      UserError: the function fails, for instance because the policy's x is NaN.
    """
    tuned = np.clip(np.asarray(policy_x, np.float64), -1, 1)
    if tuned.shape != (len(free), objective.num_tuned):
        raise ValueError(
            f"{objective.name}: expected x [{len(free)}, {objective.num_tuned}], found "
            f"{tuned.shape}; give one row for each c"
        )
    return objective(objective.join(tuned, free))


def errors_of(objective: Objective, values: np.ndarray, least: np.ndarray) -> Errors:
    """Return the mean squared errors of values [M] against the least values [M].

    A value below the one that `solvers.minimise` found counts as exact.

    Raises:
      UserError: an error is too large to be squared.
    """
    reached = np.maximum(values, least)
    mse = float(mean_square(objective, reached - least))
    log_errors = signed_log1p(reached) - signed_log1p(least)
    return Errors(mse, float(np.mean(log_errors**2)))


def mean_square(objective: Objective, errors: np.ndarray) -> np.ndarray:
    """Return the mean square [...] of errors [..., M] of a function.

    Raises:
      UserError: an error is too large to be squared.
    """
    with np.errstate(over="ignore"):
        means: np.ndarray = np.mean(errors**2, axis=-1)
    if not np.isfinite(means).all():
        raise UserError(
            f"{objective.name}: expected errors whose squares are finite, found one of "
            f"{np.max(np.abs(errors)):g}; judge by values, or scale the function"
        )
    return means


def _solve(objective: Objective, free: np.ndarray, cache: Cache | None) -> Solution:
    if objective.minimiser is not None:
        x = objective.minimiser(free)
        return Solution(x, objective(objective.join(x, free)))
    if cache is None or objective.identity is None:
        return Solution(*solvers.minimise(objective, objective.num_tuned, free))
    key = _key(objective, free)
    content = cache.get(key)
    solution = None if content is None else _unpack(content, objective, free)
    if solution is None:
        solution = Solution(*solvers.minimise(objective, objective.num_tuned, free))
        cache.put(key, _pack(free, solution))
    return solution


def _key(objective: Objective, free: np.ndarray) -> str:
    """Return a hash of what decides a solution: the function, the c and the solver's source."""
    digest = hashlib.sha256(pathlib.Path(solvers.__file__).read_bytes())
    digest.update(f"{objective.identity} {free.shape}".encode())
    digest.update(free.tobytes())
    return digest.hexdigest()


def _unpack(content: bytes, objective: Objective, free: np.ndarray) -> Solution | None:
    """Return the kept solution, or None if the function does not confirm it."""
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            stored_free, x, values = (arrays[name] for name in _ARRAYS)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
    shapes = (len(free), objective.num_tuned), (len(free),)
    if not np.array_equal(stored_free, free) or (x.shape, values.shape) != shapes:
        return None
    if not (np.abs(x) <= 1).all():
        return None
    confirmed = objective(objective.join(x, free))
    return Solution(x, values) if np.allclose(confirmed, values, rtol=1e-9, atol=1e-12) else None


def _pack(free: np.ndarray, solution: Solution) -> bytes:
    packed = io.BytesIO()
    np.savez(packed, **dict(zip(_ARRAYS, (free, *solution), strict=True)))
    return packed.getvalue()
