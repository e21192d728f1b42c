"""What training begins at: models that were named, and new members of families."""

from __future__ import annotations

import numpy as np

from tfrl_systems.systems.tensor_graphs import learning


def test_names_are_drawn_alike_and_members_anew():
    sampler = learning.sampler_of(["recurrent", "bert-tiny", "branches"])
    drawn = [sampler(np.random.default_rng(seed)).name for seed in range(40)]
    assert drawn[:5] == [sampler(np.random.default_rng(seed)).name for seed in range(5)]
    kinds = [name.partition(":")[0] for name in drawn]
    assert all(kinds.count(name) >= 6 for name in ("recurrent", "bert-tiny", "branches"))
    numbers = [int(name.partition(":")[2]) for name in drawn if ":" in name]
    assert len({*numbers}) == len(numbers) and max(numbers) < 1_000_000
