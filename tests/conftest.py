"""Prepares the TensorFlow stack before any test module imports TensorFlow; shared fixtures."""

import os

import pytest

import environments  # noqa: F401


@pytest.fixture(scope="session")
def plugin_cache(tmp_path_factory):
    """A cache for plugins, which take a while to build; clang would split its path at spaces."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent  # one for all workers
    return base / "my cache"


@pytest.fixture
def local_index(tmp_path, monkeypatch):
    """Has pip, and so the tool, look into a directory only."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return links
