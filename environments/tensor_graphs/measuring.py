"""Which of two models is faster, end to end, and how sure that is.

Both run in turns, in blocks that last some milliseconds. The ratio of a pair of neighbouring blocks
is hardly touched by what else the machine does, and the median of many pairs not at all. Beside the
other model runs a second copy of the first: the interval of *its* ratio (A/A) says what the method
takes for a difference where there is none. A gain is what lies farther below 1 than that reaches.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
import time
from collections.abc import Callable, Sequence

from environments.tensor_graphs.backends import Arrays, Backend, Model, Program

# Number of standard deviations in which a median lies with 95% confidence.
_CONFIDENCE = 1.96
_NUM_WARM_UP = 3
_MIN_PAIRS = 9
_LONG_S = 0.05

FEW_PAIRS = 3
"""Enough for a look at a large model, on which nothing depends yet."""


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A median of ratios.

    Attributes:
      value: time of the other model over that of the first.
      low: lower end of its interval of 95% confidence.
      high: upper end.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """What a comparison came to.

    Attributes:
      ratio: of the other model's time to the first's; below 1 the other is faster.
      same: the same of a copy of the first (A/A): how far a ratio is off 1 by itself.
      first_ms: median time of one run of the first model.
      other_ms: and of the other.
      num_pairs: that were measured.
    """

    ratio: Ratio
    same: Ratio
    first_ms: float
    other_ms: float
    num_pairs: int

    @property
    def margin(self) -> float:
        """How far from 1 the ratio of equal models may lie."""
        return max(self.same.high - 1, 1 - self.same.low, 0.0)

    @property
    def is_faster(self) -> bool:
        """Whether the other model is faster for certain."""
        return self.ratio.high < 1 - self.margin

    @property
    def is_slower(self) -> bool:
        """Whether the other model is slower for certain."""
        return self.ratio.low > 1 + self.margin


class Bench:
    """Measures models against one that stays open, and its copy: large models open slowly."""

    def __init__(self, first: Model, inputs: Arrays, backend: Backend) -> None:
        """Opens the model, twice.

        Args:
          first: what others are compared with.
          inputs: of all.
          backend: runs it.

        Raises:
          UserError: it cannot be run.
        """
        self._backend = backend
        self._inputs = inputs
        self._first, self._copy = backend.open(first), backend.open(first)

    def compare(
        self, other: Model, *, other_backend: Backend | None = None, seconds: float = 10.0,
        block_s: float = 0.005, pairs: int = _MIN_PAIRS,
    ) -> Comparison:  # fmt: skip
        """See `compare`; `pairs` are made in any case."""
        programs = [self._first, (other_backend or self._backend).open(other), self._copy]
        clock = self._backend.clock
        blocks = [_Block(program, self._inputs, clock, block_s) for program in programs]
        # All have as many runs: what a block costs by itself is then the same for all.
        num_runs = max(block.num_runs for block in blocks)
        times: list[list[float]] = [[], [], []]
        start = time.monotonic()
        turn = 0
        while turn < pairs or time.monotonic() - start < seconds:
            # Who is first in a turn, and after whom each comes, changes from turn to turn.
            for number in _ORDERS[turn % len(_ORDERS)]:
                times[number].append(blocks[number].measure(num_runs))
            turn += 1
        return Comparison(
            ratio=ratio_of(times[0], times[1]),
            same=ratio_of(times[0], times[2]),
            first_ms=1e3 * statistics.median(times[0]),
            other_ms=1e3 * statistics.median(times[1]),
            num_pairs=turn,
        )


def compare(
    first: Model, other: Model, inputs: Arrays, backend: Backend, *,
    other_backend: Backend | None = None, seconds: float = 10.0, block_s: float = 0.005,
) -> Comparison:  # fmt: skip
    """Measures two models against each other.

    Args:
      first: what the other is compared with.
      other: has the same inputs.
      inputs: of both.
      backend: runs the first model, and its copy.
      other_backend: runs the other, if not the same.
      seconds: of wall time that the pairs may take; a few pairs are made in any case.
      block_s: each block of runs lasts that long or longer; it has at least one run.

    Raises:
      UserError: a model cannot be run.
    """
    bench = Bench(first, inputs, backend)
    return bench.compare(other, other_backend=other_backend, seconds=seconds, block_s=block_s)


_ORDERS = ((0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1), (0, 2, 1), (1, 2, 0))


def ratio_of(first: Sequence[float], other: Sequence[float]) -> Ratio:
    """The median of ratios of pairs, with an interval from their order.

    The k-th smallest and the k-th largest of n ratios enclose the true median with a probability
    that depends on n and k alone: whether it lies above a ratio is the toss of a coin.
    """
    ratios = sorted(new / old for old, new in zip(first, other, strict=True))
    n = len(ratios)
    k = max(0, math.floor((n - _CONFIDENCE * math.sqrt(n)) / 2))
    return Ratio(statistics.median(ratios), ratios[k], ratios[n - 1 - k])


class _Block:
    """Runs a model several times.

    Attributes:
      num_runs: that take as long as a block should.
    """

    def __init__(
        self, program: Program, inputs: Arrays, clock: Callable[[], float], block_s: float
    ) -> None:
        self._program = program
        self._inputs = inputs
        self._clock = clock
        run_s = self.measure(1)
        if run_s < _LONG_S:
            run_s = min(run_s, *(self.measure(1) for _ in range(_NUM_WARM_UP - 1)))
        self.num_runs = max(1, math.ceil(block_s / max(run_s, 1e-6)))

    def measure(self, num_runs: int) -> float:
        """Seconds that a run takes."""
        begin = self._clock()
        for _ in range(num_runs):
            self._program.run(self._inputs)
        return (self._clock() - begin) / num_runs
