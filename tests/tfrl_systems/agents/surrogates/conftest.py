"""BLAS uses one thread, as the agent has it: two would wait for each other on a busy machine."""

from __future__ import annotations

import pytest
import threadpoolctl


@pytest.fixture(autouse=True)
def one_thread():
    """Limits BLAS to one thread."""
    with threadpoolctl.threadpool_limits(1, "blas"):
        yield
