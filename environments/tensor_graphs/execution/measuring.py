"""Measure which of two models is faster, end to end, and how certain that is.

Both run in turns, in blocks of some milliseconds. Other load on the machine hardly changes the
ratio of two neighbouring blocks, and still less the median of many such ratios. A second copy of
the first model runs beside them. The interval of *its* ratio (A/A) shows how large a difference the
method finds where there is none. Only a ratio farther below 1 than that counts as a gain.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import pathlib
import statistics
import time
from collections.abc import Callable, Sequence

import onnx

from environments.tensor_graphs.execution.backends import Arrays, Backend, Model, Program

# Standard deviations on either side that cover 95% of a normal distribution.
_CONFIDENCE = 1.96
_NUM_WARM_UP = 3
_MIN_PAIRS = 9
_LONG_S = 0.05

_LARGE_BYTES = 1 << 30

FEW_PAIRS = 3
"""Minimum of pairs for a first, short measurement of a large model."""


@dataclasses.dataclass(frozen=True)
class Ratio:
    """A median of ratios with its 95% confidence interval.

    Attributes:
      value: the median of the other model's time divided by the first's.
      low: lower end of the interval.
      high: upper end of the interval.
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The measured speed of two models.

    Attributes:
      ratio: the other model's time divided by the first's; below 1, the other is faster.
      same: the same ratio for a copy of the first model (A/A), which should be 1.
      first_ms: median time of one run of the first model.
      other_ms: median time of one run of the other model.
      num_pairs: number of pairs of blocks that were measured.
    """

    ratio: Ratio
    same: Ratio
    first_ms: float
    other_ms: float
    num_pairs: int

    @property
    def margin(self) -> float:
        """How far from 1 the measured ratio of two equal models may lie."""
        return max(self.same.high - 1, 1 - self.same.low, 0.0)

    @property
    def is_faster(self) -> bool:
        """Whether the other model is certainly faster."""
        return self.ratio.high < 1 - self.margin

    @property
    def is_slower(self) -> bool:
        """Whether the other model is certainly slower."""
        return self.ratio.low > 1 + self.margin


class Bench:
    """Measures other models against one that stays open, since large models take long to open."""

    def __init__(
        self, first: Model, inputs: Arrays, backend: Backend, program: Program | None = None
    ) -> None:
        """Open the model, and a copy of it for A/A.

        A model of more than 1 GiB is not opened twice: the memory would not suffice for many. A/A
        then compares the model with itself, so it misses what two copies differ in.

        Args:
          first: the model that others are compared with.
          inputs: what all models are run on.
          backend: the backend that runs the model.
          program: the model, if this backend has opened it already.

        Raises:
          UserError: it cannot be run.
        """
        self._backend = backend
        self._inputs = inputs
        self._first = program or backend.open(first)
        self._copy = self._first if size_bytes(first) > _LARGE_BYTES else backend.open(first)

    def at(self, inputs: Arrays) -> Bench:
        """Return a bench for the same model that runs on other inputs."""
        bench = copy.copy(self)
        bench._inputs = inputs
        return bench

    def compare(
        self, other: Model, *, other_backend: Backend | None = None, seconds: float = 10.0,
        block_s: float = 0.005, pairs: int = _MIN_PAIRS,
    ) -> Comparison:  # fmt: skip
        """Measure another model against the first; see the function `compare`.

        Args:
          other: the model to measure; it has the same inputs.
          other_backend: the backend that runs it, if not the same.
          seconds: wall time that the pairs may take.
          block_s: each block of runs lasts this many seconds or longer.
          pairs: smallest number of pairs to measure, whatever time they take.

        Raises:
          UserError: the model cannot be run.
        """
        programs = [self._first, (other_backend or self._backend).open(other), self._copy]
        clock = self._backend.clock
        blocks = [_Block(program, self._inputs, clock, block_s) for program in programs]
        # All blocks have the same number of runs, so that their overheads are equal.
        num_runs = max(block.num_runs for block in blocks)
        times: list[list[float]] = [[], [], []]
        start = time.monotonic()
        turn = 0
        while turn < pairs or time.monotonic() - start < seconds:
            # The order changes from turn to turn, so that no model always follows the same one.
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
    """Measure two models against each other.

    Args:
      first: the model that the other is compared with.
      other: the model to measure; it has the same inputs.
      inputs: what both are run on.
      backend: the backend that runs the first model and its copy.
      other_backend: the backend that runs the other model, if not the same.
      seconds: wall time that the pairs may take; a few pairs are measured in any case.
      block_s: each block of runs lasts this many seconds or longer, and has at least one run.

    Raises:
      UserError: a model cannot be run.
    """
    bench = Bench(first, inputs, backend)
    return bench.compare(other, other_backend=other_backend, seconds=seconds, block_s=block_s)


def size_bytes(model: Model) -> int:
    """Return the size of a model, the weights in other files included."""
    if not isinstance(model, pathlib.Path):
        return model.ByteSize()
    weights = onnx.load(model, load_external_data=False).graph.initializer
    entries = (entry for one in weights for entry in one.external_data if entry.key == "length")
    return model.stat().st_size + sum(int(entry.value) for entry in entries)


_ORDERS = ((0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1), (0, 2, 1), (1, 2, 0))


def ratio_of(first: Sequence[float], other: Sequence[float]) -> Ratio:
    """Return the median ratio of pairs of times, with its confidence interval.

    The k-th smallest and the k-th largest of n ratios enclose the true median with a probability
    that depends on n and k alone, because each ratio lies above the median with probability 1/2.

    Args:
      first: times of the first model, one for each pair.
      other: times of the other model.
    """
    ratios = sorted(new / old for old, new in zip(first, other, strict=True))
    n = len(ratios)
    k = max(0, math.floor((n - _CONFIDENCE * math.sqrt(n)) / 2))
    return Ratio(statistics.median(ratios), ratios[k], ratios[n - 1 - k])


class _Block:
    """Runs a model several times in a row.

    Attributes:
      num_runs: number of runs that together take at least `block_s` seconds.
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
        """Run the model `num_runs` times; return the seconds of one run."""
        begin = self._clock()
        for _ in range(num_runs):
            self._program.run(self._inputs)
        return (self._clock() - begin) / num_runs
