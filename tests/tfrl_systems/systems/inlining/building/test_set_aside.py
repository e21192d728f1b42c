"""Files that are out of the way while a build writes them again."""

from __future__ import annotations

import os

import pytest

from environments.errors import UserError
from tfrl_systems.systems.inlining.building.set_aside import set_aside


@pytest.fixture
def paths(tmp_path):
    """An object and an image, in directories of their own, written long ago."""
    paths = [tmp_path / "objects" / "a.o", tmp_path / "program"]
    for path in paths:
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"old {path.name}")
        os.utime(path, (1, 1))
    return paths


def texts(paths):
    return [path.read_text() for path in paths]


def test_what_fails_to_come_again_is_put_back(paths, tmp_path):
    with pytest.raises(KeyboardInterrupt), set_aside(paths):
        assert not any(path.exists() for path in paths)
        (tmp_path / "program").write_text("half of a new one")
        (tmp_path / "objects").rmdir()
        raise KeyboardInterrupt
    assert texts(paths) == ["old a.o", "old program"]
    times = [path.stat().st_mtime_ns for path in paths]
    assert 10**9 < times[0] <= times[1]  # make relinks nothing, and archives made since
    assert {path.name for path in tmp_path.iterdir()} == {"objects", "program"}


def test_what_was_written_again_stays(paths, tmp_path):
    with set_aside(paths) as give_up:
        for path in paths:
            path.write_text("new")
        give_up()
    assert texts(paths) == ["new", "new"]
    assert {path.name for path in tmp_path.iterdir()} == {"objects", "program"}


def test_files_that_cannot_be_moved_are_named(paths):
    missing = [*paths, paths[1] / "missing"]
    with pytest.raises(UserError, match="expected to move it aside"), set_aside(missing):
        raise AssertionError
    assert texts(paths) == ["old a.o", "old program"]
