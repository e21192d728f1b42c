"""The table of all agents on all systems."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.ci


def test_a_tiny_table(study):
    words = ("--system", "learn_to_optimize", "--agent", "es", "--iterations", 2)
    status, text, records = study("agents", *words)
    # Two iterations of 16 directions, both ends, 64 episodes of two steps.
    assert status == 0 and "(8,192 steps, " in text and "| scipy | 0.087 |" in text
    assert study("agents", *words)[2] == records
