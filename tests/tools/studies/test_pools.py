"""Pools that are measured: their table, and a small one."""

from __future__ import annotations

import pytest

from tools.studies import pools


@pytest.mark.ci
def test_a_small_pool(study):
    words = ("--collect", "pipes", "--most-workers", 2, "--naps", 5)
    status, text, records = study("pools", *words)
    shares = {k: records[f"pipes-{k}-workers"]["measured"]["share"] for k in (1, 2)}
    assert status == 0 and all(0 < share <= 1 for share in shares.values())
    assert f"| 2 | {shares[2]:.3f} |" in text
    assert "| between two jobs, results of 1,000,000 bytes, ms a job | " in text


def test_pools_are_doubled():
    names = [trial.name for trial in pools.POOLS.trials(pools.Pools(most_workers=5))]
    assert [name for name in names if "workers" in name] == [
        f"{kind}-{count}-workers" for kind in ("pipes", "ray") for count in (1, 2, 4)
    ]
