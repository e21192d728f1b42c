"""Measure which of two models is faster, end to end, and how certain that is.

Both run in turns, in blocks of some milliseconds. Other load on the machine hardly changes the
ratio of two neighbouring blocks, and still less the median of many such ratios. A second copy of
the first model runs beside them. The interval of *its* ratio (A/A) shows how large a difference the
method finds where there is none. Only a ratio farther below 1 than that, together with its own
interval, counts as a gain. The other model's time is over the mean of both copies'.

Models in one process share caches and memory, and each process lays out its memory in another way.
So what is reported is measured where users are: each model in a process of its own, and all of them
anew several times (`num_processes`). These run on one processor, as they do in one process: where
each has its own, one of which is busier, copies of one model differ by 10% and more.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import itertools
import math
import pathlib
import statistics
import time
from collections.abc import Iterator, Sequence
from concurrent import futures

import onnx

from environments.tensor_graphs.execution.backends import Arrays, Backend, Model, Program, Timer
from environments.tensor_graphs.execution.isolation.remote import alone, run_on_one_processor

# Standard deviations on either side that cover 95% of a normal distribution.
_CONFIDENCE = 1.96
# One model over the mean of two varies by 1 + 1/2, one over another by 1 + 1.
_OF_MEAN = math.sqrt(1.5 / 2)
_NUM_WARM_UP = 3
_BLOCK_S = 0.005
_MIN_PAIRS = 9
_LONG_S = 0.05

_LARGE_BYTES = 1 << 30

Turn = tuple[float, float, float]
"""Seconds of a run of the first model, of the other one, and of the first one's copy."""

BUSY = 3.0
"""On a machine that is busy with other work, a measurement takes up to this many times longer."""

FEW_PAIRS = 3
"""Minimum of pairs for a first, short measurement of a large model."""


@dataclasses.dataclass(frozen=True)
class Ratio:
    """The median of the other model's time over the first's, with its 95% confidence interval."""

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


@dataclasses.dataclass(frozen=True)
class Comparison:
    """The measured speed of two models.

    Attributes:
      ratio: the other model's time divided by the first's, the mean of both copies; below 1, the
        other is faster.
      same: the same ratio for a copy of the first model (A/A), which should be 1.
      num_pairs: number of pairs of blocks that were measured.
    """

    ratio: Ratio
    same: Ratio
    num_pairs: int

    @property
    def margin(self) -> float:
        """How far from 1 the measured ratio of two equal models may lie."""
        return max(self.same.high - 1, 1 - self.same.low, 0.0)

    @property
    def is_faster(self) -> bool:
        """Whether the other model is certainly faster.

        The uncertainties of both ratios add up, though they are independent, since the best of
        several models is looked at. That of two copies counts less, since the ratio is over the
        mean of both, which varies less.
        """
        return self.ratio.high < 1 - _OF_MEAN * self.margin

    @property
    def is_close(self) -> bool:
        """Whether the other model seems to be faster, and may be by more than two copies differ."""
        return self.ratio.low < 1 - self.margin and self.ratio.value < 1 and not self.is_faster

    @property
    def is_slower(self) -> bool:
        """Whether the other model is certainly slower."""
        return self.ratio.low > 1 + self.margin


class Bench:
    """Measures other models against one that stays open, since large models take long to open."""

    def __init__(
        self, first: Model, inputs: Arrays, backend: Backend, program: Program | None = None
    ) -> None:
        """Prepare to measure against a model, which the backend may have opened as `program`.

        The model, and a copy of it for A/A, are opened where they are measured in this process. A
        model of more than 1 GiB is not opened twice: the memory would not suffice for many. A/A
        then compares the model with itself, so it misses what two copies differ in.
        """
        self._backend = backend
        self._inputs = inputs
        self._model = first
        self._is_large = is_large = size_bytes(first) > _LARGE_BYTES

        @functools.cache
        def open_both() -> tuple[Program, Program]:
            original = program or backend.open(first)
            return original, original if is_large else backend.open(first)

        self._open_both = open_both

    def at(self, inputs: Arrays) -> Bench:
        """Return a bench for the same model that runs on other inputs."""
        bench = copy.copy(self)
        bench._inputs = inputs
        return bench

    def compare(
        self, second: Model, *, other_backend: Backend | None = None, seconds: float = 10.0,
        pairs: int = _MIN_PAIRS, until_s: float = math.inf, num_processes: int = 0,
    ) -> Comparison:  # fmt: skip
        """Measure another model against the first.

        Args:
          second: the model to measure; it has the same inputs.
          other_backend: the backend that runs it, if not the same.
          seconds: time that the runs of all pairs may take: processor time where the backend counts
            that, so that a busy machine measures as many pairs, for up to `BUSY` times as long.
          pairs: smallest number of pairs to measure, whatever time they take.
          until_s: from this time of `time.monotonic` on, FEW_PAIRS are enough.
          num_processes: how many fresh processes each model is measured in at most, and twice as
            many if it then is a close thing; with 0, all are in the process of the backend.

        Raises:
          UserError: the model cannot be run.
        """
        on = other_backend or self._backend
        if num_processes:
            turns = self._in_fresh_processes(second, on, seconds, pairs, until_s, num_processes)
        else:
            original, twin = self._open_both()
            programs = [original, on.open(second), twin]
            turns = list(self._measured(programs, seconds, pairs, until_s))
        return _comparison_of(turns)

    def _in_fresh_processes(
        self, second: Model, on: Backend, seconds: float, pairs: int, until_s: float,
        num_processes: int,
    ) -> list[Turn]:  # fmt: skip
        """Measure in several processes, fewer where opening the models takes much of the time."""
        turns: list[Turn] = []
        # Models that take long to open are not opened again and again.
        enough_s = time.monotonic() + 2 * seconds
        for count in itertools.count(1):
            opening_s = time.monotonic()
            with contextlib.ExitStack() as stack:
                backends = [self._backend, on, self._backend][: 2 if self._is_large else 3]
                fresh = [stack.enter_context(alone(backend)) for backend in backends]
                models = [self._model, second, self._model]
                # Each process opens its model while the others open theirs.
                with futures.ThreadPoolExecutor() as threads:
                    opened = threads.map(lambda on, model: on.open(model), fresh, models)
                    programs = list(opened)
                run_on_one_processor(fresh)
                opened_s = time.monotonic() - opening_s
                # A process runs its model no shorter than half the time that it took to open that.
                most = math.floor(2 * seconds / max(opened_s, 1e-9))
                num_processes = max(1, min(num_processes, most))
                share = seconds / num_processes, math.ceil(pairs / num_processes), until_s
                turns += self._measured([*programs, programs[0]][:3], *share)
            is_close = len(turns) >= FEW_PAIRS and _comparison_of(turns).is_close
            is_over = time.monotonic() >= (until_s if is_close else min(until_s, enough_s))
            is_enough = count >= (2 * num_processes if is_close else num_processes)
            if is_enough or (is_over and len(turns) >= FEW_PAIRS):
                break
        return turns

    def _measured(
        self, programs: Sequence[Program], seconds: float, pairs: int, until_s: float
    ) -> Iterator[Turn]:
        """Run three programs in turns; yield the seconds of a run of each."""
        blocks = [_Block(program.timer(self._inputs)) for program in programs]
        # All blocks have the same number of runs, so that their overheads are equal.
        num_runs = max(block.num_runs for block in blocks)
        latest_s = min(until_s, time.monotonic() + BUSY * seconds)
        spent_s, turn = 0.0, 0
        while turn < pairs or (spent_s < seconds and time.monotonic() < latest_s):
            if turn >= min(FEW_PAIRS, pairs) and time.monotonic() >= until_s:
                break
            # The order changes from turn to turn, so that no model always follows the same one.
            order = _ORDERS[turn % len(_ORDERS)]
            times = {number: blocks[number].measure(num_runs) for number in order}
            yield times[0], times[1], times[2]
            spent_s += num_runs * sum(times.values())
            turn += 1


def _comparison_of(turns: Sequence[Turn]) -> Comparison:
    first_s, second_s, same_s = zip(*turns, strict=True)
    # Both copies are the first model, and one of them may have a bad place in memory.
    both_s = [math.sqrt(first * same) for first, _, same in turns]
    return Comparison(ratio_of(both_s, second_s), ratio_of(first_s, same_s), len(turns))


def size_bytes(model: Model) -> int:
    """Return the size of a model, the weights in other files included."""
    if not isinstance(model, pathlib.Path):
        return len(model) if isinstance(model, bytes) else model.ByteSize()
    weights = onnx.load(model, load_external_data=False).graph.initializer
    entries = itertools.chain.from_iterable(weight.external_data for weight in weights)
    lengths = [int(entry.value) for entry in entries if entry.key == "length"]
    return model.stat().st_size + sum(lengths)


_ORDERS = ((0, 1, 2), (2, 1, 0), (1, 0, 2), (2, 0, 1), (0, 2, 1), (1, 2, 0))


def ratio_of(first: Sequence[float], second: Sequence[float]) -> Ratio:
    """Return the median ratio of pairs of times, with its confidence interval.

    The k-th smallest and the k-th largest of n ratios enclose the true median with a probability
    that depends on n and k alone, because each ratio lies above the median with probability 1/2.
    """
    ratios = sorted(new / old for old, new in zip(first, second, strict=True))
    n = len(ratios)
    k = max(0, math.floor((n - _CONFIDENCE * math.sqrt(n)) / 2))
    return Ratio(statistics.median(ratios), ratios[k], ratios[n - 1 - k])


class _Block:
    """Runs a model `num_runs` times in a row, which takes `_BLOCK_S` seconds or longer."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        run_s = self.measure(1)
        if run_s < _LONG_S:
            run_s = min(run_s, *(self.measure(1) for _ in range(_NUM_WARM_UP - 1)))
        self.num_runs = max(1, math.ceil(_BLOCK_S / max(run_s, 1e-6)))

    def measure(self, num_runs: int) -> float:
        """Run the model `num_runs` times; return the seconds of one run."""
        return self._timer(num_runs) / num_runs
