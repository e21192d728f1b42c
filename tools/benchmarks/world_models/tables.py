"""Markdown tables of what policies came to that learned from few real steps."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from tools.benchmarks import shared


def of_graphs(found: Sequence[shared.Record], searches: Sequence[shared.Record]) -> str:
    """Return what episodes saved, by model and by who played them, and what searches saved."""
    rows = []
    for model in _all("model", found):
        of_model = _where(found, "model", model)
        for label in _all("label", of_model):
            of_it = _where(of_model, "label", label)
            rows.append(
                [
                    f"{model}, {label}",
                    _range([one["environment_steps"] for one in of_it], "{:.0f}"),
                    *_played(of_it),
                    _range([one["seconds"] for one in of_it], "{:.0f}"),
                ]
            )
        rows += [
            [
                f"{model}, regions",
                f"{one['expansions']} expansions",
                "",
                "",
                _saved([one["best"]]),
                f"{one['seconds']:.0f}",
            ]
            for one in _where(searches, "model", model)
        ]
    header = ["", "real steps", "likeliest actions", "mean", "best", "s"]
    return shared.markdown_table(header, rows)


def of_temperatures(found: Sequence[shared.Record]) -> str:
    """Return what the dreams of controllers came to, and what they came to in reality."""
    rows = []
    for label in _all("label", found):
        of_it = _where(found, "label", label)
        rows.append(
            [
                label,
                _range([one["world_model"]["dreamed_return"] for one in of_it], "{:.2f}"),
                _range([one["return"] for one in of_it], "{:.2f}"),
                *_played(of_it),
            ]
        )
    header = [
        "τ",
        "dreamed return",
        "real return",
        "likeliest actions",
        "mean of all",
        "best of all",
    ]
    return shared.markdown_table(header, rows)


def of_parts(found: Sequence[shared.Record]) -> str:
    """Return the mean saving of episodes, by part of the world model and by model."""
    models = _all("model", found)
    rows = []
    for label in _all("label", found):
        of_it = _where(found, "label", label)
        by_model = [_where(of_it, "model", model) for model in models]
        means = [statistics.fmean(1 - one["mean"] for one in each) for each in by_model]
        rows.append(
            [
                label,
                *(_saved([one["mean"] for one in each]) for each in by_model),
                f"-{100 * statistics.fmean(means):.2f}%",
                f"{statistics.fmean(one['seconds'] for one in of_it):.0f}",
            ]
        )
    return shared.markdown_table(["mean of all episodes", *models, "mean", "s"], rows)


def of_measured(found: Sequence[shared.Record]) -> str:
    """Return the measured time of rewritten models, beside that of the model."""
    rows = []
    for label in _all("label", found):
        of_it = _where(found, "label", label)
        rows.append(
            [
                label,
                _range([one["environment_steps"] for one in of_it], "{:.0f}"),
                _range([one["ratio"] for one in of_it], "{:.3f}"),
                _range([one["seconds"] for one in of_it], "{:.0f}"),
            ]
        )
    return shared.markdown_table(["measured rewards", "real steps", "measured", "s"], rows)


def of_landscape(found: Sequence[shared.Record]) -> str:
    """Return the errors that agents came to from few evaluations of a function."""
    rows = []
    for agent in _all("agent", found):
        of_it = _where(found, "agent", agent)
        rows.append(
            [
                agent,
                _range([one["evaluations"] for one in of_it], "{:,.0f}"),
                _range([one["truth_evaluations"] for one in of_it], "{:,.0f}"),
                _range([one["mse"] for one in of_it], "{:.3g}"),
                f"{statistics.fmean(one['seconds'] for one in of_it):.0f}",
            ]
        )
    return shared.markdown_table(
        ["shifted Ackley", "evaluations", "of the truth", "MSE", "s"], rows
    )


def _all(name: str, found: Iterable[shared.Record]) -> list[str]:
    """Return the values of a field, each once, in the order in which they come."""
    return list(dict.fromkeys(one[name] for one in found))


def _where(found: Iterable[shared.Record], name: str, value: str) -> list[shared.Record]:
    return [one for one in found if one[name] == value]


def _played(of_it: Sequence[shared.Record]) -> list[str]:
    """Return what episodes saved: of the likeliest actions, in the mean, at best."""
    greedy = [one["greedy"] for one in of_it if one["greedy"] is not None]
    return [
        _saved(greedy) if greedy else "",
        *(_saved([one[name] for one in of_it]) for name in ("mean", "best")),
    ]


def _saved(costs: Iterable[float]) -> str:
    """Return the median saving in percent, and the range if there are several."""
    return _range([100 * (cost - 1) for cost in costs], "{:.2f}%")


def _range(values: Sequence[float], pattern: str) -> str:
    """Return the median, and the range if values differ."""
    low, high = pattern.format(min(values)), pattern.format(max(values))
    median = pattern.format(statistics.median(values))
    return median if low == high else f"{median} ({low}..{high})"
