"""What is best for given free parameters, and how far a policy is from it (thesis, 4.2.3).

The thesis estimates the least values by Monte Carlo; here they are exact where they are known
(`Objective.minimiser`), and found by `solvers.minimise` elsewhere.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import weakref
import zipfile
from typing import NamedTuple

import numpy as np

from environments.errors import UserError
from environments.learn_to_optimize import solvers
from environments.learn_to_optimize.functions import Objective, signed_log1p

# {-1, -0.9, ..., 1}, each as its decimal is written.
_GRID = np.arange(-10, 11) / 10

_ARRAYS = ("free", "x", "values")


class Solution(NamedTuple):
    """The minimum of an objective for each of M free parameters.

    Attributes:
      x: float64 [M, n - k].
      values: f(x, c) float64 [M].
    """

    x: np.ndarray
    values: np.ndarray


class Errors(NamedTuple):
    """Mean squared errors of a policy.

    Attributes:
      mse: mean over c of (f(policy(c), c) - min f(., c))^2.
      msle: the same of L(f), L(v) = sign(v) log(1 + |v|), for functions of several orders of
        magnitude.
    """

    mse: float
    msle: float


# Solutions of objectives that are in use, by the bytes of c.
_known: weakref.WeakKeyDictionary[Objective, dict[bytes, Solution]] = weakref.WeakKeyDictionary()


def reference_points(num_free: int, count: int = 1000) -> np.ndarray:
    """The c at which policies are compared: {-1, -0.9, ..., 1} for each free parameter.

    Args:
      num_free: k.
      count: where there are more combinations, so many of them, drawn without repetition, always
        the same ones.

    Returns:
      c float64 [M, k]; one empty c for k = 0.
    """
    combinations = len(_GRID) ** num_free
    if combinations <= count:
        axes = np.meshgrid(*[_GRID] * num_free, indexing="ij")
        return np.stack(axes, axis=-1).reshape(-1, num_free) if axes else np.zeros((1, 0))
    generator = np.random.default_rng(0)
    if combinations >= np.iinfo(np.int64).max:
        # Too many to be numbered, and for two of them to be the same.
        return _GRID[generator.integers(len(_GRID), size=(count, num_free))]
    chosen = np.sort(generator.choice(combinations, count, replace=False))
    digits = chosen[:, np.newaxis] // len(_GRID) ** np.arange(num_free - 1, -1, -1) % len(_GRID)
    return _GRID[digits]


def truth(
    objective: Objective, free: np.ndarray, directory: pathlib.Path | None = None
) -> Solution:
    """The least value of an objective for each c, and where it lies.

    Args:
      objective: the function.
      free: c, [M, k].
      directory: where solutions are kept, made if it is missing; None to keep them in memory only.
        Kept ones that the function does not confirm, because it has changed, are solved anew.

    Raises:
      UserError: the function fails, or the directory cannot be written.
    """
    points = np.ascontiguousarray(free, np.float64)
    if points.ndim != 2 or points.shape[1] != objective.num_free:
        raise ValueError(
            f"{objective.name}: expected c [M, {objective.num_free}], found {points.shape}; give "
            "each as a row"
        )
    known = _known.setdefault(objective, {})
    key = points.tobytes()
    if key not in known:
        known[key] = _solve(objective, points, directory)
        for array in known[key]:
            array.setflags(write=False)
    return known[key]


def errors(
    objective: Objective,
    policy_x: np.ndarray,
    free: np.ndarray,
    directory: pathlib.Path | None = None,
) -> Errors:
    """How far a policy is from the truth.

    A value below the truth, found where `solvers.minimise` found none as low, counts as exact.

    Args:
      objective: the function.
      policy_x: the policy's x for each c, [M, n - k]; clipped to the box, as actions are.
      free: c, [M, k].
      directory: of `truth`.

    Raises:
      UserError: the function fails, for instance because the policy's x is NaN.
    """
    best = truth(objective, free, directory).values
    tuned = np.clip(np.asarray(policy_x, np.float64), -1, 1)
    if tuned.shape != (len(best), objective.num_tuned):
        raise ValueError(
            f"{objective.name}: expected x [{len(best)}, {objective.num_tuned}], found "
            f"{tuned.shape}; give one row for each c"
        )
    values = np.maximum(objective(objective.join(tuned, free)), best)
    log_errors = signed_log1p(values) - signed_log1p(best)
    return Errors(float(np.mean((values - best) ** 2)), float(np.mean(log_errors**2)))


def _solve(objective: Objective, free: np.ndarray, directory: pathlib.Path | None) -> Solution:
    if objective.minimiser is not None:
        x = objective.minimiser(free)
        return Solution(x, objective(objective.join(x, free)))
    if directory is None or objective.identity is None:
        return Solution(*solvers.minimise(objective, objective.num_tuned, free))
    path = directory / f"{_key(objective, free)}.npz"
    solution = _read(path, objective, free)
    if solution is None:
        solution = Solution(*solvers.minimise(objective, objective.num_tuned, free))
        _write(path, free, solution)
    return solution


def _key(objective: Objective, free: np.ndarray) -> str:
    """Hash of all that decides a solution: the function, the c, and how it is found."""
    digest = hashlib.sha256(pathlib.Path(solvers.__file__).read_bytes())
    digest.update(f"{objective.identity} {free.shape}".encode())
    digest.update(free.tobytes())
    return digest.hexdigest()


def _read(path: pathlib.Path, objective: Objective, free: np.ndarray) -> Solution | None:
    """The solution that is kept there, or None if there is none that holds."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            kept, x, values = (arrays[name] for name in _ARRAYS)
    except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile):
        return None
    shapes = (len(free), objective.num_tuned), (len(free),)
    if not np.array_equal(kept, free) or (x.shape, values.shape) != shapes:
        return None
    if not (np.abs(x) <= 1).all():
        return None
    found = objective(objective.join(x, free))
    return Solution(x, values) if np.allclose(found, values, rtol=1e-9, atol=1e-12) else None


def _write(path: pathlib.Path, free: np.ndarray, solution: Solution) -> None:
    # Of its own for each process, so that two that solve the same do not write into one file.
    temporary = path.with_name(f"{path.stem}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with temporary.open("wb") as file:
            np.savez(file, **dict(zip(_ARRAYS, (free, *solution), strict=True)))
        temporary.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise UserError(
            f"references: expected to write {path}, found: {error}; free some space or name "
            "another directory"
        ) from error
