"""What is learned from few evaluations: they are counted, and who lacks a package is left out."""

from __future__ import annotations

import importlib.util

import pytest

pytestmark = pytest.mark.ci


def test_evaluations_are_counted_and_few(study, monkeypatch):
    find_spec = importlib.util.find_spec

    def without_botorch(name, *more):
        return None if name == "botorch" else find_spec(name, *more)

    monkeypatch.setattr(importlib.util, "find_spec", without_botorch)
    words = ("--seeds", 1, "--function", "shifted Ackley", "--set", "hidden_sizes=4")
    agents = [word for name in ("es", "cma", "botorch") for word in ("--agent", name)]
    status, text, records = study("few_evaluations", *words, *agents)
    assert status == 0 and "botorch" not in text.split("| --- |")[1]
    counts = {
        record["about"]["agent"]: record["measured"]["counted"] for record in records.values()
    }
    # 21 c get 9 each; 3 iterations of 48, and a judgement at 21 c.
    assert counts == {"cma": 21 * 9, "es": 3 * 48 + 2 * 21}
