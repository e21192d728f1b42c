"""Modules of a user's, on the path of Python."""

from __future__ import annotations

import pytest

from tests.environments.learn_to_optimize.user_modules import write_module


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes a module of this text to `tmp_path`, and returns its name."""
    monkeypatch.syspath_prepend(tmp_path)
    return lambda text: write_module(tmp_path, text)
