"""The graphs of the thesis's chapter 4, and its baselines: what needs no learning.

Its machine had a GPU, and its baselines were TensorFlow, TensorRT and TASO. Here onnxruntime on one
thread of the CPU stands for all three: without optimisations, with basic ones, with all, and with
the graphs that TASO's search or ours comes to.
"""

from __future__ import annotations

import contextlib
import dataclasses
import pathlib
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution.backends import Model
from environments.tensor_graphs.execution.inputs import random_inputs
from environments.tensor_graphs.execution.isolation import remote
from environments.tensor_graphs.execution.measuring import ratio_of
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.search import Budget
from environments.tensor_graphs.search.basic import taso
from environments.tensor_graphs.search.record import Record as Search
from environments.tensor_graphs.search.results import Visited
from tfrl_systems.settings import option
from tfrl_systems.systems.tensor_graphs.problem import (
    GraphProblem,
    Rewriting,
    find_model,
    num_operators,
)
from tools.studies import files
from tools.studies.study import Cell, Record, Records, Study, Table, Trial, first, mean, median

# Layers, unique layers and substitutions of the thesis's table 4.1, the smallest graph first.
_OF_THESIS = {
    "squeezenet-1.1": (21, 3, 288),
    "resnet-18": (18, 6, 40),
    "resnet-50": (50, 6, 228),
    "inception-v3": (43, 12, 56),
    "bert-base": (12, 3, 80),
}
THESIS_GRAPHS = tuple(_OF_THESIS)
"""The five graphs of the thesis."""
_OFF = "-disable"
# What onnxruntime is given, and at which of its levels of optimisation.
_PROGRAMS = {
    "no optimisations": ("model", _OFF),
    "basic ones": ("model", "-basic"),
    "all": ("model", ""),
    "TASO's search, none": ("taso", _OFF),
    "TASO's search, all": ("taso", ""),
    "regions, none": ("regions", _OFF),
    "regions, all": ("regions", ""),
}
_STEPS = (10, 30, 100, 300, 1000, 2000, 5000)
_WEIGHTED = ("Conv", "Gemm", "MatMul")

# Prints the MiB that a model keeps resident after three runs on inputs of an .npz file: its weights
# and the arena. What is free of the heap is given back first, because it may be as much as all
# that.
_MEMORY = """
import ctypes, pathlib, sys
import numpy as np
from environments.tensor_graphs.execution.backends import backend

def resident_kib():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith("VmRSS")).split()[1])

name, model, inputs = sys.argv[1:]
inputs, before_kib = dict(np.load(inputs)), resident_kib()
program = backend(name).open(pathlib.Path(model))
for _ in range(3):
    program.run(inputs)
ctypes.CDLL(None).malloc_trim(0)
print((resident_kib() - before_kib) / 1024)
"""


def compared(programs: Mapping[str, tuple[str, Model]], seconds: float) -> dict[str, Any]:
    """Measure models in turns, on one thread, each in a process of its own.

    Args:
      programs: suffix of onnxruntime's level of optimisation, and model, by name; all of them have
        the inputs of the first.
      seconds: wall time of all turns together.

    Returns:
      For each name the `ratio` [median, low, high] of its time over the first's, its time `ms`, and
      `memory_mib`, what a fresh process keeps resident of it.
    """
    names = list(programs)
    with tempfile.TemporaryDirectory(prefix="tfrl-") as folder:
        paths = []
        for number, (_, model) in enumerate(programs.values()):
            paths.append(
                model if isinstance(model, pathlib.Path) else _write(model, folder, number)
            )
        inputs = random_inputs(onnx.load(paths[0], load_external_data=False))
        feeds = pathlib.Path(folder) / "inputs.npz"
        np.savez(feeds, **inputs)
        levels = [f"onnxruntime{level}" for level, _ in programs.values()]
        sizes = [_memory_mib(level, path, feeds) for level, path in zip(levels, paths, strict=True)]
        with contextlib.ExitStack() as stack:
            opened = [
                stack.enter_context(remote.alone(remote.isolated(level))).open(path)
                for level, path in zip(levels, paths, strict=True)
            ]
            times_s = files.in_turns(opened, inputs, seconds)
    return {
        name: {
            "ratio": list(dataclasses.astuple(ratio_of(times_s[0], own_s))),
            "ms": 1e3 * sorted(own_s)[len(own_s) // 2],
            "memory_mib": memory_mib,
        }
        for name, own_s, memory_mib in zip(names, times_s, sizes, strict=True)
    }


def _write(model: onnx.ModelProto, folder: str, number: int) -> pathlib.Path:
    path = pathlib.Path(folder) / f"{number}.onnx"
    onnx.save(model, path)
    return path


def _memory_mib(level: str, model: pathlib.Path, feeds: pathlib.Path) -> float:
    command = [sys.executable, "-c", _MEMORY, level, str(model), str(feeds)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return float(done.stdout)


def properties(graph: Graph) -> dict[str, int]:
    """Return how large a graph is.

    A layer is an operator with weights. `depth` counts those on the longest path, as the names of
    ResNets do; `unique` those that differ in operator, attributes or shapes of weights.
    """
    depths: dict[int, int] = {}
    kinds, parameters = [], 0
    for number in graph.order():
        node = graph.nodes[number]
        below = [depths[ref.node] for ref in node.inputs if ref is not None]
        weights = [
            graph.type_of(ref)
            for ref in node.inputs
            if ref is not None and graph.is_constant(ref.node)
        ]
        is_layer = node.op in _WEIGHTED and bool(weights) and not graph.is_constant(number)
        depths[number] = max(below, default=0) + is_layer
        if is_layer:
            kinds.append((node.op, node.attributes, tuple(weights)))
        parameters += node.value.size if node.value is not None else 0
    return {
        "layers": len(kinds),
        "depth": max(depths.values()),
        "unique": len(set(kinds)),
        "parameters": parameters,
        "operators": num_operators(graph),
    }


class Improvements(Search):
    """A search that remembers when it found something cheaper.

    Attributes:
      points: [expansions, cost over the start's], from the start on.
    """

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.points: list[list[float]] = [[0, 1.0]]

    def count(self, visited: Visited) -> None:
        """Count an expansion; see `search.record.Record`."""
        super().count(visited)
        if self.best is visited:
            self.points.append([self.expansions, visited.cost_ms / self.start.cost_ms])


@dataclasses.dataclass(frozen=True, kw_only=True)
class Runtimes:
    """Which models are measured, and how long.

    Attributes:
      models: a model, an ONNX file or a built-in name; may be repeated.
      objective: the cost that searches minimise.
      expansions: the most rules that a search may apply; 5,000 in fig. 4.2.
      seconds: the most time for our search.
      measure_seconds: for all programs of a model.
      seeds: how many seeds, of the models' weights.
    """

    models: tuple[str, ...] = option(THESIS_GRAPHS, flag="--model", metavar="FILE|NAME")
    objective: str = option("onnxruntime", metavar="NAME")
    expansions: int = option(5000, metavar="N", minimum=1)
    seconds: float = option(60.0, metavar="N", positive=True)
    measure_seconds: float = option(10.0, metavar="N", positive=True)
    seeds: int = option(5, metavar="N", minimum=1)


def _of_runtimes(options: Runtimes) -> Iterator[Trial]:
    for model in options.models:
        for seed in range(options.seeds):
            about = {**dataclasses.asdict(options), "model": model, "seed": seed}
            del about["models"], about["seeds"]
            yield Trial(f"{pathlib.PurePath(model).name}-seed-{seed}", about)


def _measure_runtimes(about: Record, _: pathlib.Path) -> Record:
    source = find_model(about["model"], about["seed"])
    problem = GraphProblem.of(about["model"], source, Rewriting(objective=about["objective"]))
    backtracking = Improvements("taso", problem.start, Budget(expansions=about["expansions"]))
    results = {
        "taso": backtracking.run(taso),
        "regions": problem.search("regions", Budget(about["seconds"], about["expansions"])),
    }
    graphs = {name: onnx_io.write(result.best.graph) for name, result in results.items()}
    sources = {"model": source, **graphs}
    programs = {name: (level, sources[what]) for name, (what, level) in _PROGRAMS.items()}
    rules = {match.rule for match in problem.start.matches}
    return {
        **properties(problem.graph),
        "matches": len(problem.start.matches),
        "rules": len(rules),
        "costs": {
            name: result.best.cost_ms / result.start_cost_ms for name, result in results.items()
        },
        "improvements": backtracking.points,
        "expansions": results["taso"].expansions,
        "programs": compared(programs, about["measure_seconds"]),
    }


def _by_program(records: Records) -> Iterator[Record]:
    for record in records:
        for name, program in record["programs"].items():
            plain = record["programs"][next(iter(_PROGRAMS))]
            yield {
                **{"model": record["model"], "program": name, "ms": program["ms"]},
                "ratio": program["ratio"][0],
                "memory_mib": program["memory_mib"],
                "memory": 100 * (program["memory_mib"] / plain["memory_mib"] - 1),
            }


def by_steps(records: Records) -> Iterator[Record]:
    """Yield the share of what TASO's search saves that it has saved after some expansions."""
    for record in records:
        points = record["improvements"]
        (_, least) = points[-1]
        for step in _STEPS:
            if step > record["expansions"] or least == 1:
                continue
            cost = min(cost for expansions, cost in points if expansions <= step)
            share = 100 * (1 - cost) / (1 - least)
            yield {"model": record["model"], "expansions": f"{step:,}", "share": share}


def _expansions_of_best(record: Record) -> float:
    (num_expansions, _) = record["improvements"][-1]
    return num_expansions


def _thesis(place: int) -> Cell:
    return lambda records: str(_OF_THESIS.get(records[0]["model"], ("", "", ""))[place])


RUNTIMES = Study(
    """The graphs of the thesis and its baselines, without learning: table 4.1, figs. 4.1 and 4.2.

Measured are onnxruntime's levels of optimisation, TASO's search and ours. The thesis repeats TASO's
search and shows its spread. Here the search is the same on every run of a model, so seeds are those
of the models' weights, by which it breaks ties. Table 4.1 does not say how it counts; here layers
are operators with weights.""",
    Runtimes,
    _of_runtimes,
    _measure_runtimes,
    [
        Table(
            "Graphs (table 4.1): layers are operators with weights, matches what rules can do.",
            ("model",),
            {
                "layers": first("layers"),
                "on the longest path": first("depth"),
                "thesis: layers": _thesis(0),
                "unique": first("unique"),
                "thesis: unique": _thesis(1),
                "operators": first("operators"),
                "parameters": first("parameters", "{:,}"),
                "matches": first("matches"),
                "of rules": first("rules"),
                "thesis: substitutions": _thesis(2),
            },
            label="graph",
        ),
        Table(
            "Time and memory over those without optimisations (fig. 4.1 and table 4.2). Median "
            "(range) over seeds.",
            ("model", "program"),
            {
                "ms": median("ms"),
                "ratio": median("ratio", "{:.3f}"),
                "MiB": median("memory_mib", "{:.0f}"),
                "memory": median("memory", "{:+.1f}%"),
            },
            derive=_by_program,
            label="graph, program",
        ),
        Table(
            "Share of its saving that TASO's search has found after so many expansions, % (fig. "
            "4.2). Mean (range) over seeds.",
            ("model",),
            {"": mean("share", "{:.0f}")},
            across="expansions",
            derive=by_steps,
            label="graph",
        ),
        Table(
            "What searches save of the estimated cost. Median (range) over seeds.",
            ("model",),
            {
                "TASO": median(lambda record: 100 * (record["costs"]["taso"] - 1), "{:.2f}%"),
                "expansions of its best": median(_expansions_of_best, "{:,.0f}"),
                "regions": median(lambda record: 100 * (record["costs"]["regions"] - 1), "{:.2f}%"),
            },
            label="graph",
        ),
    ],
)
