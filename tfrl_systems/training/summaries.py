"""Scalars for TensorBoard, one event file for each iteration.

An iteration that a killed run left unfinished is written again when the run is resumed: its file
replaces the earlier one, so that no curve has a point twice.
"""

from __future__ import annotations

import math
import pathlib
from collections.abc import Mapping

import tensorflow as tf


def write_scalars(directory: pathlib.Path, step: int, scalars: Mapping[str, float | None]) -> None:
    """Writes the scalars of one iteration.

    Args:
      directory: what `tensorboard --logdir` is given.
      step: number of the iteration.
      scalars: by tag; what is None or not a number is left out.
    """
    suffix = f".iteration-{step:04d}"
    for stale in directory.glob(f"*{suffix}"):
        stale.unlink()
    writer = tf.summary.create_file_writer(str(directory), filename_suffix=suffix)
    with writer.as_default(step=step):
        for tag, value in scalars.items():
            if value is not None and not math.isnan(value):
                tf.summary.scalar(tag, value)
    writer.close()
