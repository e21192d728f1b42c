"""The runner that evaluates a function where an agent proposes: a chunk is one evaluation.

Whoever is killed loses no more than the evaluations that were running. `TrialPool` writes each
value down as soon as it arrives, and asks nothing that is written down already.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import numpy as np

from environments.errors import Failure, UserError
from tfrl_systems.drivers.jobs import Chunk, Pool, Timings
from tfrl_systems.policies.trials import Trials

RowFunction = Callable[[np.ndarray], np.ndarray]
"""Rows (x, c) float64 [N, n] of the box [-1, 1]^n -> values [N]; raises UserError if it fails."""


class TrialRunner:
    """Evaluates a function at proposals (`jobs.Runner`)."""

    def __init__(self, make_function: Callable[[], RowFunction]) -> None:
        self._function = make_function()
        self._proposals = np.zeros((0, 0))

    def load(self, data: np.ndarray) -> None:
        """Load proposals [P, n]."""
        self._proposals = data

    def run(self, job: Chunk) -> Trials:
        """Evaluate the proposal of the chunk's index. A failure is an outcome: it has no value."""
        point = self._proposals[job.index : job.index + 1]
        try:
            return Trials(point, self._function(point), evaluations=1)
        except UserError as error:
            return Trials(point, np.array([np.nan]), (str(error),), evaluations=1)

    def close(self) -> None:
        """Release nothing: a function ends with its process."""


class Log(Protocol):
    """Where trials are written down."""

    def values_at(self, points: np.ndarray) -> list[list[float]]:
        """Return for each of the points [N, n] the values that were written down for it.

        Equal points share one list.
        """

    def append(self, trials: Trials) -> None:
        """Write trials down, before anything else happens."""


class TrialPool:
    """Collects trials where an agent proposes them, and remembers each.

    It does for a training loop what a `jobs.Pool` does.

    Args:
      pool: evaluates the proposals.
      agent: has `propose(count, iteration)` -> points [count, n], and `points` of its trials.
      evaluations: the most trials of the run.
      log: where trials are written down.
    """

    def __init__(self, pool: Pool[Chunk, Trials], agent: Any, evaluations: int, log: Log) -> None:
        self._pool, self._agent, self._log = pool, agent, log
        self._evaluations = evaluations
        self._proposing_s = 0.0

    @property
    def timings(self) -> Timings:
        """Return the time of the pool; choosing proposals counts as sending them."""
        timings = self._pool.timings
        spent_s = timings.broadcasting_s + self._proposing_s
        return Timings(spent_s, timings.waiting_s, timings.workers)

    def broadcast(self, data: Any) -> None:
        """Send nothing: workers need no policy, and get their proposals by `map`."""

    def map(self, jobs: Iterable[Chunk]) -> list[Trials | Failure]:
        """Evaluate the proposals of an iteration; those that are written down are not asked."""
        chunks = list(jobs)
        began_s = time.perf_counter()
        number = chunks[0].iteration
        count = min(len(chunks), self._evaluations - number * len(chunks))
        proposals = self._agent.propose(max(count, 0), number)
        results: list[Any] = [None] * len(proposals)
        written = self._log.values_at(proposals)
        for row, (point, values) in enumerate(zip(proposals, written, strict=True)):
            num_learned = np.count_nonzero((self._agent.points == point).all(axis=1))
            if len(values) > num_learned:
                value = np.array([values.pop()])
                results[row] = Trials(point[np.newaxis], value, evaluations=1)
        self._proposing_s += time.perf_counter() - began_s
        missing = [chunk for chunk in chunks[: len(proposals)] if results[chunk.index] is None]
        if missing:
            self._pool.broadcast(proposals)
            answers = self._pool.map(missing, self._write)
            for chunk, answer in zip(missing, answers, strict=True):
                results[chunk.index] = answer
        return results or [Trials(proposals, np.zeros(0))]

    def _write(self, number: int, result: Trials | Failure) -> None:
        if isinstance(result, Trials):
            self._log.append(result)
