"""Measurements of models end to end: how long they take, and how much memory.

Run nothing else beside them. Other load hardly changes the ratios, but it changes the times.
"""

from __future__ import annotations

import dataclasses
import functools
import pathlib
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx

from environments.errors import UserError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution import equivalence
from environments.tensor_graphs.execution.backends import Arrays, Backend, backend
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.execution.measuring import Comparison, compare
from environments.tensor_graphs.search import Step, Visited, replay
from tfrl_systems.settings import as_options
from tfrl_systems.systems.tensor_graphs.evaluating import Evaluation
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem, find_model
from tools.benchmarks.shared import Record, identity_of, kept
from tools.benchmarks.tensor_graphs.cases import SEARCHES, Run, slug
from tools.benchmarks.tensor_graphs.measurements import Benchmark
from tools.benchmarks.tensor_graphs.memory import peak_bytes

ORIGINAL = "original"
_LEVELS = ("onnxruntime-disable", "onnxruntime-basic", "onnxruntime-extended", "onnxruntime")


def levels() -> list[Backend]:
    """Return what to measure models with: four levels of onnxruntime, and OpenVINO if installed."""
    found = [backend(name) for name in _LEVELS]
    try:
        return [*found, backend("openvino")]
    except UserError:
        return found


def measure(benchmark: Benchmark, model: str, found: Record | None = None) -> Record:
    """Return the record of a model's end-to-end times as ratios; measure it if none is kept.

    The time of a rewritten model at each level is divided by that of the original at the same
    level. The time of the original at each level is divided by its own time without optimisation.

    Args:
      benchmark: directory and settings.
      model: name of the original model.
      found: record of the search or policy that rewrote the model; None to measure the original.
    """
    label = found["method"] if found else ORIGINAL
    settings = {
        **benchmark.about(model),
        "path": found["path"] if found else [],
        "levels": [[one.name, one.version] for one in levels()],
        "measure_seconds": benchmark.measure_seconds,
    }
    path = benchmark.output / "times" / f"{slug(model)}-{label}.json"
    return kept(path, settings, functools.partial(_measure, benchmark, model, found))


def _measure(benchmark: Benchmark, model: str, found: Record | None) -> Record:
    problem = benchmark.problem(model)
    with tempfile.TemporaryDirectory() as name:
        directory = pathlib.Path(name)
        original = file_of(model, directory / "original.onnx")
        inputs = inputs_of(original, problem)
        if found is None:
            rewritten, ratios = original, _by_level(benchmark, original, inputs)
        else:
            rewritten = directory / "rewritten.onnx"
            onnx_io.save(_replayed(problem, found), rewritten)
            ratios = _at_each_level(benchmark, original, rewritten, inputs)
        equal = equivalence.check(original, rewritten, [inputs])
        np.savez(directory / "inputs.npz", **inputs)
        memory = peak_bytes("run", str(rewritten), str(directory / "inputs.npz"))
    return {
        "model": model,
        "method": found["method"] if found else ORIGINAL,
        "levels": {name: dataclasses.asdict(one) for name, one in ratios.items()},
        "peak_bytes": memory,
        "is_equal": equal.is_equal,
        "max_relative_error": equal.max_relative_error,
    }


def _by_level(benchmark: Benchmark, model: pathlib.Path, inputs: Arrays) -> dict[str, Comparison]:
    first, *others = levels()
    seconds = benchmark.measure_seconds
    return {
        one.name: compare(model, model, inputs, first, other_backend=one, seconds=seconds)
        for one in others
    }


def _at_each_level(
    benchmark: Benchmark, original: pathlib.Path, rewritten: pathlib.Path, inputs: Arrays
) -> dict[str, Comparison]:
    seconds = benchmark.measure_seconds
    return {
        one.name: compare(original, rewritten, inputs, one, seconds=seconds) for one in levels()
    }


def file_of(model: str, scratch: pathlib.Path) -> pathlib.Path:
    """Return the file of an original model; one of `models.NAMES` is written to `scratch` first."""
    source = find_model(model)
    if isinstance(source, pathlib.Path):
        return source
    onnx.save(source, scratch)
    return scratch


def inputs_of(model: pathlib.Path, problem: GraphProblem) -> Mapping[str, np.ndarray]:
    """Return random inputs of the sizes that the costs were estimated for."""
    return random_inputs(onnx.load(model, load_external_data=False), sizes=problem.sizes)


def memory(benchmark: Benchmark, model: str, method: str, run: Run | None = None) -> Record:
    """Return the record of the most memory that optimising takes; measure it if none is kept.

    Args:
      benchmark: directory and settings.
      model: name of the model to optimise.
      method: name of a search or an agent, or `ORIGINAL` to only read the model.
      run: the training run of an agent's policy; None for other methods.
    """
    settings = {
        **benchmark.about(model),
        "training": identity_of(benchmark.plan(run)) if run else None,
        "seconds": benchmark.seconds,
        "rollouts": benchmark.rollouts,
    }
    chosen = SEARCHES[0] if method == ORIGINAL else method
    policy = str(benchmark.policy_directory(run)) if run else chosen
    asked = Evaluation(
        models=(model,),
        **dataclasses.asdict(benchmark.rewriting),
        seconds=benchmark.seconds,
        expansions=0 if method == ORIGINAL else None,
        rollouts=benchmark.rollouts,
    )
    path = benchmark.output / "memory" / f"{slug(model)}-{method}.json"
    return kept(
        path,
        settings,
        lambda: {
            "model": model,
            "method": method,
            "peak_bytes": peak_bytes("evaluate", policy, *as_options(asked)),
        },
    )


def _replayed(problem: GraphProblem, found: Record) -> Any:
    """Replay a path; return the graph that it leads to.

    Raises:
      UserError: a step of the path no longer applies.
    """
    steps = [Step(xfer, tuple(location)) for xfer, location in found["path"]]
    try:
        return replay(Visited(problem.start), steps).state.graph
    except LookupError as error:
        raise UserError(
            f"{problem.name}, {found['method']}: expected steps that apply, found {error}; name "
            "another directory with --output"
        ) from None
