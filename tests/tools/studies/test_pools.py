"""Pools that are measured: their table, and a small one."""

from __future__ import annotations

import pytest

from tools.studies import pools, writing


@pytest.mark.ci
def test_a_small_pool(study):
    words = ("--collect", "pipes", "--most-workers", 2, "--naps", 5)
    status, text, records = study("pools", *words)
    shares = {k: records[f"pipes-{k}-workers"]["measured"]["share"] for k in (1, 2)}
    assert status == 0 and all(0 < share <= 1 for share in shares.values())
    assert f"| 2 | {shares[2]:.3f} |" in text
    assert "| between two jobs, results of 1,000,000 bytes, ms a job | " in text


def test_the_tables_by_hand():
    records = [
        {"kind": "ray", "what": "start of 2 workers, s", "figure": 5.9},
        {"kind": "ray", "result_bytes": 0, "wall": 1.41, "head": 0.7, "engine": 0.06},
        {"kind": "ray", "workers": 4, "share": 0.9615},
    ]
    costs, shares = (writing.to_markdown(table, records) for table in pools.POOLS.tables)
    assert "| start of 2 workers, s | 5.90 |" in costs
    assert "| processor time of the head, results of 0 bytes, ms a job | 0.70 |" in costs
    assert shares.endswith("| 4 | 0.962 |")
    names = [trial.name for trial in pools.POOLS.trials(pools.Pools(most_workers=5))]
    assert [name for name in names if "workers" in name] == [
        f"{kind}-{count}-workers" for kind in ("pipes", "ray") for count in (1, 2, 4)
    ]
