"""Curves for TensorBoard, one event file for each checkpoint.

What a killed run had not checkpointed is written again when it is resumed: its file replaces the
earlier one, so that no curve has a point twice.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping, Sequence

import tensorflow as tf

from tfrl_systems.training.heatmap import Heatmap

Row = tuple[int, Mapping[str, float | Heatmap | None]]
"""(step, values by tag); what is None or not a number, and pictures that cannot be drawn (without
matplotlib, or because there is nothing to count), are left out."""


def write_curves(directory: pathlib.Path, number: int, rows: Sequence[Row]) -> None:
    """Writes the points since the last checkpoint.

    Args:
      directory: what `tensorboard --logdir` is given.
      number: of the checkpoint.
      rows: the points.
    """
    suffix = f".checkpoint-{number:06d}"
    for stale in directory.glob(f"*{suffix}"):
        stale.unlink()
    writer = tf.summary.create_file_writer(str(directory), filename_suffix=suffix)
    with writer.as_default():
        for step, values in rows:
            for tag, value in values.items():
                _write(tag, value, step)
    writer.close()


def _write(tag: str, value: float | Heatmap | None, step: int) -> None:
    if isinstance(value, Heatmap):
        image = value.to_image()
        if image is not None:
            tf.summary.image(tag, image[None], step)
    elif value is not None and not math.isnan(value):
        tf.summary.scalar(tag, value, step)
