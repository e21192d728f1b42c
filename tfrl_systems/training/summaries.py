"""Curves for TensorBoard, one event file for each checkpoint.

A resumed run writes again the points that the killed run had written after its last checkpoint. The
new file replaces the old one, so no curve has a point twice.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl_systems.training.picture import Picture

Value = float | np.ndarray | Picture | None
"""A point of a curve, numbers [N] for a histogram, or a picture. Left out are None, NaN, and
pictures that cannot be drawn because matplotlib is missing or there is nothing to count."""

Row = tuple[int, Mapping[str, Value]]
"""(step, values by tag)."""


def write_curves(directory: pathlib.Path, number: int, rows: Sequence[Row]) -> None:
    """Write the points since the last checkpoint.

    Args:
      directory: directory of the event files; TensorBoard names the run after it.
      number: number of the checkpoint.
      rows: the points; without any, no file is written.
    """
    if not rows:
        return
    with _replace_events(directory, f".checkpoint-{number:06d}").as_default():
        for step, values in rows:
            for tag, value in values.items():
                _write(tag, value, step)


def write_settings(directory: pathlib.Path, settings: Mapping[str, Any]) -> None:
    """Write a run's settings as a table, which replaces that of an earlier start."""
    rows = [f"| {name} | {_cell(value)} |" for name, value in sorted(settings.items())]
    with _replace_events(directory, ".settings").as_default():
        tf.summary.text("settings", "\n".join(["| setting | value |", "|---|---|", *rows]), 0)


_LARGEST = float(np.finfo(np.float32).max)


def _replace_events(directory: pathlib.Path, suffix: str) -> tf.summary.SummaryWriter:
    for stale in directory.glob(f"*{suffix}"):
        stale.unlink()
    return tf.summary.create_file_writer(str(directory), filename_suffix=suffix)


def _write(tag: str, value: Value, number: int) -> None:
    # TensorFlow would keep each new Python number for ever, but not NumPy's.
    step = np.int64(number)
    if isinstance(value, Picture):
        image = value.to_image()
        if image is not None:
            tf.summary.image(tag, image[None], step)
    elif isinstance(value, np.ndarray):
        tf.summary.histogram(tag, value, step)
    elif value is not None and not math.isnan(value):
        # TensorBoard's numbers are float32; the values of a function may be larger.
        tf.summary.scalar(tag, np.float32(np.clip(value, -_LARGEST, _LARGEST)), step)


def _cell(value: Any) -> str:
    """Return a setting's value as text for a Markdown table."""
    return str(value).replace("|", "\\|").replace("\n", " ")
