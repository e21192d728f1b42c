"""Runs of the Python API."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _(no_saved_models):
    """Nobody here reads the SavedModel; `tests/tfrl_systems/policies` does."""
