"""The scaling tool: its model worked by hand, its report, and a real pool that loses workers."""

from __future__ import annotations

import numpy as np
import pytest

from tfrl_systems.drivers.collect import Collect
from tools.benchmarks.scaling import measuring, report
from tools.benchmarks.scaling.__main__ import head_ms_of
from tools.benchmarks.scaling.simulation import Load, efficiency, limits, simulated_s


def test_one_worker_and_the_head_take_turns():
    # 1 s to hand out, 4 s to work, three times.
    assert simulated_s(Load(job_s=4, head_s=1), 1, 3) == 15


def test_workers_overlap_until_the_head_is_busy_all_the_time():
    # Handed out at 1 and 2, done at 5 and 6; handed out again at 6 and 7, done at 10 and 11.
    assert simulated_s(Load(job_s=4, head_s=1), 2, 4) == 11
    # The head hands out one job a second; 5 workers keep it busy, and 50 do not help.
    many = [simulated_s(Load(job_s=4, head_s=1), workers, 100) for workers in (5, 50)]
    assert many == [104, 104]


def test_a_free_head_lets_all_workers_work_all_the_time():
    load = Load(job_s=2, head_s=0)
    assert simulated_s(load, 10, 100) == 20
    assert efficiency(20, load, 10, 100) == 1


def test_each_part_of_a_cluster_has_a_limit():
    found = limits(Load(job_s=0.5, head_s=0.001, result_bytes=1e6), 100, bytes_per_s=1e8)
    assert found == {"workers": 200, "head": 1000, "network": 100}
    assert limits(Load(1, 1), 1, 1)["network"] == float("inf")


def test_the_heads_time_is_interpolated_by_size_and_never_below_the_least():
    overheads = {0: {"head_ms": 1.0}, 1000: {"head_ms": 2.0}, 2000: {"head_ms": 3.0}}
    assert head_ms_of(overheads, 500) == pytest.approx(1.5)
    assert head_ms_of(overheads, 0) == pytest.approx(1.0)


@pytest.mark.slow
def test_a_lost_workers_job_is_timed_from_the_loss_to_its_next_worker():
    lost = []

    def note_and_kill(begun):
        lost.append(begun)
        measuring.kill(begun)

    waited_s = measuring.recoveries_s(
        Collect("pipes", 1), 1, np.random.default_rng(0), note_and_kill
    )
    assert len(lost) == 1
    assert waited_s[0] > 0


def test_the_report_has_a_row_for_each_number_of_workers():
    overhead = {"wall_ms": 0.5, "head_ms": 0.25, "engine_ms": 0.125}
    pool = {
        "start_s": 1.5,
        "overhead": {0: overhead},
        "scaling": {4: {"measured": 0.98, "simulated": 0.99}},
        "recovery": {"median_s": 0.1, "max_s": 0.2},
    }
    beyond = {1000: {"limit": "network", "efficiency": 0.5, "broadcast_s": 0.25}}
    chunk = {"job_s": 0.1, "result_bytes": 2000, "data_bytes": 3000, "head_ms": 0.5}
    found = {
        "command": "python -m it",
        "commit": "abc",
        "processors": 2,
        "busy": 0.5,
        "pools": {"pipes": pool, "ray": pool},
        "node_recovery": {"median_s": 2.0, "max_s": 3.0},
        "chunks": {"inlining": {**chunk, "beyond": beyond}},
    }
    text = report.markdown(found)
    assert "| 4 | 0.980 | 0.990 | 0.980 | 0.990 |" in text
    assert "| inlining | 100.0 | 2 | 3 | 0.50 | 0.50 (network, 0.25) |" in text
