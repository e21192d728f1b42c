"""Where episodes start: samplers of points of the box [-1, 1]^n.

A sampler draws many points at once, `sampler(generator, count)` -> float64 [count, n], or as a
context sampler one, `sampler(generator)` -> [n]. It draws one stream of points for each generator:
`count` points are what that many single draws would have been, and a new generator begins a new
stream, so an environment's seed decides all of its start points.

Heterogeneous sampling (thesis, 5.3.4) is one sampler for each driver, so it is a list of samplers
(`make_samplers`), with an environment for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from environments.errors import UserError

# Observations float32 [N, n] to the entropy of the policy's distribution at each, [N].
EntropyFn = Callable[[np.ndarray], np.ndarray]

NAMES = ("random", "latin_hypercube", "uncertainty", "heterogeneous")


class Sampler(Protocol):
    """Draws start points.

    Attributes:
      name: one of `NAMES`, or another's.
    """

    name: str

    def __call__(self, generator: np.random.Generator, count: int | None = None) -> np.ndarray:
        """Points float64 [count, n], or one point [n] where no count is given."""
        ...


class Random:
    """Uniform and independent (thesis, eq. 5.1).

    Args:
      dimensions: n.
    """

    name = "random"

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions

    def __call__(self, generator: np.random.Generator, count: int | None = None) -> np.ndarray:
        """Points float64 [count, n], or [n]."""
        if count is None:
            return generator.uniform(-1, 1, self._dimensions)
        return generator.uniform(-1, 1, (count, self._dimensions))


class LatinHypercube:
    """Latin hypercubes, one after another (thesis, eq. 5.2; scipy.stats.qmc.LatinHypercube).

    Of each `num_strata` points in turn, every coordinate has exactly one in each of `num_strata`
    equal intervals. That is the thesis's rule, to draw from an interval that holds the fewest
    points so far, for all coordinates at once.

    Args:
      dimensions: n.
      num_strata: M, best the number of episodes that are collected together.
    """

    name = "latin_hypercube"

    def __init__(self, dimensions: int, num_strata: int = 64) -> None:
        # scipy.stats takes longer to import than all else here, and not every worker needs it.
        from scipy.stats import qmc

        _check_positive("num_strata", num_strata)
        self._engine = qmc.LatinHypercube(dimensions, rng=np.random.default_rng(0))
        self._num_strata = num_strata
        self._ahead = np.empty((0, dimensions))
        self._generator: np.random.Generator | None = None

    def __call__(self, generator: np.random.Generator, count: int | None = None) -> np.ndarray:
        """Points float64 [count, n], or [n]."""
        if generator is not self._generator:
            # Given to the engine when it is made, it would draw from a child of the generator.
            self._generator = self._engine.rng = generator
            self._ahead = self._ahead[:0]
        wanted = 1 if count is None else count
        cubes = [self._ahead]
        missing = wanted - len(self._ahead)
        for _ in range(-(-missing // self._num_strata)):
            cubes.append(2 * self._engine.random(self._num_strata) - 1)
        points = np.concatenate(cubes)
        self._ahead = points[wanted:]
        return points[0] if count is None else points[:wanted]


class Uncertainty:
    """Where the policy is least sure (thesis, eq. 5.3).

    Each point is the one of `num_candidates` uniform ones at which the policy's distribution has
    the highest entropy, and the first of them where several have it. So with a policy whose spread
    does not depend on the observation, as PPO's commonly does not, this is `Random`.

    Args:
      dimensions: n.
      entropy_fn: observations float32 [N, n] to entropies [N]; asked anew for each draw, so it
        should answer for the policy as it is then.
      num_candidates: how many points compete for each start point.
    """

    name = "uncertainty"

    def __init__(self, dimensions: int, entropy_fn: EntropyFn, num_candidates: int = 64) -> None:
        _check_positive("num_candidates", num_candidates)
        self._dimensions = dimensions
        self._entropy_fn = entropy_fn
        self._num_candidates = num_candidates

    def __call__(self, generator: np.random.Generator, count: int | None = None) -> np.ndarray:
        """Points float64 [count, n], or [n].

        Raises:
          ValueError: the entropies are not one finite number for each candidate.
        """
        wanted = 1 if count is None else count
        shape = (wanted, self._num_candidates, self._dimensions)
        candidates = generator.uniform(-1, 1, shape)
        observations = candidates.reshape(-1, self._dimensions).astype(np.float32)
        entropies = np.asarray(self._entropy_fn(observations))
        if entropies.shape != (len(observations),) or not np.isfinite(entropies).all():
            raise ValueError(
                f"entropy_fn: expected {len(observations)} finite numbers, found shape "
                f"{entropies.shape} with {np.sum(~np.isfinite(entropies))} not finite; return one "
                "for each observation (NaN: the policy has diverged)"
            )
        most = entropies.reshape(wanted, self._num_candidates).argmax(axis=1)
        points = candidates[np.arange(wanted), most]
        return points[0] if count is None else points


def make_samplers(
    name: str,
    dimensions: int,
    *,
    num_strata: int = 64,
    num_candidates: int = 64,
    entropy_fn: EntropyFn | None = None,
) -> list[Sampler]:
    """The samplers of a run by their name: one for each driver, to be taken in turn.

    Args:
      name: one of `NAMES`; "heterogeneous" is one of each of the others.
      dimensions: n.
      num_strata: intervals of the Latin hypercube.
      num_candidates: candidates for each point of uncertainty sampling.
      entropy_fn: of the policy; needed by "uncertainty" and "heterogeneous".

    Raises:
      UserError: there is none of that name, or it lacks the entropy function.
    """
    if name not in NAMES:
        raise UserError(
            f"sampler: expected one of {', '.join(NAMES)}, found {name!r}; correct the name"
        )
    samplers: list[Sampler] = []
    if name in ("random", "heterogeneous"):
        samplers.append(Random(dimensions))
    if name in ("latin_hypercube", "heterogeneous"):
        samplers.append(LatinHypercube(dimensions, num_strata))
    if name in ("uncertainty", "heterogeneous"):
        if entropy_fn is None:
            raise UserError(
                f"sampler {name}: expected the policy's entropy function, found none; give "
                "entropy_fn, or take random or latin_hypercube"
            )
        samplers.append(Uncertainty(dimensions, entropy_fn, num_candidates))
    return samplers


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise UserError(f"{name}: expected 1 or more, found {value}; correct it")
