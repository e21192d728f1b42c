"""Curves of an online run, and the event files in which TensorBoard finds them.

There is one event file for each checkpoint. A resumed run writes again the points that the killed
run had written after its last checkpoint. The new file replaces the old one, so no curve has a
point twice.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tfrl_systems.training.pictures import Picture

MAX_POINTS = 1000
"""A curve has no more points than this, and the last iteration's."""

Value = float | np.ndarray | Picture | None
"""A point of a curve, numbers [N] for a histogram, or a picture. Left out are None, NaN, and
pictures that cannot be drawn because matplotlib is missing or there is nothing to count."""

Row = tuple[int, Mapping[str, Value]]
"""(step, values by tag)."""

_TRAINING_FIGURES = ("iteration", "environment_steps", "mean_return", "steps_per_episode", "loss")
_LARGEST = float(np.finfo(np.float32).max)


@dataclasses.dataclass
class Curves:
    """The figures of a run, with one item for each point.

    Attributes:
      evaluations: figures of the policy, JSON values.
      training: figures of collection and learning, JSON values.
      rows: points for TensorBoard since the last checkpoint.
    """

    evaluations: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    training: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    rows: list[Row] = dataclasses.field(default_factory=list)

    def add(self, record: Mapping[str, Any]) -> None:
        """Add the figures of an iteration."""
        number = record["iteration"]
        self.evaluations.append({"iteration": number, **record["evaluation"]})
        self.training.append({name: record[name] for name in _TRAINING_FIGURES})
        self.rows.append((number, {**_shown(record), **self._best()}))

    def write(self, directory: pathlib.Path, number: int) -> None:
        """Write TensorBoard's points since the last checkpoint; `number` is this checkpoint's."""
        write_curves(directory, number, self.rows)
        self.rows.clear()

    def summary(self) -> dict[str, Any]:
        """Return the figures that result.json holds."""
        return {
            "evaluation": {**summarise(self.evaluations), "iterations": self.evaluations},
            "training": self.training,
        }

    def record(self) -> dict[str, Any]:
        """Return the figures that a checkpoint keeps."""
        return {"evaluations": self.evaluations, "training": self.training}

    def _best(self) -> dict[str, float]:
        """Return the least value of each cost at the points so far."""
        costs = [name for name in self.evaluations[-1] if name.partition("/")[0] == "cost"]
        return {f"best/{name}": min(point[name] for point in self.evaluations) for name in costs}


def summarise(curves: Sequence[Mapping[str, float]]) -> dict[str, dict[str, float]]:
    """Return the last evaluation, and the mean over those in the last tenth of the iterations.

    Quote the mean. The last evaluation is one draw of a noisy curve. The best one would be biased,
    because it is chosen by the figure that it reports.
    """
    names = [name for name in curves[-1] if name != "iteration"]
    late = [point for point in curves if point["iteration"] > 0.9 * curves[-1]["iteration"]]
    return {
        "last": {name: curves[-1][name] for name in names},
        "last_tenth": {name: statistics.fmean(point[name] for point in late) for name in names},
    }


def _shown(record: Mapping[str, Any]) -> dict[str, Value]:
    """Return the values that TensorBoard shows of an iteration."""
    evaluated = {**record["evaluation"], **record["pictures"]}
    # Leave out the parts that are 0, because a setting turned them off.
    losses = {name: value for name, value in record["losses"].items() if value}
    return {
        **{f"evaluation/{name}": value for name, value in evaluated.items()},
        "train/loss": record["loss"],
        **{f"train/{name}": value for name, value in losses.items()},
        "train/entropy": record["entropy"],
        "train/mean_return": record["mean_return"],
        "train/steps_per_episode": record["steps_per_episode"],
        **{f"seconds/{name}": value for name, value in record["seconds"].items()},
        **{f"worker/{k}_jobs_per_s": value for k, value in enumerate(record["jobs_per_s"])},
    }


def write_curves(directory: pathlib.Path, number: int, rows: Sequence[Row]) -> None:
    """Write the points since the last checkpoint into a file of checkpoint `number`, if any.

    TensorBoard names the run after the directory.
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
