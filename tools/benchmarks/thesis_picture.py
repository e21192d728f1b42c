"""The picture of the learning curves of `thesis_tables.py`."""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tools.benchmarks import shared
from tools.benchmarks.thesis_cases import DISTRIBUTED, SAMPLED, SAMPLERS, Case

Record = Mapping[str, Any]

_POINTS = 50
_STYLES = {
    "random": ("#0072b2", "-"),
    "latin_hypercube": ("#d55e00", "-"),
    "uncertainty": ("#009e73", "-"),
    "heterogeneous": ("#cc79a7", "-"),
    "in one process": ("#0072b2", "-"),
    "with 2 others": ("#d55e00", "o"),
}


def curves(sampled: Sequence[Record], distributed: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the lines of the picture: errors by iteration, with mean and range over the seeds.

    Args:
      sampled: records of the runs on `SAMPLED`, with each sampler.
      distributed: records of the runs on `DISTRIBUTED`, in one process and with workers.
    """
    found = []
    for case in SAMPLED:
        for sampler in SAMPLERS:
            wanted = [
                one
                for one in sampled
                if (one["function"], one["dimensions"]) == (case.function, case.dimensions)
                and one["sampler"] == sampler
            ]
            found.append(_line(case, sampler, wanted))
    for label, is_alone in (("in one process", True), ("with 2 others", False)):
        wanted = [one for one in distributed if (not one["workers"]) == is_alone]
        found.append(_line(DISTRIBUTED, label, wanted))
    return found


def _line(case: Case, label: str, runs: Sequence[Record]) -> dict[str, Any]:
    thinned = [thin(one["curve"], case.measure) for one in runs]
    points = list(zip(*thinned, strict=True))
    return {
        "function": case.function,
        "measure": case.measure,
        "line": label,
        "iteration": [each[0][0] for each in points],
        "mean": [statistics.fmean(error for _, error in each) for each in points],
        "min": [min(error for _, error in each) for each in points],
        "max": [max(error for _, error in each) for each in points],
    }


def thin(curve: Sequence[Record], measure: str) -> list[tuple[int, float]]:
    """Thin a curve to at most 50 points: means of successive evaluations, at the last iteration."""
    size = -(-len(curve) // _POINTS)
    parts = [curve[start : start + size] for start in range(0, len(curve), size)]
    return [
        (part[-1]["iteration"], statistics.fmean(one[measure] for one in part)) for part in parts
    ]


def draw(lines: Sequence[Mapping[str, Any]], output: pathlib.Path) -> None:
    """Draw one panel for each function, with the range over the seeds.

    Raises:
      UserError: matplotlib is not installed.
    """
    functions = list(dict.fromkeys(one["function"] for one in lines))
    with shared.picture(output / "thesis", (7.6, 5.2), 8) as drawn:
        panels = drawn.subplots(2, -(-len(functions) // 2), squeeze=False).ravel()
        for panel, function in zip(panels, functions, strict=True):
            for line in (one for one in lines if one["function"] == function):
                colour, style = _STYLES[line["line"]]
                label = line["line"].replace("_", " ")
                size = {"markersize": 2.5} if style == "o" else {"linewidth": 1.2}
                panel.plot(
                    line["iteration"], line["mean"], style, color=colour, label=label, **size
                )
                panel.fill_between(
                    line["iteration"], line["min"], line["max"], color=colour, alpha=0.12, lw=0
                )
                panel.set_ylabel(line["measure"].upper())
            panel.set(title=function.replace("_", " "), xlabel="iteration", yscale="log")
            panel.grid(alpha=0.3)
            panel.legend(fontsize=6)
