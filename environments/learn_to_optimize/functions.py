"""Functions to minimise, normalised to the box [-1, 1]^n.

A function has n coordinates. The first n - k are tuned. The last k are free parameters, which are
given and cannot be chosen (a temperature, a load): f(x_1, ..., x_{n-k}, c_1, ..., c_k), as in eq.
3.2 of Paul Mayer's thesis (Distributed Deep Reinforcement Learning for Learn-To-Optimize,
Stuttgart, 2023). The task is to find, for each c, the x with the least value.

Three functions of the thesis (4.2.1), for any n. With z the point in the function's own domain:

  ackley      -20 exp(-0.2 sqrt(mean z_i^2)) - exp(mean cos 2 pi z_i) + e + 20    |z_i| <= 32.768
  rosenbrock  sum over i < n of (1 - z_i)^2 + 100 (z_{i+1} - z_i^2)^2             |z_i| <= 2.048
  sphere      sum z_i^2                                                           |z_i| <= 5.12

A point u of the box maps to the domain [a, b] by z = u (b - a) / 2 + (a + b) / 2. The thesis prints
(b + 3a) / 2 as the last term, which would take u = -1 to 2a instead of a. Its three functions have
a = -b, and for them it rightly drops the term.

Ackley and sphere have their least value over x at x = 0, whatever c is. A policy that ignores c is
perfect there. These variants move the minimum (u is the point in the box):

  shifted_F   F at x - m(c): m_i(c) = sin(pi c_j / 2) / 2, where the free parameters take turns,
              j = (i - 1) mod k + 1. The minima of ackley and sphere lie exactly at x = m(c).
  rotated_F   F at S R u. R is the product of the rotations by 30 degrees in the planes (1, 2),
              (2, 3), ..., (n - 1, n), in this order. S is diagonal, from 1 to 1/4 in equal steps;
              it squeezes ackley and sphere, which a rotation alone would change little or not at
              all. For rosenbrock S is 1.

Users name a function of their own `module:callable`; see `environments.learn_to_optimize.loading`.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import pathlib
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from environments.errors import UserError
from environments.learn_to_optimize import loading
from environments.learn_to_optimize.loading import Domain, Evaluations

RowFunction = Callable[[np.ndarray], np.ndarray]
"""Maps rows float64 [N, n], x first and c last, to values float64 [N]."""

# The angle of each rotation, the least factor of S, and the largest m_i(c); see above.
_ROTATION = math.pi / 6
_SQUEEZE = 0.25
_SHIFT = 0.5


@dataclasses.dataclass(frozen=True, eq=False)
class Objective:
    """A function over rows of points of the box [-1, 1]^n: `values = objective(rows)`.

    Attributes:
      name: the name given to `make_objective`.
      dimensions: n.
      num_free: k; the last k coordinates are free parameters.
      function: maps rows of the box to values.
      low, high: float64 [n], the points of the function's own domain that -1 and 1 stand for.
      identity: differs between different functions, by a hash of their source. None if the source
        cannot be read; then no result for the function is stored on disk.
      minimiser: maps c [M, k] to the x [M, n - k] of the least value; None if it is not known.
      source_sha256: digest of the source of a user's function (`sources`); None for others.
      evaluations: counts the points that the function was called with, in this process.
    """

    name: str
    dimensions: int
    num_free: int
    function: RowFunction
    low: np.ndarray
    high: np.ndarray
    identity: str | None = None
    minimiser: RowFunction | None = None
    source_sha256: str | None = None
    evaluations: Evaluations = dataclasses.field(default_factory=Evaluations)

    @property
    def num_tuned(self) -> int:
        """The number of tuned coordinates, n - k."""
        return self.dimensions - self.num_free

    def __call__(self, rows: np.ndarray) -> np.ndarray:
        """Return the values float64 [N], all finite, at points [N, n] of the box.

        Raises:
          UserError: a point has no finite value; the message names the point.
          ValueError: the points have another shape.
        """
        points = np.asarray(rows, np.float64)
        if points.ndim != 2 or points.shape[1] != self.dimensions:
            raise ValueError(
                f"{self.name}: expected points [N, {self.dimensions}], found {points.shape}; "
                f"give each as a row of {self.dimensions} numbers"
            )
        if not len(points):
            return np.empty(0)
        self.evaluations.add(len(points))
        values = self.function(points)
        # One product is the cheapest check of all values. It may overflow though all are finite.
        if not math.isfinite(values.dot(values)) and not np.isfinite(values).all():
            self._refuse(points, values)
        return values

    def join(self, tuned: np.ndarray, free: np.ndarray) -> np.ndarray:
        """Join x [..., n - k] and c [..., k] into points of the box, float64 [..., n]."""
        shape = np.broadcast_shapes(tuned.shape[:-1], free.shape[:-1])
        joined = np.empty((*shape, self.dimensions))
        joined[..., : self.num_tuned] = tuned
        joined[..., self.num_tuned :] = free
        return joined

    def describe(self, point: np.ndarray) -> str:
        """Return a point [n] of the box as text, in the function's own units."""
        return loading.describe(loading.to_domain(point, self.low, self.high), self.num_tuned)

    def _refuse(self, points: np.ndarray, values: np.ndarray) -> NoReturn:
        row = int(np.argmin(np.isfinite(values)))
        if not np.isfinite(points[row]).all():
            raise UserError(
                f"{self.name}: expected a point to evaluate, found {self.describe(points[row])}; "
                "whatever chose it gives no numbers (a policy that has diverged?)"
            )
        raise UserError(
            f"{self.name}: expected a finite value at {self.describe(points[row])}, found "
            f"{values[row]}; correct the function there, or its bounds"
        )


def ackley(points: np.ndarray) -> np.ndarray:
    """Ackley's function (thesis, eq. 4.1): points [N, n] of its domain to [N]; least 0 at 0."""
    num = points.shape[1]
    # expm1 makes the value exactly 0 at 0; with exp, 20 + e - 20 - e is not. Arrays are reused.
    distance = np.sqrt((points * points).dot(_ones(num)))
    distance *= -0.2 / math.sqrt(num)
    bowl = np.expm1(distance, out=distance)
    bowl *= 20.0
    waves = points * (2 * math.pi)
    np.cos(waves, out=waves)
    return math.e - np.exp(waves.dot(_ones(num)) / num) - bowl


def rosenbrock(points: np.ndarray) -> np.ndarray:
    """Rosenbrock's function (thesis, eq. 4.2): points [N, n] of its domain to [N]; least 0 at 1."""
    here, there = points[:, :-1], points[:, 1:]
    terms = there - here * here
    terms *= terms
    terms *= 100
    along = 1 - here
    along *= along
    terms += along
    return terms.dot(_ones(points.shape[1] - 1))


def sphere(points: np.ndarray) -> np.ndarray:
    """Sphere function (thesis, eq. 4.3): points [N, n] of its domain to [N]; least 0 at 0."""
    return (points * points).dot(_ones(points.shape[1]))


def signed_log1p(values: np.ndarray) -> np.ndarray:
    """Return sign(v) log(1 + |v|) for each value v, the scale of the MSLE."""
    return np.copysign(np.log1p(np.abs(values)), values)


@functools.cache
def _ones(count: int) -> np.ndarray:
    """Return `count` ones; for small batches a product with them is the fastest sum over rows."""
    return np.ones(count)


_BASES: dict[str, tuple[RowFunction, float]] = {
    "ackley": (ackley, 32.768),
    "rosenbrock": (rosenbrock, 2.048),
    "sphere": (sphere, 5.12),
}
FUNCTIONS = (
    *_BASES,
    *(f"shifted_{base}" for base in _BASES),
    *(f"rotated_{base}" for base in _BASES),
)


def make_objective(name: str, dimensions: int = 2, free: int = 1, bounds: Any = None) -> Objective:
    """Make an objective by its name.

    Args:
      name: one of `FUNCTIONS`, or `module:callable` for the user's own.
      dimensions: n, the number of coordinates.
      free: k, the number of free parameters, which come last; 0 <= k < n.
      bounds: domain of the user's own function, in any form of `loading.read_bounds`. The default
        is its attribute `bounds`, or (-1, 1) if it has none.

    Raises:
      UserError: no function has that name, it cannot have so many coordinates or free parameters,
        or the bounds are not valid.
    """
    check_free(name, dimensions, free)
    if ":" in name:
        return user_objective(loading.load(name), dimensions, free, bounds)
    if name not in FUNCTIONS:
        raise UserError(
            f"function: expected one of {', '.join(FUNCTIONS)}, or module:callable for your own, "
            f"found {name!r}; correct the name"
        )
    if bounds is not None:
        raise UserError(
            f"{name}: expected no bounds, because it has its own, found {bounds}; leave them out, "
            "or name a function of yours as module:callable"
        )
    return _builtin_objective(name, dimensions, free)


def check_free(name: str, dimensions: int, free: int) -> None:
    """Check the number of free parameters.

    Raises:
      UserError: there are too few or too many.
    """
    if not 0 <= free < dimensions:
        raise UserError(
            f"{name}: expected 0 or more free parameters, fewer than its {dimensions} dimensions, "
            f"found {free}; leave at least one coordinate to tune"
        )


def _builtin_objective(name: str, dimensions: int, free: int) -> Objective:
    variant, _, base = name.rpartition("_")
    if base == "rosenbrock" and dimensions < 2:
        raise UserError(
            f"{name}: expected 2 dimensions or more, found {dimensions}; it links neighbours"
        )
    if variant == "shifted" and not free:
        raise UserError(
            f"{name}: expected 1 free parameter or more, found 0; they shift it, so give some, "
            f"or take {base}"
        )
    in_domain, half_width = _BASES[base]
    minimiser: RowFunction | None = None
    if base != "rosenbrock" and variant != "rotated":
        minimiser = functools.partial(_known_minimum, variant == "shifted", dimensions - free)
    return Objective(
        name=name,
        dimensions=dimensions,
        num_free=free,
        function=_VARIANTS[variant](in_domain, half_width, dimensions, dimensions - free),
        low=np.full(dimensions, -half_width),
        high=np.full(dimensions, half_width),
        identity=f"{name} {dimensions} {free} {_own_source()}",
        minimiser=minimiser,
    )


def user_objective(loaded: loading.Loaded, dimensions: int, free: int, bounds: Any) -> Objective:
    """Make an objective of a user's function; see `make_objective`."""
    domain = loading.domain(loaded, dimensions, bounds)
    evaluations = Evaluations()
    function = loading.guard(loaded, *domain, dimensions - free, evaluations)
    shape = dimensions, free
    return identified(loaded.name, shape, function, domain, loaded.source_sha256, evaluations)


def identified(
    name: str,
    shape: tuple[int, int],
    function: RowFunction,
    domain: Domain,
    source_sha256: str | None,
    evaluations: Evaluations,
) -> Objective:
    """Return a user's function as an objective, which its source tells from others.

    The arguments are attributes of `Objective`; `shape` is n and k, `domain` low and high.
    """
    low, high = domain
    identity = None
    if source_sha256 is not None:
        bounds = hashlib.sha256(low.tobytes() + high.tobytes()).hexdigest()
        identity = " ".join(map(str, (name, *shape, bounds, source_sha256)))
    return Objective(
        name,
        *shape,
        function,
        low,
        high,
        identity,
        source_sha256=source_sha256,
        evaluations=evaluations,
    )


def _plain(in_domain: RowFunction, half_width: float, *_: int) -> RowFunction:
    return lambda points: in_domain(half_width * points)


def _shifted(
    in_domain: RowFunction, half_width: float, dimensions: int, num_tuned: int
) -> RowFunction:
    def function(points: np.ndarray) -> np.ndarray:
        moved = points.copy()
        moved[:, :num_tuned] -= _shift(points[:, num_tuned:], num_tuned)
        return in_domain(half_width * moved)

    return function


def _rotated(in_domain: RowFunction, half_width: float, dimensions: int, *_: int) -> RowFunction:
    linear = half_width * _rotation(dimensions, squeezed=in_domain is not rosenbrock).T
    return lambda points: in_domain(points @ linear)


# Each makes a function over the box from (function over its domain, half its width, n, n - k).
_VARIANTS: dict[str, Callable[[RowFunction, float, int, int], RowFunction]] = {
    "": _plain,
    "shifted": _shifted,
    "rotated": _rotated,
}


def _shift(free: np.ndarray, num_tuned: int) -> np.ndarray:
    """Return m(c) of the shifted functions, [N, n - k], for c [N, k]."""
    shift = np.sin(math.pi / 2 * free)
    shift *= _SHIFT
    if free.shape[1] == num_tuned:
        return shift
    return shift.take(np.arange(num_tuned) % free.shape[1], axis=1)


def _known_minimum(is_shifted: bool, num_tuned: int, free: np.ndarray) -> np.ndarray:
    """Return the x [N, n - k] at which ackley and sphere are least, for c [N, k]."""
    return _shift(free, num_tuned) if is_shifted else np.zeros((len(free), num_tuned))


def _rotation(dimensions: int, squeezed: bool) -> np.ndarray:
    """Return the matrix S R of the rotated functions, [n, n]."""
    rotation = np.eye(dimensions)
    cosine, sine = math.cos(_ROTATION), math.sin(_ROTATION)
    for first in range(dimensions - 1):
        turn = np.eye(dimensions)
        turn[first : first + 2, first : first + 2] = [[cosine, -sine], [sine, cosine]]
        rotation = rotation @ turn
    squeeze = np.linspace(1, _SQUEEZE, dimensions) if squeezed else np.ones(dimensions)
    return squeeze[:, np.newaxis] * rotation


def _own_source() -> str:
    return hashlib.sha256(pathlib.Path(__file__).read_bytes()).hexdigest()
