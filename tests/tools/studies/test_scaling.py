"""Runtimes by workers and by episodes: their tables, and one run with two workers."""

from __future__ import annotations

import time

import numpy as np
import pytest

from tools.studies import scaling, sleeping, writing


@pytest.mark.study
def test_one_worker_and_two_learn_the_same(study):
    """Section 6.2 of Mayer's thesis, where the distributed algorithm did not."""
    words = ("--most-workers", 2, "--iterations", 1, "--seeds", 1)
    status, text, records = study("scaling", "--function", "sleeping 1 ms a point", *words)
    alone, shared = (
        records[f"sleeping-1-ms-a-point-{k}-workers-seed-0"]["measured"] for k in (1, 2)
    )
    assert status == 0 and alone["policy"] == shared["policy"] in text
    # 64 episodes of 3 points of 1 ms; two workers sleep at the same time.
    assert alone["collecting"] >= 192 and shared["collecting"] >= 96


def test_the_multipliers_by_hand():
    """Table 6.1: 30341 / 1264 = 24.0; 30341 / (1264 + 1279.3) = 11.93, the thesis's last row."""
    shared = {"title": "sphere", "by": "workers", "seed": 0, "training": 5.0, "policy": "ab"}
    records = [
        {**shared, "workers": 1, "collecting": 30341.0, "broadcasting": 0.0},
        {**shared, "workers": 64, "collecting": 1264.0, "broadcasting": 1279.3},
        {**shared, "by": "episodes", "workers": 1, "episodes": 4, "collecting": 1.0}
        | {"broadcasting": 0.0},
    ]
    by_workers, by_episodes = (
        writing.to_markdown(table, records) for table in scaling.SCALING.tables
    )
    assert "| sphere, 1 | 30341.0 | 0.0 | 5.0 | 1.00 | 1.00 | ab |" in by_workers
    assert by_workers.endswith("| sphere, 64 | 1264.0 | 1279.3 | 5.0 | 24.00 | 11.93 | ab |")
    assert by_episodes.endswith("| sphere, 4 | 1.0 | 0.0 | 5.0 |")


def test_what_works_gets_no_more_workers_than_there_are_processors(monkeypatch):
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    options = scaling.Scaling(functions=("Ackley", "sleeping 1 ms a point"), seeds=1)
    names = [trial.name for trial in scaling.SCALING.trials(options)]
    assert names == [
        *(f"Ackley-{k}-workers-seed-0" for k in (1, 2)),
        *(f"Ackley-{k}-episodes-seed-0" for k in (1, 4, 16, 64, 256)),
        *(f"sleeping-1-ms-a-point-{k}-workers-seed-0" for k in (1, 2, 4, 8)),
    ]


def test_functions_that_last():
    points = np.array([[3.0, 4.0], [1.0, 0.0]])
    for function in (sleeping.working_1_ms, sleeping.sleeping_1_ms):
        began_s, processor_s = time.perf_counter(), time.thread_time()
        assert function(points).tolist() == [25, 1]
        assert time.perf_counter() - began_s >= 2e-3
        if function.works:
            assert time.thread_time() - processor_s >= 2e-3
