"""Counts as a picture."""

from __future__ import annotations

import numpy as np

from tfrl_systems.training.pictures import Heatmap


def test_counts_by_hand():
    heatmap = Heatmap.of("rules", {"bert": {"fuse": 3, "drop": 0}, "resnet": {"fold": 1}})
    # Nobody used "drop".
    assert heatmap.rows == ("fold", "fuse") and heatmap.columns == ("bert", "resnet")
    assert heatmap.values == ((0, 1), (3, 0))


def test_more_is_darker():
    image = Heatmap.of("rules", {"bert": {"fuse": 9, "fold": 1}}).to_image()
    assert image is not None and image.dtype == np.uint8 and image.shape[2] == 3
    # Only cells are blue; that of "fold" is above that of "fuse".
    blue = image[..., 2].astype(int) - image[..., 0]
    pale, deep = (np.argwhere(blue > least)[:, 0] for least in (0, blue.max() - 10))
    assert 0 < len(deep) < len(pale) and deep.mean() > pale.mean()
