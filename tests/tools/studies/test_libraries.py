"""A project is built twice, and its images are compared."""

from __future__ import annotations

import pytest

from tests.requirements import need_programs, skip_if
from tests.tfrl_systems.cli.small_project import CLANGS, find_clang, write_sources
from tools.studies import libraries

pytestmark = pytest.mark.study


@pytest.fixture
def compiler():
    clangs = [find_clang(name) for name in CLANGS]
    path = next((path for path, _ in clangs if path), "")
    need_programs("cmake")
    if not path:
        skip_if("; ".join(missing for _, missing in clangs))
    return path.replace("++", "")


def test_a_project_of_your_own(compiler, plugin_cache, tmp_path, monkeypatch, study):
    monkeypatch.setenv("XDG_CACHE_HOME", str(plugin_cache))
    source = write_sources(tmp_path / "shapes")
    words = ("--policy", "never", "--compiler", compiler, "--source", source)
    status, text, records = study("libraries", *words)
    measured = records["shapes"]["measured"]
    assert (status, measured["steered"], measured["compiles"]) == (0, 3, 3)
    rows = [line for line in text.splitlines() if "libshapes.so" in line]
    assert len(rows) == 1 and "3 of 3" in rows[0] and "+" in rows[0]
    # A project that cannot be built; names of projects tell records apart.
    (source / "main.cpp").write_text("int main() { return undeclared; }\n")
    source.rename(tmp_path / "broken")
    words = (*words[:-1], tmp_path / "broken")
    status, text, _ = study("libraries", *words)
    assert status == 1 and "tfrl-build.log" in text
    with pytest.raises(libraries.UsageError, match="expected another name"):
        options = libraries.Libraries(
            policy="never", compiler=compiler, sources=(tmp_path / "a", tmp_path / "a")
        )
        list(libraries.LIBRARIES.trials(options))


def test_without_cmake(tmp_path, monkeypatch, study):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt-get install cmake" in study("libraries", "--policy", "never")[1]
