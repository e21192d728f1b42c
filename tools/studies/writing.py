"""Writes the tables of a study as Markdown, and its pictures."""

from __future__ import annotations

import pathlib
import statistics
from collections.abc import Iterable, Sequence

from tools.studies.study import Picture, Record, Records, Table

_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")


def to_markdown(table: Table, records: Records) -> str:
    """Return a table of the records, below its title."""
    shown = list(table.derive(records))
    groups = grouped(shown, table.rows)
    parts = list(grouped(shown, (table.across,))) if table.across else [()]
    header = [table.label]
    for part in parts:
        header += [": ".join(filter(None, (*part, heading))) for heading in table.columns]
    rows = []
    for name, group in groups.items():
        cells = [", ".join(filter(None, name))]
        for part in parts:
            members = grouped(group, (table.across,)).get(part, []) if part else group
            cells += [cell(members) if members else "" for cell in table.columns.values()]
        rows.append([cell.replace("|", "/") for cell in cells])
    # The first column is aligned left, the others right.
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join([table.title, "", *(f"| {' | '.join(cells)} |" for cells in lines)])


def grouped(records: Iterable[Record], fields: Sequence[str]) -> dict[tuple[str, ...], list]:
    """Return the records by the values of some fields, in the order in which they come."""
    groups: dict[tuple[str, ...], list] = {}
    for record in records:
        groups.setdefault(tuple(str(record[field]) for field in fields), []).append(record)
    return groups


def draw(picture: Picture, records: Records, output: pathlib.Path) -> None:
    """Write a picture as .svg.

    Raises:
      ImportError: matplotlib is not installed.
    """
    import matplotlib
    from matplotlib import figure

    panels = grouped(picture.derive(records), ("panel",))
    if not panels:
        return
    # The fixed salt and the missing date make equal pictures equal files.
    with matplotlib.rc_context({"svg.hashsalt": "tfrl", "font.size": 8}):
        drawn = figure.Figure(figsize=(3.8 * len(panels), 3.0), layout="constrained")
        axes = drawn.subplots(1, len(panels), squeeze=False)[0]
        for axis, ((title,), points) in zip(axes, panels.items(), strict=True):
            for number, ((line,), members) in enumerate(grouped(points, ("line",)).items()):
                colour = _COLOURS[number % len(_COLOURS)]
                values: dict[float, list[float]] = {}
                for point in members:
                    values.setdefault(point["iteration"], []).append(point["value"])
                places = sorted(values)
                lows, means, highs = (
                    [of_fn(values[place]) for place in places]
                    for of_fn in (min, statistics.fmean, max)
                )
                axis.plot(places, means, color=colour, linewidth=1.2, label=line)
                axis.fill_between(places, lows, highs, color=colour, alpha=0.15, linewidth=0)
            axis.grid(alpha=0.3)
            axis.legend(fontsize=6)
            axis.set(title=title, xlabel="iteration", ylabel=picture.label)
        drawn.savefig((output / picture.name).with_suffix(".svg"), metadata={"Date": None})
