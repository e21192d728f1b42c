"""How the metrics that rewards may be made of go together (fig. 4.5 of the thesis)."""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
import random
from collections.abc import Iterator

import numpy as np

from environments.tensor_graphs.observation.tracking import Tracker
from environments.tensor_graphs.observation.view import View
from tfrl_systems.settings import option
from tfrl_systems.systems.tensor_graphs.problem import GraphProblem, Rewriting, find_model
from tools.studies.study import Record, Records, Study, Table, Trial, median

_FIGURES = ("runtime", "FLOPs", "memory accesses", "kernels")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Metrics:
    """Whose metrics are compared along random episodes.

    Attributes:
      models: a model, an ONNX file or a built-in name; may be repeated.
      objectives: what estimates runtimes; may be repeated.
      episodes: of each seed.
      steps: of each episode, if so many are possible.
      seeds: how many seeds, of the random steps.
    """

    models: tuple[str, ...] = option(("bert-base",), flag="--model", metavar="FILE|NAME")
    objectives: tuple[str, ...] = option(
        ("onnxruntime", "analytic"), flag="--objective", metavar="NAME"
    )
    episodes: int = option(4, metavar="N", minimum=1)
    steps: int = option(60, metavar="N", minimum=1)
    seeds: int = option(5, metavar="N", minimum=1)


def _of_metrics(options: Metrics) -> Iterator[Trial]:
    about = {"episodes": options.episodes, "steps": options.steps}
    for model, objective in itertools.product(options.models, options.objectives):
        for seed in range(options.seeds):
            name = f"{pathlib.PurePath(model).name}-{objective}-seed-{seed}"
            yield Trial(name, {**about, "model": model, "objective": objective, "seed": seed})


def _measure_metrics(about: Record, _: pathlib.Path) -> Record:
    """Take random steps; return [runtime, FLOPs, bytes, kernels] of each state by episode."""
    rewriting = Rewriting(objective=about["objective"])
    start = GraphProblem.of(about["model"], find_model(about["model"]), rewriting).start
    generator, episodes = random.Random(about["seed"]), []
    for _number in range(about["episodes"]):
        view = View("", start, Tracker(start.graph, start.node_costs_ms, True))
        rows = [view.work.tolist()]
        while view.state.matches and len(rows) <= about["steps"]:
            view.advance(view.state.apply(generator.choice(view.state.matches)))
            rows.append(view.work.tolist())
        episodes.append(rows)
    return {"episodes": episodes}


def correlations(records: Records) -> Iterator[Record]:
    """Yield the correlation of each pair of metrics: of their values, and of their changes."""
    for record in records:
        values = [np.array(rows) for rows in record["episodes"]]
        kinds = {"values": values, "changes": [np.diff(rows, axis=0) for rows in values]}
        for kind, parts in kinds.items():
            table = np.concatenate(parts)
            about = {name: record[name] for name in ("model", "objective")} | {"kind": kind}
            for (row, name), (column, beside) in itertools.product(enumerate(_FIGURES), repeat=2):
                both = table[:, row], table[:, column]
                has_both = all(np.ptp(numbers) for numbers in both)
                share = float(np.corrcoef(*both)[0, 1]) if has_both else None
                yield {**about, "metric": name, "beside": beside, "correlation": share}


METRICS = Study(
    """How runtime, FLOPs, memory accesses and kernels go together (fig. 4.5 of the thesis).

Along episodes of random steps; "changes" are those that single steps make. The thesis records
them while an agent trains.""",
    Metrics,
    _of_metrics,
    _measure_metrics,
    [
        Table(
            "Pearson's correlation. Median (range) over seeds.",
            ("model", "objective", "kind", "metric"),
            {"": median("correlation")},
            across="beside",
            derive=correlations,
        )
    ],
)
