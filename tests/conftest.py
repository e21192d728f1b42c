"""Prepares the TensorFlow stack before any test module imports TensorFlow; shared fixtures."""

import pytest

import environments  # noqa: F401


@pytest.fixture
def local_index(tmp_path, monkeypatch):
    """Has pip, and so the tool, look into a directory only."""
    links = tmp_path / "links"
    links.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(links))
    return links
