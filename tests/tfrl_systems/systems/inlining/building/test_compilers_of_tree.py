"""Compilers that a build may call, as its files, its command and the environment name them."""

from __future__ import annotations

import pytest

from tests.environments.inlining.small_modules import write_script
from tfrl_systems.systems.inlining.building.compilers_of_tree import candidates, find_clangs


@pytest.fixture
def no_variables(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.delenv("CXX", raising=False)


@pytest.mark.usefixtures("no_variables")
@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("CMakeCache.txt", "CMAKE_CXX_COMPILER:FILEPATH=/opt/my tools/c++\n", "/opt/my tools/c++"),
        (
            "build.ninja",
            "command = /opt/x-1.2/bin/clang++-21 -Oz -c $in\n",
            "/opt/x-1.2/bin/clang++-21",
        ),
        ("Makefile", "CXX:=aarch64-linux-gnu-clang++\n", "aarch64-linux-gnu-clang++"),
        ("b/compile_commands.json", '[{"arguments": ["/w/bin/clang", "-c"]}]', "/w/bin/clang"),
        ("SConstruct", "Environment(CXX='clang++-20')", "clang++-20"),
    ],
)
def test_files_of_build_systems_name_compilers(tmp_path, file, text, expected):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    assert candidates([tmp_path], ["make"])[0] == expected


@pytest.mark.usefixtures("no_variables")
def test_what_is_only_called_like_one(tmp_path):
    text = "clang-format libclang.so clang.py\n#include <clang/x.h>\n"
    (tmp_path / "Makefile").write_text(text)
    assert candidates([tmp_path], ["make"]) == candidates([], ["make"])


def test_commands_and_the_environment_come_first(tmp_path, monkeypatch):
    """What builds is not among them: each is started, to ask for its version."""
    monkeypatch.setenv("CC", "my-cc -m64")
    monkeypatch.setenv("CXX", "ccache clang++-24")
    command = ["./build.sh", "make", "CXX=other-c++ -O2", "sh", "-c", "a; b && /x/clang-23 -c"]
    expected = ["my-cc", "ccache", "clang++-24", "other-c++", "/x/clang-23"]
    assert candidates([tmp_path], command)[:5] == expected
    assert "./build.sh" not in candidates([tmp_path], command)


def test_each_program_is_asked_once(tmp_path):
    script = "echo asked >> $0.log\necho 'clang version 21.1.0'"
    clang = write_script(tmp_path / "clang", script)
    (tmp_path / "clang++").symlink_to(clang)
    names = [str(tmp_path / name) for name in ("clang", "clang++", "none")]
    assert find_clangs(names) == {names[0]: 21}
    assert (tmp_path / "clang.log").read_text() == "asked\n"
