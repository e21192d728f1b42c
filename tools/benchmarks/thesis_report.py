"""The tables of `thesis_tables.py`, computed from its records."""

from __future__ import annotations

import collections
import dataclasses
import json
import pathlib
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tools.benchmarks import thesis_picture
from tools.benchmarks.inlining_report import Spread
from tools.benchmarks.shared import markdown_table
from tools.benchmarks.thesis_cases import (
    DISTRIBUTED,
    EXPERIMENTS,
    QUALITY,
    SAMPLED,
    SAMPLERS,
    Case,
)

Record = Mapping[str, Any]

# Results in chapter 6 of the thesis. By number of drivers: seconds collecting, rho, rho*.
THESIS_RUNTIME = {1: (30341, 1.0, 1.0), 2: (15516, 1.96, 1.95), 4: (8259, 3.67, 3.64)}
THESIS_RUNTIME[8] = (4856, 6.25, 6.13)
# By function and sampler: mean and variance of the error in the first 1,000 steps, the same in the
# last 1,000, and the best of all steps.
THESIS_SAMPLERS = {
    "ackley": {
        "random": (1.6, 3.6, 0.6, 0.2, 0.018),
        "latin_hypercube": (1.9, 4.47, 0.4, 0.03, 0.00081),
        "uncertainty": (2.3, 2.92, 0.4, 0.09, 0.04),
        "heterogeneous": (1.3, 1.59, 0.6, 0.07, 0.15),
    },
    "rosenbrock": {
        "random": (17.1, 71.8, 15.3, 19.5, 3.0),
        "latin_hypercube": (19.4, 45.1, 16.1, 11.7, 2.8),
        "uncertainty": (16, 48.9, 14.5, 36.2, 1.1),
        "heterogeneous": (15.1, 62.2, 9.7, 14.0, 1.4),
    },
}
_FIGURES = ("first_mean", "first_variance", "last_mean", "last_variance", "best")
_SECONDS = ("collecting", "broadcasting", "waiting", "training")


def window(curve: Sequence[Record], measure: str, first: bool) -> list[float]:
    """Return the errors in the first or in the last tenth of a training.

    Args:
      curve: evaluations of the training.
      measure: "mse" or "msle".
      first: whether to take the first tenth. If no evaluation lies in it, the first one is taken.
    """
    total = curve[-1]["iteration"]
    if first:
        chosen = [one for one in curve if one["iteration"] <= 0.1 * total] or curve[:1]
    else:
        chosen = [one for one in curve if one["iteration"] > 0.9 * total]
    return [one[measure] for one in chosen]


def figures(curve: Sequence[Record], measure: str) -> dict[str, float]:
    """Return the thesis's figures of a training: mean and variance at both ends, and the best."""
    first, last = (window(curve, measure, is_first) for is_first in (True, False))
    return {
        "first_mean": statistics.fmean(first),
        "first_variance": statistics.pvariance(first),
        "last_mean": statistics.fmean(last),
        "last_variance": statistics.pvariance(last),
        "best": min(one[measure] for one in curve),
    }


def rho(timings: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the rows of Table 6.1 for one function.

    The thesis measures how long learning waits for collecting, so its t_collecting is our time
    waiting. With t(k) for the time with k processes, rho = t(1) / t(k). For rho*, the time
    broadcasting is added to t(k).

    Args:
      timings: records of one function; in the first, the learning process collects itself.
    """
    alone = timings[0]["seconds"]["waiting"] / timings[0]["timed_iterations"]
    rows = []
    for one in timings:
        each = {name: one["seconds"][name] / one["timed_iterations"] for name in _SECONDS}
        rows.append(
            {
                "function": one["function"],
                "workers": one["workers"],
                **{f"{name}_ms": 1e3 * each[name] for name in _SECONDS},
                "rho": alone / each["waiting"],
                "rho_star": alone / (each["waiting"] + each["broadcasting"]),
            }
        )
    return rows


def select(records: Iterable[Record], case: Case, **wanted: Any) -> list[Record]:
    """Return the records of a case that have the given values."""
    wanted = {**dataclasses.asdict(case), **wanted}
    return [one for one in records if all(one[name] == wanted[name] for name in wanted)]


def summarise(
    timings: Sequence[Record],
    runs: Sequence[Record],
    baselines: Sequence[Record],
    about: Mapping[str, Any],
) -> dict[str, Any]:
    """Compute all figures of the tables, as JSON values."""
    by_function = collections.defaultdict(list)
    for one in timings:
        by_function[one["function"]].append(one)
    by_experiment = {
        name: [one for one in runs if one["experiment"] == name] for name in EXPERIMENTS
    }
    sampled, distributed = by_experiment["samplers"], by_experiment["distributed"]
    agents = list(dict.fromkeys(one["agent"] for one in by_experiment["quality"]))
    return {
        **about,
        "agents": agents,
        "seeds": sorted({one["seed"] for one in runs}),
        "iterations": {name: found[0]["iterations"] for name, found in by_experiment.items()},
        "runtime": [row for each in by_function.values() for row in rho(each)],
        "samplers": [
            {"function": case.function, "sampler": sampler, **_spread_of_figures(found, case)}
            for case in SAMPLED
            for sampler in SAMPLERS
            for found in (select(sampled, case, sampler=sampler),)
        ],
        "distributed": _distributed(distributed),
        "quality": [
            _quality(case, agents, by_experiment["quality"], baselines) for case in QUALITY
        ],
        "curves": thesis_picture.curves(sampled, distributed),
    }


def _spread_of_figures(found: Sequence[Record], case: Case) -> dict[str, Any]:
    each = [figures(one["curve"], case.measure) for one in found]
    spreads = {name: Spread.of([one[name] for one in each]) for name in _FIGURES}
    return {"measure": case.measure, **{name: vars(one) for name, one in spreads.items()}}


def _distributed(found: Sequence[Record]) -> dict[str, Any]:
    alone = {one["seed"]: one for one in found if not one["workers"]}
    others = {one["seed"]: one for one in found if one["workers"]}
    same = [
        all(
            alone[seed][name] == others[seed][name]
            for name in ("experience_sha256", "policy_sha256")
        )
        for seed in alone
    ]
    return {
        "function": DISTRIBUTED.function,
        "workers": found[-1]["workers"],
        "runs": len(same),
        "identical": sum(same),
        **{
            name: _last_errors(list(one.values()), DISTRIBUTED)
            for name, one in (("in_process", alone), ("processes", others))
        },
    }


def _last_errors(found: Sequence[Record], case: Case) -> dict[str, float]:
    late = [statistics.fmean(window(one["curve"], case.measure, first=False)) for one in found]
    return vars(Spread.of(late))


def _quality(
    case: Case, agents: Sequence[str], runs: Sequence[Record], baselines: Sequence[Record]
) -> dict[str, Any]:
    rows = []
    for agent in agents:
        found = select(runs, case, agent=agent)
        spent = [one["seconds"]["waiting"] + one["seconds"]["broadcasting"] for one in found]
        spent = [s + one["seconds"]["training"] for s, one in zip(spent, found, strict=True)]
        rows.append(
            {
                "policy": agent,
                "error": _last_errors(found, case),
                "runs": len(found),
                "seconds": vars(Spread.of(spent)),
            }
        )
    for name in dict.fromkeys(one["agent"] for one in select(baselines, case)):
        found = select(baselines, case, agent=name)
        rows.append(
            {
                "policy": name,
                "error": vars(Spread.of([one[case.measure] for one in found])),
                "runs": len(found),
                "microseconds_per_query": found[0]["microseconds_per_query"],
            }
        )
    return {**dataclasses.asdict(case), "measure": case.measure, "rows": rows}


def write(
    timings: Sequence[Record],
    runs: Sequence[Record],
    baselines: Sequence[Record],
    about: Mapping[str, Any],
    output: pathlib.Path,
) -> None:
    """Write table.json, table.md, thesis.png and thesis.svg."""
    table = summarise(timings, runs, baselines, about)
    output.mkdir(parents=True, exist_ok=True)
    text = json.dumps(table, indent=1, allow_nan=False)
    (output / "table.json").write_text(text + "\n", encoding="utf-8")
    (output / "table.md").write_text(to_markdown(table), encoding="utf-8")
    thesis_picture.draw(table["curves"], output)


def to_markdown(table: Mapping[str, Any]) -> str:
    """Format the tables as Markdown."""
    iterations = {name: f"{number:,} iterations" for name, number in table["iterations"].items()}
    parts = [
        f"Mean (min..max) over {len(table['seeds'])} seeds. The thesis took the run with the best "
        "policy of three.",
        f"**Table 6.1.** Milliseconds an iteration of 64 episodes of 2 steps, on "
        f"{table['processors']} processors. *Collecting* is the work of all processes together, "
        "*waiting* how long learning waited for it. ρ is the time waiting in process through that "
        "with k processes, ρ* the same with broadcasting.",
        _runtime(table["runtime"]),
    ]
    for number, case in enumerate(SAMPLED, start=2):
        title = f"Table 6.{number}" if case.function in THESIS_SAMPLERS else "Not in the thesis"
        parts += [
            f"**{title}.** {case.measure.upper()} on {case.title} in the first and in the last "
            f"tenth of {iterations['samplers']}: mean and variance of the evaluations, and the "
            "best one, which is chosen by what it is measured on.",
            _samplers([one for one in table["samplers"] if one["function"] == case.function]),
        ]
    distributed = table["distributed"]
    parts += [
        f"**Figures 6.3, 6.4.** {distributed['identical']} of {distributed['runs']} runs on "
        f"{DISTRIBUTED.title} with {distributed['workers']} processes have the experience and the "
        "policy of the run in one process, to the bit. MSLE in the last tenth of "
        f"{iterations['distributed']}: "
        f"{show(distributed['processes'])} and {show(distributed['in_process'])}.",
        f"**Quality.** Mean error in the last tenth of {iterations['quality']}; of policies that "
        "are not trained so, their error.",
        *(_quality_table(one) for one in table["quality"]),
        f"Made by `{table['command']}` at commit {table['commit']}.",
    ]
    return "\n\n".join(parts) + "\n"


def _runtime(rows: Sequence[Record]) -> str:
    header = ["function", "k", *_SECONDS, "ρ", "ρ*", "thesis: ρ", "ρ*"]
    cells = []
    for one in rows:
        thesis = THESIS_RUNTIME.get(one["workers"]) if one["function"] == "ackley" else None
        cells.append(
            [
                Case(one["function"]).slug.replace("_", " "),
                str(one["workers"] or "in process"),
                *(f"{one[f'{name}_ms']:.2f}" for name in _SECONDS),
                *(f"{one[name]:.2f}" for name in ("rho", "rho_star")),
                *((f"{thesis[1]:.2f}", f"{thesis[2]:.2f}") if thesis else ("", "")),
            ]
        )
    return markdown_table(header, cells)


def _samplers(rows: Sequence[Record]) -> str:
    header = ["sampler", "first: mean", "variance", "last: mean", "variance", "best"]
    cells = []
    for one in rows:
        name = one["sampler"].replace("_", " ")
        cells.append([name, *(show(one[figure]) for figure in _FIGURES)])
        thesis = THESIS_SAMPLERS.get(one["function"], {}).get(one["sampler"])
        if thesis:
            cells.append([f"{name}, thesis", *(f"{value:g}" for value in thesis)])
    return markdown_table(header, cells)


def _quality_table(found: Record) -> str:
    case = Case(found["function"], found["dimensions"], found["free"])
    cells = []
    for one in found["rows"]:
        made = f"{one['seconds']['mean']:.0f} s training" if "seconds" in one else ""
        if "microseconds_per_query" in one:
            made = f"{one['microseconds_per_query']:,.0f} µs a query"
        cells.append([one["policy"], show(one["error"]), str(one["runs"]), made])
    return markdown_table([case.title, case.measure.upper(), "runs", ""], cells)


def show(spread: Mapping[str, float]) -> str:
    """Format mean and range with two digits."""
    if spread["min"] == spread["max"]:
        return f"{spread['mean']:.2g}"
    return f"{spread['mean']:.2g} ({spread['min']:.2g}..{spread['max']:.2g})"
