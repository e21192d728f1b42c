"""Pictures for TensorBoard and for reports, which matplotlib draws if it is there."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np

_DPI = 100
# Width and height of a cell, and of the margin around all cells and their labels.
_CELL_INCHES = 0.56, 0.2
_MARGIN_INCHES = 0.4, 0.6
# Width of a letter in a label. Column labels are turned by 45 degrees: the second number is about
# the ratio of their width, and of their height, to their length.
_LETTER_INCHES = 0.06
_TURN = 0.75


@runtime_checkable
class Picture(Protocol):
    """What TensorBoard can show as an image."""

    def to_image(self) -> np.ndarray | None:
        """Return the picture, uint8 [H, W, 3]; None if there is nothing to draw, or no way to."""


def drawn(inches: tuple[float, float], draw_fn: Callable[[Any], None]) -> np.ndarray | None:
    """Return what `draw_fn` draws on a figure, width by height; None without matplotlib."""
    try:
        from matplotlib import figure
        from matplotlib.backends import backend_agg
    except ImportError:
        return None
    picture = figure.Figure(figsize=inches, dpi=_DPI, layout="constrained")
    canvas = backend_agg.FigureCanvasAgg(picture)
    draw_fn(picture)
    canvas.draw()
    return np.array(canvas.buffer_rgba())[..., :3]


@dataclasses.dataclass(frozen=True)
class Heatmap:
    """A table of numbers with a name for each row and column.

    Attributes:
      title: title of the picture, which says what is counted.
      rows: names of the rows, from the top.
      columns: names of the columns, from the left.
      values: one tuple for each row, with a number for each column.
    """

    title: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, title: str, counts: Mapping[str, Mapping[str, float]]) -> Heatmap:
        """Make a heatmap from counts[column][row]; sort the rows, and leave out empty ones."""
        used = {row for column in counts.values() for row, count in column.items() if count}
        rows = tuple(sorted(used))
        values = tuple(
            tuple(float(row_counts.get(row, 0)) for row_counts in counts.values()) for row in rows
        )
        return cls(title, rows, tuple(counts), values)

    def draw_on(self, axes: Any) -> None:
        """Draw the table on matplotlib's `axes`, with each number in its cell except zeros."""
        values = np.array(self.values)
        axes.imshow(values, cmap="Blues", aspect="auto", vmin=0, vmax=1.4 * values.max())
        for row, column in zip(*np.nonzero(values), strict=True):
            text = f"{values[row, column]:.3g}"
            axes.text(column, row, text, ha="center", va="center", fontsize=6)
        axes.set_xticks(range(len(self.columns)), self.columns, rotation=45, ha="right")
        axes.set_yticks(range(len(self.rows)), self.rows)
        axes.tick_params(labelsize=6, length=0)
        axes.set_title(self.title, fontsize=8)

    @property
    def inches(self) -> tuple[float, float]:
        """Return the width and height that the picture needs, in inches."""
        of_rows, of_columns = (
            _LETTER_INCHES * max(map(len, names), default=0) for names in (self.rows, self.columns)
        )
        # The first column's label and the title can reach beyond the cells.
        cells = _CELL_INCHES[0] * len(self.columns)
        labels = max(of_rows, _TURN * of_columns - _CELL_INCHES[0] / 2)
        width = labels + max(cells, _LETTER_INCHES * len(self.title))
        height = _CELL_INCHES[1] * len(self.rows) + _TURN * of_columns
        return width + _MARGIN_INCHES[0], height + _MARGIN_INCHES[1]

    def to_image(self) -> np.ndarray | None:
        """Return the picture, uint8 [H, W, 3]; None without counts or without matplotlib."""
        if not self.rows:
            return None
        return drawn(self.inches, lambda figure: self.draw_on(figure.subplots()))
