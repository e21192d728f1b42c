"""The pictures of `tensor_graph_tables.py`, each as PNG and SVG."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from environments.errors import UserError
from tfrl_systems.training.heatmap import Heatmap
from tools.benchmarks.tensor_graphs.cases import SEARCHES, slug
from tools.benchmarks.tensor_graphs.walks import FIGURES, MEASURED
from tools.benchmarks.tensor_graphs.writing import TITLES

Table = Mapping[str, Any]

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
_FULLY_OPTIMISED = "onnxruntime"
_WIDTH_INCHES = 7.6


def draw(table: Table, output: pathlib.Path) -> None:
    """Draw the pictures that the table has figures for.

    Raises:
      UserError: matplotlib is not installed.
    """
    try:
        import matplotlib
        from matplotlib import figure
    except ImportError as error:
        raise UserError(
            f"pictures: expected matplotlib, found: {error}; pip install -e '.[notebooks]'"
        ) from error
    # The fixed salt and the missing date make equal pictures equal files.
    with matplotlib.rc_context({"svg.hashsalt": "tfrl", "font.size": 8}):
        for name, fill in _PICTURES.items():
            picture = figure.Figure(layout="constrained")
            if fill(picture, table):
                picture.savefig(output / f"{name}.png", dpi=160)
                picture.savefig(output / f"{name}.svg", metadata={"Date": None})


def _runtimes(picture: Any, table: Table) -> bool:
    """Draw the time that each method saves, estimated and measured (Fig. 4.1, 4.3)."""
    methods = [*SEARCHES, *table["agents"]]
    estimated = [
        {name: 100 * (1 - one["median"]) for name, one in row["methods"].items()}
        for row in table["quality"]
    ]
    measured = [
        {
            name: 100 * (1 - one[_FULLY_OPTIMISED]["ratio"]["value"])
            for name, one in row["methods"].items()
        }
        for row in table["times"]
    ]
    panels = [("estimated", estimated)] + [("measured", measured)] * any(measured)
    picture.set_size_inches(_WIDTH_INCHES, 2.4 * len(panels))
    width = 0.8 / len(methods)
    for axes, (title, rows) in zip(_panels(picture, len(panels), 1), panels, strict=True):
        for place, method in enumerate(methods):
            there = [number for number, row in enumerate(rows) if method in row]
            axes.bar(
                [number + width * (place - (len(methods) - 1) / 2) for number in there],
                [rows[number][method] for number in there],
                width,
                color=_COLOURS[place],
                label=method,
            )
        axes.set_xticks(range(len(rows)), map(slug, table["models"]), rotation=20, ha="right")
        axes.set(title=title, ylabel="time saved, %")
        axes.grid(axis="y", alpha=0.3)
        axes.margins(y=0.2)  # room for the legend
        axes.legend(fontsize=6, ncols=len(methods))
    return True


def _curves(picture: Any, table: Table) -> bool:
    """Draw the rewards while policies learn (Fig. 4.4)."""
    found = [one for one in table["curves"] if one["normalised"]]
    if not found:
        return False
    models = list(dict.fromkeys(one["model"] for one in found))
    columns = min(4, len(models))
    picture.set_size_inches(_WIDTH_INCHES, 2.0 * -(-len(models) // columns))
    panels = _panels(picture, -(-len(models) // columns), columns)
    for axes, model in zip(panels, models, strict=False):
        for place, agent in enumerate(table["agents"]):
            for one in found:
                if (one["model"], one["agent"]) == (model, agent):
                    spreads, steps = one["normalised"], one["environment_steps"]
                    _line(axes, steps, spreads, _COLOURS[place], agent)
        axes.set(title=slug(model), xlabel="real steps", ylabel="reward, normalised")
        axes.legend(fontsize=6)
    for axes in panels[len(models) :]:
        axes.set_axis_off()
    return True


def _line(axes: Any, x: Sequence[float], spreads: Sequence[Table], colour: str, label: str) -> None:
    marker = "" if len(x) > 1 else "."
    medians = [one["median"] for one in spreads]
    axes.plot(x, medians, color=colour, label=label, linewidth=1.2, marker=marker)
    low, high = ([one[end] for one in spreads] for end in ("min", "max"))
    axes.fill_between(x, low, high, color=colour, alpha=0.15, lw=0)
    axes.grid(alpha=0.3)


def _correlations(picture: Any, table: Table) -> bool:
    """Draw all figures of graphs against their times, for the first model (Fig. 4.5)."""
    if not table["correlations"]:
        return False
    found = table["correlations"][0]
    pairs = [(FIGURES[0], name) for name in FIGURES[1:]]
    pairs += [(MEASURED, name) for name in FIGURES if found["measured"]]
    rows = 1 + bool(found["measured"])
    picture.set_size_inches(_WIDTH_INCHES, 2.2 * rows)
    picture.suptitle(f"{slug(found['model'])}: graphs that random rules lead to", fontsize=8)
    panels = iter(_panels(picture, rows, 4))
    for row in range(rows):
        of_row = [pair for pair in pairs if (pair[0] == MEASURED) == bool(row)]
        for place in range(4):
            axes = next(panels)
            if place >= len(of_row):
                axes.set_axis_off()
                continue
            y, x = of_row[place]
            points = [one for one in found["points"] if y in one]
            axes.scatter([one[x] for one in points], [one[y] for one in points], s=4, alpha=0.5)
            value = found["spearman"][y][x]
            axes.set(xlabel=TITLES[x], ylabel=TITLES[y])
            axes.set_title("" if value is None else f"ρ = {value:.2f}", fontsize=8)
            axes.tick_params(labelsize=6)
    return True


def _rewards(picture: Any, table: Table) -> bool:
    """Draw the cost while policies learn with each reward (Fig. 4.6)."""
    rows = [one for one in table["rewards"]["rows"] if one["costs"]]
    if not rows:
        return False
    picture.set_size_inches(4.4, 2.8)
    axes = picture.subplots()
    for place, one in enumerate(rows):
        _line(axes, one["iterations"], one["costs"], _COLOURS[place], one["reward"])
    axes.set(
        title=slug(table["rewards"]["model"]),
        xlabel="iteration",
        ylabel="estimated cost over the original's",
    )
    axes.legend(fontsize=6)
    return True


def _substitutions(picture: Any, table: Table) -> bool:
    """Draw how often each rule is applied to each model (Fig. 4.11)."""
    title = f"applications of rules by {table['agents'][0]}, mean of the seeds"
    counts = {slug(model): found for model, found in table["substitutions"].items()}
    heatmap = Heatmap.of(title, counts)
    if not heatmap.rows:
        return False
    picture.set_size_inches(*heatmap.inches)
    heatmap.draw_on(picture.subplots())
    return True


def _panels(picture: Any, rows: int, columns: int) -> list[Any]:
    return list(picture.subplots(rows, columns, squeeze=False).ravel())


_PICTURES: Mapping[str, Callable[[Any, Table], bool]] = {
    "runtimes": _runtimes,
    "curves": _curves,
    "correlations": _correlations,
    "rewards": _rewards,
    "substitutions": _substitutions,
}
