"""A project is built twice, and its images are compared."""

from __future__ import annotations

import json

import pytest

from tests.requirements import need_programs, skip_if
from tests.tfrl_systems.cli.small_project import CLANGS, find_clang, write_sources
from tools import build_twice


@pytest.fixture
def compiler():
    found = [find_clang(name) for name in CLANGS]
    path = next((path for path, _ in found if path), "")
    need_programs("cmake")
    if not path:
        skip_if("; ".join(missing for _, missing in found))
    return path.replace("++", "")


def arguments(*words: object):
    return build_twice.parse_arguments([str(word) for word in words])


def test_a_project_of_your_own(compiler, plugin_cache, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CACHE_HOME", str(plugin_cache))
    source, output = write_sources(tmp_path / "shapes"), tmp_path / "builds"
    asked = ("--policy", "never", "--compiler", compiler, "--source", source, "-o", output)
    build_twice.run(arguments(*asked))
    (found,) = json.loads((output / "builds.json").read_text())
    assert (found["project"], found["steered"], found["compiles"]) == ("shapes", 3, 3)
    rows = [line for line in capsys.readouterr().out.splitlines() if "libshapes.so" in line]
    assert len(rows) == 1 and "3 of 3" in rows[0] and "+" in rows[0]


def test_a_project_that_cannot_be_built(compiler, tmp_path):
    source = write_sources(tmp_path / "shapes")
    (source / "main.cpp").write_text("int main() { return undeclared; }\n")
    asked = ("--policy", "never", "--compiler", compiler, "--source", source, "-o", tmp_path / "b")
    with pytest.raises(build_twice.UserError, match="see .*tfrl-build.log"):
        build_twice.run(arguments(*asked))


def test_without_cmake(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(build_twice.UserError, match="apt-get install cmake"):
        build_twice.run(arguments("--policy", "never", "-o", tmp_path / "b"))
