"""Graphs on random walks, and which of their figures correlate with their time (Fig. 4.5)."""

from __future__ import annotations

import math
import pathlib
import random
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.analytic import figures
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.measuring import compare
from environments.tensor_graphs.rewriting.engine import State
from tools.benchmarks.shared import Record, kept
from tools.benchmarks.tensor_graphs.cases import slug
from tools.benchmarks.tensor_graphs.measurements import Benchmark
from tools.benchmarks.tensor_graphs.times import file_of, inputs_of

FIGURES = ("cost_ms", "bytes_moved", "flops", "num_kernels")
MEASURED = "measured"
_SEED = 0
_NUM_WALKS = 10
# Rules that a walk applies; fewer if none matches any more.
_NUM_STEPS = 50
# Graphs that are measured end to end, spread over the whole range of costs.
_NUM_MEASURED = 12


def walk(benchmark: Benchmark, model: str) -> Record:
    """Return the record of the figures of graphs on random walks; make it if none is kept.

    Args:
      benchmark: directory and settings.
      model: name of the model where each walk begins.
    """
    settings = {
        **benchmark.about(model),
        "seed": _SEED,
        "num_walks": _NUM_WALKS,
        "num_steps": _NUM_STEPS,
        "num_measured": _NUM_MEASURED,
        "measure_seconds": benchmark.measure_seconds,
    }

    def make() -> Record:
        start = benchmark.problem(model).start
        states = {hash(one.graph): one for one in _states(start)}
        # In the order of their costs; ties are in the order of the graphs' hashes.
        ordered = [
            states[key] for key in sorted(states, key=lambda key: (states[key].cost_ms, key))
        ]
        found: list[Record] = [_figures(one) for one in ordered]
        for place in spread_places(len(ordered), _NUM_MEASURED):
            found[place][MEASURED] = _time(benchmark, model, ordered[place])
        return {"model": model, "seed": _SEED, "start_cost_ms": start.cost_ms, "graphs": found}

    return kept(benchmark.output / "walks" / f"{slug(model)}.json", settings, make)


def _states(start: State) -> Iterator[State]:
    generator = random.Random(_SEED)
    yield start
    for _ in range(_NUM_WALKS):
        here = start
        for _ in range(_NUM_STEPS):
            if not here.matches:
                break
            here = here.apply(generator.choice(here.matches))
            yield here


def spread_places(total: int, count: int) -> list[int]:
    """Choose at most `count` indices below `total`, evenly spaced, with both ends included."""
    count = min(count, total)
    if count < 2:
        return list(range(count))
    return [round(place * (total - 1) / (count - 1)) for place in range(count)]


def _figures(state: State) -> Record:
    work = figures(state.graph)
    return {
        "cost_ms": state.cost_ms,
        "bytes_moved": work.bytes_moved,
        "flops": work.flops,
        "num_kernels": work.num_kernels,
    }


def _time(benchmark: Benchmark, model: str, state: State) -> float:
    """Measure the end-to-end time of a graph, divided by that of the original model."""
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        original = file_of(model, directory / "original.onnx")
        rewritten = directory / "rewritten.onnx"
        onnx_io.save(state.graph, rewritten)
        inputs = inputs_of(original, benchmark.problem(model))
        seconds = benchmark.measure_seconds
        return compare(original, rewritten, inputs, backend(), seconds=seconds).ratio.value


def correlations(graphs: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float | None]]:
    """Compute Spearman's rank correlation of each pair of figures, the measured time included.

    Args:
      graphs: the figures of each graph, by name: all of `FIGURES`, and for some graphs `MEASURED`.

    Returns:
      The correlation by name of the first figure, then of the second; None if one of the two is the
      same for all graphs. Correlations with `MEASURED` are over the graphs that have it.
    """
    measured = [one for one in graphs if MEASURED in one]
    found: dict[str, dict[str, float | None]] = {}
    for name in (*FIGURES, MEASURED):
        found[name] = {
            other: spearman(*([one[key] for one in of] for key in (name, other)))
            for other in (*FIGURES, MEASURED)
            for of in (measured if MEASURED in (name, other) else graphs,)
        }
    return found


def spearman(first: Sequence[float], other: Sequence[float]) -> float | None:
    """Return the rank correlation; equal values share their mean rank. None if all are equal."""
    from scipy import stats

    if len(set(first)) < 2 or len(set(other)) < 2:
        return None
    value = float(stats.spearmanr(first, other).statistic)
    return None if math.isnan(value) else value
