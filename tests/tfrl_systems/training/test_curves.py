"""What TensorBoard reads of curves, and what a run says of them."""

from __future__ import annotations

import math
import sys

import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from tfrl_systems.training.curves import summarise, write_curves, write_settings
from tfrl_systems.training.pictures import Heatmap
from tfrl_systems.training.system import System

COUNTS = {"bert": {"fuse": 3, "drop": 0}, "resnet": {"fold": 1}}


def test_what_cannot_be_drawn_is_left_out(tmp_path, monkeypatch):
    nothing = Heatmap.of("rules", {"bert": {}})
    assert nothing.to_image() is None
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert Heatmap.of("rules", COUNTS).to_image() is None
    values = {"rules": Heatmap.of("rules", COUNTS), "none": None, "nan": math.nan, "cost": 0.5}
    write_curves(tmp_path, 1, [(10, values)])
    assert read(tmp_path).Tags()["tensors"] == ["cost"]


def test_tensorboard_reads_what_was_written(tmp_path):
    heatmap = Heatmap.of("rules", COUNTS)
    write_curves(tmp_path, 1, [(10, {"rules": heatmap, "cost": 0.5}), (20, {"cost": 0.25})])
    events = read(tmp_path)
    assert [(event.step, scalar(event)) for event in events.Tensors("cost")] == [
        (10, 0.5),
        (20, 0.25),
    ]
    (event,) = events.Tensors("rules")
    assert event.step == 10
    np.testing.assert_array_equal(picture(event), heatmap.to_image())


def test_histograms_and_settings(tmp_path):
    for _ in range(2):  # a run that is resumed writes its settings again
        write_settings(tmp_path, {"seed": 0, "margins": (0.0, 0.5), "name": "a|b"})
    write_curves(tmp_path, 1, [(1, {"saved": np.array([-1.0, 0.0, 0.0, 3.0])})])
    events = read(tmp_path)
    (text,) = events.Tensors("settings")
    table = tf.make_ndarray(text.tensor_proto).item().decode()
    assert table.splitlines()[2:] == [
        "| margins | (0.0, 0.5) |",
        "| name | a\\|b |",
        "| seed | 0 |",
    ]
    (event,) = events.Tensors("saved")
    buckets = tf.make_ndarray(event.tensor_proto)  # rows of left edge, right edge, count
    assert buckets[0, 0] == -1 and buckets[-1, 1] == 3 and buckets[:, 2].sum() == 4


def test_the_outcome_of_a_run_is_the_mean_over_its_last_tenth():
    curves = [{"iteration": number, "mse": float(number)} for number in range(5, 101, 5)]
    # Above 90: 95 and 100.
    evaluation = summarise(curves)
    assert evaluation == {"last": {"mse": 100.0}, "last_tenth": {"mse": 97.5}}
    expected = "mse 97.5 (mean over the last tenth of the iterations)"
    assert System().outcome({"evaluation": evaluation}) == ("evaluation", expected)


def read(directory):
    """What is in a directory's event files; all of it."""
    events = EventAccumulator(str(directory), size_guidance={"tensors": 0})
    return events.Reload()


def scalar(event) -> float:
    return float(tf.make_ndarray(event.tensor_proto))


def picture(event) -> np.ndarray:
    """uint8 [H, W, 3] of an image summary: its width, its height and its only PNG."""
    width, height, png = event.tensor_proto.string_val
    image = tf.io.decode_png(png).numpy()
    assert image.shape[:2] == (int(height), int(width))
    return image
