"""Pictures for TensorBoard, which matplotlib draws if it is there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

_DPI = 100


@runtime_checkable
class Picture(Protocol):
    """What TensorBoard can show as an image."""

    def to_image(self) -> np.ndarray | None:
        """Return the picture, uint8 [H, W, 3]; None if there is nothing to draw, or no way to."""


def drawn(inches: tuple[float, float], draw_fn: Callable[[Any], None]) -> np.ndarray | None:
    """Return what a function draws on a figure of matplotlib; None without matplotlib.

    Args:
      inches: width and height.
      draw_fn: draws on the figure.
    """
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
