"""Samplers of start points in the box [-1, 1]^n.

`sampler(generator, count)` draws points, float64 [count, n]. It draws one stream of points from
each generator, whatever the counts. A new generator begins a new stream, so an environment's seed
decides all of its start points.

They are those of Mayer's thesis (`functions`), 5.3. Heterogeneous sampling (5.3.4) gives each
driver its own sampler. It is therefore a list of samplers (`make_samplers`), with an environment
for each. Chunks of episodes take turns with them, not drivers: a run may not depend on its
workers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from environments.errors import UserError

Sampler = Callable[[np.random.Generator, int], np.ndarray]

# Maps observations float32 [N, n] to the entropy of the policy's distribution at each, [N].
EntropyFn = Callable[[np.ndarray], np.ndarray]

NAMES = ("random", "latin_hypercube", "uncertainty", "heterogeneous")


def random(dimensions: int) -> Sampler:
    """Return a sampler of uniform and independent points (thesis, eq. 5.1)."""
    return lambda generator, count: generator.uniform(-1, 1, (count, dimensions))


class LatinHypercube:
    """Draws Latin hypercubes, one after another (thesis, eq. 5.2; scipy.stats.qmc.LatinHypercube).

    Each hypercube has `num_strata` points. Every coordinate is divided into `num_strata` equal
    intervals, and each interval holds one of the points. So each point is, in every coordinate, in
    an interval that holds the fewest points so far, drawn from all such: eq. 5.2. The thesis counts
    points over the whole training. Here counting begins anew with each generator, hence with each
    chunk, which may depend on nothing before it; take as many intervals as a chunk has episodes, or
    a divisor of that.

    Args:
      dimensions: n.
      num_strata: M; choose the number of episodes that are collected together.

    Raises:
      UserError: `num_strata` is less than 1.
    """

    def __init__(self, dimensions: int, num_strata: int) -> None:
        # scipy.stats is slow to import, and not every worker needs it.
        from scipy.stats import qmc

        _check_positive("num_strata", num_strata)
        self._engine = qmc.LatinHypercube(dimensions, rng=np.random.default_rng(0))
        self._num_strata = num_strata
        self._ahead = np.empty((0, dimensions))
        self._generator: np.random.Generator | None = None

    def __call__(self, generator: np.random.Generator, count: int) -> np.ndarray:
        """Draw points float64 [count, n]."""
        if generator is not self._generator:
            # An engine that gets the generator when it is made draws from a child of it.
            self._generator = self._engine.rng = generator
            self._ahead = self._ahead[:0]
        cubes = [self._ahead]
        missing = count - len(self._ahead)
        for _ in range(-(-missing // self._num_strata)):
            cubes.append(2 * self._engine.random(self._num_strata) - 1)
        points = np.concatenate(cubes)
        self._ahead = points[count:]
        return points[:count]


def uncertainty(dimensions: int, entropy_fn: EntropyFn, num_candidates: int) -> Sampler:
    """Return a sampler of points where the policy is least sure (thesis, eq. 5.3).

    Each point is the best of `num_candidates` uniform points: the one at which the policy's
    distribution has the highest entropy, and the first if several do. The thesis takes "a large
    number" of them. If the spread of a policy does not depend on the observation, which is common
    with PPO, this equals `random`; the thesis does not say how its policy's does.

    Args:
      dimensions: n.
      entropy_fn: called for each draw, so it should use the policy as it is at that time.
      num_candidates: the number of points that compete for each start point.

    Raises:
      UserError: `num_candidates` is less than 1.
      ValueError: of the sampler: the entropies are not one finite number for each candidate.
    """
    _check_positive("num_candidates", num_candidates)

    def sampler(generator: np.random.Generator, count: int) -> np.ndarray:
        candidates = generator.uniform(-1, 1, (count, num_candidates, dimensions))
        observations = candidates.reshape(-1, dimensions).astype(np.float32)
        entropies = np.asarray(entropy_fn(observations))
        if entropies.shape != (len(observations),) or not np.isfinite(entropies).all():
            raise ValueError(
                f"entropy_fn: expected {len(observations)} finite numbers, found shape "
                f"{entropies.shape} with {np.sum(~np.isfinite(entropies))} not finite; return one "
                "for each observation (NaN: the policy has diverged)"
            )
        most = entropies.reshape(count, num_candidates).argmax(axis=1)
        return candidates[np.arange(count), most]

    return sampler


def make_samplers(
    name: str,
    dimensions: int,
    *,
    num_strata: int = 64,
    num_candidates: int = 64,
    entropy_fn: EntropyFn | None = None,
) -> list[Sampler]:
    """Make the samplers of a run by their name; drivers take them in turn.

    Args:
      name: one of `NAMES`; "heterogeneous" stands for one of each of the others.
      dimensions: n.
      num_strata: see `LatinHypercube`.
      num_candidates: see `uncertainty`.
      entropy_fn: the policy's entropy; needed by "uncertainty" and "heterogeneous".

    Raises:
      UserError: no sampler has that name, a number is less than 1, or the entropy function is
        missing.
    """
    if name not in NAMES:
        raise UserError(
            f"sampler: expected one of {', '.join(NAMES)}, found {name!r}; correct the name"
        )
    samplers: list[Sampler] = []
    if name in ("random", "heterogeneous"):
        samplers.append(random(dimensions))
    if name in ("latin_hypercube", "heterogeneous"):
        samplers.append(LatinHypercube(dimensions, num_strata))
    if name in ("uncertainty", "heterogeneous"):
        if entropy_fn is None:
            raise UserError(
                f"sampler {name}: expected the policy's entropy function, found none; give "
                "entropy_fn, or take random or latin_hypercube"
            )
        samplers.append(uncertainty(dimensions, entropy_fn, num_candidates))
    return samplers


def _check_positive(name: str, value: int) -> None:
    if value < 1:
        raise UserError(f"{name}: expected 1 or more, found {value}; correct it")
