"""A user's own function: loads `module:callable`, and reports each fault in one line.

The callable is vectorised over rows. It gets points float64 [N, n] of its own domain, x first and
the free parameters c last. It returns their values [N], finite numbers::

    # mine.py, on the path of Python or in the current directory
    import numpy as np

    def cost(points):
        x, y, temperature = points.T
        return (x - np.sin(temperature)) ** 2 + y**2

    cost.bounds = (-5, 5)    # or [(-5, 5), (-5, 5), (0, 3)]; without it (-1, 1)

Its values must depend on the points alone, because they are compared with each other and stored.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
import pathlib
import sys
import threading
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

import numpy as np

from environments.errors import UserError, one_line
from environments.learn_to_optimize import sources

Domain = tuple[np.ndarray, np.ndarray]
"""low and high, float64 [n] each."""

# Of each module: how it was found when it was first loaded here, and the digest then.
_imported: dict[str, tuple[Any, str | None]] = {}


class Evaluations:
    """Counts evaluations of a function in this process, by any number of threads.

    A copy that is sent to another process begins at 0.

    Attributes:
      count: evaluations so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def add(self, number: int) -> None:
        """Count some more."""
        with self._lock:
            self.count += number

    def __reduce__(self) -> tuple[type[Evaluations], tuple[Any, ...]]:
        """Leave the count and the lock at home."""
        return Evaluations, ()


@dataclasses.dataclass(frozen=True)
class Loaded:
    """A user's function as it was imported.

    Attributes:
      name: `module:callable`.
      function: maps points [N, n] of its own domain to values [N].
      source_sha256: digest of its source (`sources.digest`); None if there is none to read.
    """

    name: str
    function: Callable[[np.ndarray], Any]
    source_sha256: str | None


def load(name: str) -> Loaded:
    """Import the function that `module:callable` names.

    The module is looked up on the path of Python, then in the current directory, which stays on
    the path from then on.

    Raises:
      UserError: there is no such module or callable, or the module cannot be imported.
    """
    module_name, _, path = name.partition(":")
    if module_name.endswith(".py"):
        raise UserError(
            f"function: expected module:callable, such as mine:cost, found {name!r}; name the "
            "module without .py, from the directory that it is in"
        )
    if not all(part.isidentifier() for part in (*module_name.split("."), *path.split("."))):
        raise UserError(
            f"function: expected module:callable, such as mine:cost, found {name!r}; correct the "
            "name"
        )
    module = _import(name, module_name)
    try:
        function = functools.reduce(getattr, path.split("."), module)
    except AttributeError:
        if module_name == sources.MAIN:
            raise UserError(
                f"{name}: expected {path} in this notebook or script, found none; run the cell "
                "that defines it, or put it into a module and name that"
            ) from None
        names = ", ".join(_callables(module)) or "no callables"
        raise UserError(
            f"{name}: expected {path} in {module.__file__}, found {names}; correct the name"
        ) from None
    if not callable(function):
        raise UserError(
            f"{name}: expected a callable, found {type(function).__name__}; name a function of "
            "rows of points [N, n]"
        )
    return Loaded(name, function, _digest(name, function, module))


def domain(loaded: Loaded, dimensions: int, bounds: Any = None) -> Domain:
    """Return the bounds of a domain; without any, its attribute `bounds`, or (-1, 1).

    Raises:
      UserError: they are not bounds of n dimensions.
    """
    try:
        named = getattr(loaded.function, "bounds", (-1, 1)) if bounds is None else bounds
    except Exception as error:
        raise UserError(
            f"{loaded.name}: expected its attribute bounds, found {one_line(error)}; correct it"
        ) from error
    return read_bounds(loaded.name, dimensions, named)


def read_bounds(name: str, dimensions: int, bounds: Any) -> Domain:
    """Return the bounds of a function's domain, in each of the forms that people write.

    Args:
      name: the function, for messages.
      dimensions: n.
      bounds: (low, high), each a number or n numbers; or scipy's forms: n pairs (low, high), or
        `scipy.optimize.Bounds`; or {"low": …, "high": …}.

    Raises:
      UserError: they are not bounds of n dimensions, or could be meant in two ways.
    """
    if isinstance(bounds, Mapping):
        readings = [_domain(bounds.get("low"), bounds.get("high"), dimensions)]
    elif hasattr(bounds, "lb") and hasattr(bounds, "ub"):
        readings = [_domain(bounds.lb, bounds.ub, dimensions)]
    else:
        readings = [_sides(bounds, dimensions), _pairs(bounds, dimensions)]
    domains = [domain for domain in readings if domain is not None]
    if not domains:
        raise UserError(
            f"{name}: expected bounds (low, high), each a finite number or {dimensions} of them, "
            f"low below high, or {dimensions} pairs of them, found {bounds!r}; correct them"
        )
    if len(domains) == 2 and not np.array_equal(domains[0], domains[1]):
        raise UserError(
            f"{name}: expected bounds that can be read in one way, found {bounds!r}, which may be "
            "(low, high) or two pairs; write scipy.optimize.Bounds(low, high)"
        )
    return domains[0]


def guard(
    loaded: Loaded,
    low: np.ndarray,
    high: np.ndarray,
    num_tuned: int,
    evaluations: Evaluations,
) -> Callable[[np.ndarray], np.ndarray]:
    """Wrap a function so that it takes points of the box, and its errors name a point.

    Args:
      loaded: the function.
      low: float64 [n], the point of its domain that -1 stands for.
      high: float64 [n], the same for 1.
      num_tuned: n - k, to name the parts of a point in messages.
      evaluations: counts the points that finding a fault takes.

    Returns:
      A function from rows float64 [N, n] of [-1, 1]^n, N >= 1, to float64 [N], finite or not. It
      raises UserError if the user's function raises, or does not return N real numbers.
    """

    def function(rows: np.ndarray) -> np.ndarray:
        points = to_domain(rows, low, high)
        try:
            # The function gets a copy, because it may work in place.
            returned = loaded.function(points.copy())
        except (Exception, SystemExit) as error:
            row, fault = _find_fault(loaded, points, error, evaluations)
            where = describe(points[row], num_tuned)
            raise UserError(
                f"{loaded.name}: expected a value at {where}, found {one_line(fault)}; correct "
                "the function there, or its bounds"
            ) from error
        values = _as_numbers(returned)
        if values is None or values.shape != (len(points),):
            raise UserError(
                f"{loaded.name}: expected {len(points)} numbers, shape ({len(points)},), for "
                f"points {points.shape} beginning with {describe(points[0], num_tuned)}, found "
                f"{_kind(returned)}; return one value for each row"
            )
        return values

    return function


def to_domain(points: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Map points of the box [-1, 1]^n to a function's own domain; -1 is exactly low, and 1 high."""
    return (low * (1 - points) + high * (1 + points)) / 2


def describe(point: np.ndarray, num_tuned: int) -> str:
    """Return a point [n] as readable text: x = (0.5, 2), c = (-1)."""
    parts = {"x": point[:num_tuned], "c": point[num_tuned:]}
    return ", ".join(
        f"{name} = ({', '.join(f'{value:.6g}' for value in part)})"
        for name, part in parts.items()
        if len(part)
    )


def _import(name: str, module_name: str) -> ModuleType:
    here = str(pathlib.Path.cwd())
    if not {"", here} & set(sys.path):
        sys.path.append(here)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise UserError(
                f"{name}: expected all that {module_name} imports, found no {error.name}; "
                "install it"
            ) from error
        raise UserError(
            f"{name}: expected a module {module_name} on the path of Python or in {here}, found "
            f"none; run from the directory of {module_name.split('.')[0]}.py, or add that to "
            "PYTHONPATH"
        ) from error
    except (Exception, SystemExit) as error:
        raise UserError(
            f"{name}: expected to import {module_name}, found {one_line(error)}; correct it"
        ) from error


def _digest(name: str, function: Callable[..., Any], module: ModuleType) -> str | None:
    """Return the digest of a function's source, which must be what was imported.

    Raises:
      UserError: the source was edited after this process had imported it.
    """
    digest = sources.digest(function, module)
    if module.__name__ == sources.MAIN:
        return digest  # cells that were run again are what they say now
    # A module that is reloaded gets another spec.
    spec, first = _imported.get(module.__name__, (None, None))
    if spec is not None and spec is module.__spec__ and digest != first:
        raise UserError(
            f"{name}: expected the source that was imported, found that it was edited since; "
            f"reload it (importlib.reload), or start Python again"
        )
    _imported[module.__name__] = (module.__spec__, digest)
    return digest


def _callables(module: ModuleType) -> list[str]:
    """Return the names of the public callables that a module defines itself."""
    return sorted(
        name
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
    )


def _find_fault(
    loaded: Loaded, points: np.ndarray, error: BaseException, evaluations: Evaluations
) -> tuple[int, BaseException]:
    """Find, by halving, the fewest rows that make the function fail: the first, and its error."""
    first, count = 0, len(points)
    while count > 1:
        half = count // 2
        for start, size in ((first, half), (first + half, count - half)):
            evaluations.add(size)
            try:
                loaded.function(points[start : start + size].copy())
            except (Exception, SystemExit) as smaller:
                first, count, error = start, size, smaller
                break
        else:
            break
    return first, error


def _as_numbers(returned: Any) -> np.ndarray | None:
    """Return the values as float64, or None if they are not an array of real numbers."""
    try:
        values = np.asarray(returned)
    except ValueError:
        return None
    return values.astype(np.float64) if values.dtype.kind in "biuf" else None


def _kind(returned: Any) -> str:
    try:
        values = np.asarray(returned)
    except ValueError:
        return f"a {type(returned).__name__} of unequal parts"
    if values.dtype.kind in "biuf":
        return f"shape {values.shape}"
    name = type(returned).__name__
    return name if values.dtype.kind == "O" and not values.shape else f"{name} of {values.dtype}"


def _sides(bounds: Any, dimensions: int) -> Domain | None:
    try:
        low, high = bounds
    except (TypeError, ValueError):
        return None
    return _domain(low, high, dimensions)


def _pairs(bounds: Any, dimensions: int) -> Domain | None:
    try:
        pairs = np.array(bounds, np.float64)
    except (TypeError, ValueError):
        return None
    return _domain(pairs[:, 0], pairs[:, 1], dimensions) if pairs.shape == (dimensions, 2) else None


def _domain(low: Any, high: Any, dimensions: int) -> Domain | None:
    """Return low and high for each coordinate; None if they are no bounds."""
    try:
        sides = [np.array(side, np.float64) for side in (low, high)]
        low, high = (np.broadcast_to(side, (dimensions,)).copy() for side in sides)
    except (TypeError, ValueError):
        return None
    is_valid = np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()
    return (low, high) if is_valid else None
