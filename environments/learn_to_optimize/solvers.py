"""Global minima of a function for many vectors of free parameters, within the box [-1, 1]^m.

All free parameters are solved together, in few calls of the function with many rows.

One tuned coordinate: a grid of 2,049 points, then a golden-section search in each of the 8 lowest
valleys of the grid.

Two or more: descent (BFGS) from many starts of a Latin hypercube for each c, and differential
evolution, which gets through ripples that trap descent. The best point for each c then becomes a
start for all others: neighbouring c often share a minimum that few starts lead to. A pattern search
along the axes comes last; it needs no smoothness. The evolution is current-to-pbest/1/bin (JADE;
Zhang and Sanderson, 2009). In many dimensions no method is sure to find the least of many minima.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from environments.learn_to_optimize.descent import descend

RowFunction = Callable[[np.ndarray], np.ndarray]

_GRID_POINTS = 2049
_GRID_VALLEYS = 8
_GOLDEN = (np.sqrt(5) - 1) / 2
# From 2 grid spacings, 2e-3, to below 1e-11 of the box.
_GOLDEN_STEPS = 40

_HYPERCUBE_PER_DIMENSION, _MAX_HYPERCUBE = 512, 8192
# Descents for each c: the first number is shared by all c and divided by m squared, as a descent
# costs more in more dimensions; the others are limits.
_DESCENTS, _MIN_DESCENTS, _MAX_DESCENTS = 1_000_000, 4, 256
_SHARING_ROUNDS = 2
# For each c, this many of the best points of other c are tried, chosen from at most so many c.
_SHARED, _MAX_OTHERS = 6, 1000
_POPULATION = 60
# Each move goes towards one of this many best points.
_NUM_LEADERS = 6
_CROSSOVERS = (0.5, 0.9)
_GENERATIONS = 600
# A population is done when its values differ by less than this times 1 + their largest size.
_SPREAD = 1e-10

_PATTERN_FROM, _PATTERN_TO = 1e-3, 1e-10
_PATTERN_STEPS = 400

# Evaluations for each c and each of two or more tuned coordinates, as measured on the functions of
# `functions` in 3 to 5 dimensions: 16,000 to 38,000.
_USUAL = 23_000

# The most rows in one call of the function.
_MAX_ROWS = 1 << 17


def minimise(
    function: RowFunction, num_tuned: int, free: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Find the x in [-1, 1]^m with the least f(x, c) for each c, the same each time.

    Args:
      function: maps rows float64 [N, m + k], x first, to finite values [N].
      num_tuned: m, 1 or more.
      free: c, float64 [M, k].

    Returns:
      x float64 [M, m] and f(x, c) float64 [M].
    """
    problem = _Problem(function, num_tuned, np.asarray(free, np.float64))
    if num_tuned == 1:
        return _search_line(problem)
    generator = np.random.default_rng(0)
    descents = _DESCENTS // (len(free) * num_tuned**2)
    descents = min(max(descents, _MIN_DESCENTS), _MAX_DESCENTS)
    starts = _first_points(problem, max(descents, _POPULATION), generator)
    evolved = _evolve(problem, starts[:, :_POPULATION], generator)
    # Evolution gets through ripples but stops short of the bottom, which descent finds from there.
    tried = np.concatenate([evolved[:, np.newaxis], starts[:, :descents]], axis=1)
    x, values = _best(problem, _descend_all(problem, tried))
    for _ in range(_SHARING_ROUNDS):
        shared = _descend_all(problem, _from_others(problem, x))
        x, values = _best(problem, np.concatenate([x[:, np.newaxis], shared], axis=1))
    return _search_pattern(problem, x, values)


def usual_evaluations(num_tuned: int, num_free_points: int) -> int:
    """Return about how many evaluations `minimise` takes; from half of it to twice as many."""
    if num_tuned == 1:
        return num_free_points * (_GRID_POINTS + _GRID_VALLEYS * (2 * _GOLDEN_STEPS + 2))
    return num_free_points * num_tuned * _USUAL


class _Problem:
    """f(x, c) for all rows of c, evaluated in calls of a bounded size."""

    def __init__(self, function: RowFunction, num_tuned: int, free: np.ndarray) -> None:
        self._function = function
        self.num_tuned = num_tuned
        self.free = free

    def of(self, rows: np.ndarray) -> _Problem:
        """Return the same problem for some of the rows of c."""
        return _Problem(self._function, self.num_tuned, self.free[rows])

    def __call__(self, points: np.ndarray) -> np.ndarray:
        """Return values [M, P] of points x [M, P, m] for each c, or of [1, P, m] for every c."""
        num_rows, num_points = len(self.free), points.shape[1]
        values = np.empty((num_rows, num_points))
        for some in _slices(num_rows, max(1, _MAX_ROWS // num_points)):
            free = self.free[some]
            rows = np.empty((len(free), num_points, self.num_tuned + free.shape[1]))
            rows[..., : self.num_tuned] = points if len(points) == 1 else points[some]
            rows[..., self.num_tuned :] = free[:, np.newaxis]
            values[some] = self._function(rows.reshape(-1, rows.shape[-1])).reshape(len(free), -1)
        return values


def _slices(count: int, size: int) -> Iterator[slice]:
    return (slice(first, min(first + size, count)) for first in range(0, count, size))


def _search_line(problem: _Problem) -> tuple[np.ndarray, np.ndarray]:
    """Find x [M, 1] and f(x, c) [M] for one tuned coordinate."""
    grid = np.linspace(-1, 1, _GRID_POINTS)
    values = problem(grid[np.newaxis, :, np.newaxis])
    padded = np.pad(values, ((0, 0), (1, 1)), constant_values=np.inf)
    is_valley = (values <= padded[:, :-2]) & (values <= padded[:, 2:])
    by_depth = np.argsort(np.where(is_valley, values, np.inf), axis=1, kind="stable")
    valleys = by_depth[:, :_GRID_VALLEYS]
    left = grid[np.maximum(valleys - 1, 0)]
    right = grid[np.minimum(valleys + 1, _GRID_POINTS - 1)]
    for _ in range(_GOLDEN_STEPS):
        width = _GOLDEN * (right - left)
        inner, outer = right - width, left + width
        goes_left = problem(inner[..., np.newaxis]) < problem(outer[..., np.newaxis])
        left, right = np.where(goes_left, left, inner), np.where(goes_left, outer, right)
    # The grid's points compete too: at a step or a spike they can lie lower than what was found.
    candidates = np.concatenate([(left + right) / 2, grid[valleys]], axis=1)
    return _best(problem, candidates[..., np.newaxis])


def _best(problem: _Problem, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the best of points [M, P, m] for each c, [M, m], and its value [M]."""
    values = problem(points)
    rows, best = np.arange(len(values)), values.argmin(axis=1)
    return points[rows, best], values[rows, best]


def _first_points(problem: _Problem, count: int, generator: np.random.Generator) -> np.ndarray:
    """Return starts [M, P, m]: the best points of a Latin hypercube, in turn with any others."""
    from scipy.stats import qmc

    size = min(_HYPERCUBE_PER_DIMENSION * problem.num_tuned, _MAX_HYPERCUBE)
    cube = 2 * qmc.LatinHypercube(problem.num_tuned, rng=generator).random(size) - 1
    values = problem(cube[np.newaxis])
    starts = np.empty((len(values), count, problem.num_tuned))
    starts[:, ::2] = cube[np.argsort(values, axis=1, kind="stable")[:, : (count + 1) // 2]]
    starts[:, 1::2] = cube[: count // 2]
    return starts


def _descend_all(problem: _Problem, starts: np.ndarray) -> np.ndarray:
    """Descend from starts [M, P, m] to as many local minima, [M, P, m]."""
    num_rows, num_starts, num_tuned = starts.shape
    owners = np.repeat(np.arange(num_rows), num_starts)
    minima = descend(
        lambda rows, points: problem.of(owners[rows])(points), starts.reshape(-1, num_tuned)
    )
    return minima.reshape(starts.shape)


def _from_others(problem: _Problem, x: np.ndarray) -> np.ndarray:
    """Return, for each c, the best of the points found for all c, [M, P, m]."""
    others = x[:_MAX_OTHERS]
    values = problem(others[np.newaxis])
    return others[np.argsort(values, axis=1, kind="stable")[:, :_SHARED]]


def _evolve(
    problem: _Problem, population: np.ndarray, generator: np.random.Generator
) -> np.ndarray:
    """Evolve a population [M, P, m] for each c; return the best point of each, [M, m]."""
    population = population.copy()
    values = problem(population)
    going = np.arange(len(population))
    for _ in range(_GENERATIONS):
        spread = np.ptp(values[going], axis=1)
        going = going[spread > _SPREAD * (1 + np.abs(values[going]).max(axis=1))]
        if not len(going):
            break
        trials = _vary(population[going], values[going], generator)
        trial_values = problem.of(going)(trials)
        is_better = trial_values <= values[going]
        population[going] = np.where(is_better[..., np.newaxis], trials, population[going])
        values[going] = np.where(is_better, trial_values, values[going])
    return population[np.arange(len(population)), values.argmin(axis=1)]


def _vary(population: np.ndarray, values: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Return a trial for each point of populations [M, P, m] with values [M, P]."""
    num_rows, size, num_tuned = population.shape
    rows, shape = np.arange(num_rows)[:, np.newaxis], (num_rows, size)
    leaders = np.argpartition(values, _NUM_LEADERS, axis=1)[:, :_NUM_LEADERS]
    leader = leaders[rows, generator.integers(_NUM_LEADERS, size=shape)]
    left = generator.integers(size, size=shape)
    right = (left + generator.integers(1, size, size=shape)) % size
    weight = generator.uniform(0.5, 1, (*shape, 1))
    moved = population + weight * (
        population[rows, leader] - population + population[rows, left] - population[rows, right]
    )
    crossover = generator.choice(_CROSSOVERS, (*shape, 1))
    crosses = generator.random(population.shape) < crossover
    always = generator.integers(num_tuned, size=(*shape, 1))
    np.put_along_axis(crosses, always, True, axis=2)
    trials = np.where(crosses, moved, population)
    anywhere = generator.uniform(-1, 1, population.shape)
    return np.where(np.abs(trials) > 1, anywhere, trials)


def _search_pattern(
    problem: _Problem, x: np.ndarray, values: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Move each x [M, m] along the axes to better neighbours, in ever smaller steps."""
    axes = np.vstack([np.eye(problem.num_tuned), -np.eye(problem.num_tuned)])
    steps = np.full(len(x), _PATTERN_FROM)
    for _ in range(_PATTERN_STEPS):
        neighbours = np.clip(x[:, np.newaxis] + steps[:, np.newaxis, np.newaxis] * axes, -1, 1)
        better, found_values = _best(problem, neighbours)
        is_better = found_values < values
        x = np.where(is_better[:, np.newaxis], better, x)
        values = np.where(is_better, found_values, values)
        steps = np.where(is_better, steps, steps / 2)
        if (steps < _PATTERN_TO).all():
            break
    return x, values
