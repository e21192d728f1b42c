"""Measure how long a function takes, on a machine that does other things too."""

from __future__ import annotations

import functools
import math
import time

import numpy as np
import onnx
from onnx import numpy_helper

from environments.tensor_graphs.costs.table import CostTable
from environments.tensor_graphs.execution.backends import Backend, Timer

_NUM_SAMPLES = 9, 30
_NUM_LONG_SAMPLES = 3
_NUM_NEAR = 3
_NEAR = 1.02
_SAMPLE_S = 0.002
_LONG_S = 0.1
_NUM_TRIES = 4
_CALM = 1.04
_ROWS, _COLUMNS = 128, 256
_KEY = "reference"


def time_of(timer: Timer, beside: Timer | None = None) -> tuple[float, float]:
    """Measure how long a run takes, and another one before each sample of it.

    The result is the shortest of several samples. Other load on the machine only ever makes a
    sample longer, so the shortest varies less than the median. If few other samples come near the
    shortest, an even shorter one may follow, so more are taken. What runs long gets few samples.

    Returns:
      The seconds of one run, and of one run beside it; inf for the latter if it is not given.
    """
    once_s = min(timer(1) for _ in range(2))
    num_runs = max(1, math.ceil(_SAMPLE_S / max(once_s, 1e-7)))
    least, most = _NUM_SAMPLES
    samples: list[float] = []
    others = [math.inf]
    while len(samples) < most:
        if beside is not None:
            beside(1)  # This brings its memory back into the caches.
            others.append(beside(1))
        samples.append(timer(num_runs) / num_runs)
        near = sum(sample < _NEAR * min(samples) for sample in samples)
        if len(samples) >= least and near >= _NUM_NEAR:
            break
        if len(samples) >= _NUM_LONG_SAMPLES and sum(samples) * num_runs > _LONG_S:
            break
    return min(samples), min(others)


class Stopwatch:
    """Measures times relative to a reference, a product of matrices that it runs in between.

    A machine may be slower than usual for seconds at a time. The reference then slows down by the
    same factor, so dividing by it makes measurements of different times comparable.
    """

    def __init__(self, backend: Backend, table: CostTable) -> None:
        """Make a stopwatch whose reference runs on a backend; the table keeps its usual time."""
        self._backend = backend
        self._table = table

    def measure_ms(self, timer: Timer) -> float:
        """Measure how long a run takes, in ms; repeat if the machine is slower than usual."""
        attempts = [self._try(timer)]
        began_s = time.monotonic()
        while min(attempts)[0] > _CALM and len(attempts) < _NUM_TRIES:
            if time.monotonic() - began_s > _LONG_S:
                break
            attempts.append(self._try(timer))
        return min(attempts)[1]

    def _try(self, timer: Timer) -> tuple[float, float]:
        """Return how many times slower than usual the machine is, and the corrected time in ms."""
        taken_s, product_s = time_of(timer, self._product)
        slower = 1e3 * product_s / self._usual_ms
        return slower, 1e3 * taken_s / slower

    @functools.cached_property
    def _usual_ms(self) -> float:
        usual_ms = self._table.get(_KEY)
        if usual_ms is None:
            taken_s, _ = min(time_of(self._product) for _ in range(_NUM_TRIES))
            usual_ms = self._table.put(_KEY, 1e3 * taken_s, "a product of matrices")
        return usual_ms

    @functools.cached_property
    def _product(self) -> Timer:
        random = np.random.default_rng(0)
        x, w = (random.normal(size=(size, _COLUMNS)).astype(np.float32)
                for size in (_ROWS, _COLUMNS))  # fmt: skip
        model = onnx.parser.parse_model(
            f"""<ir_version: 8, opset_import: ["" : 13]>
            product (float[{_ROWS},{_COLUMNS}] x) => (float[{_ROWS},{_COLUMNS}] y)
            {{ y = Gemm(x, w) }}"""
        )
        model.graph.initializer.append(numpy_helper.from_array(w, "w"))
        return self._backend.open(model).timer({"x": x}, bound=True)
