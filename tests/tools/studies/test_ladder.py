"""The ladder: changes worked by hand, and a small project on two of its rungs."""

from __future__ import annotations

import pytest

from tests.requirements import need_programs, skip_if
from tests.tfrl_systems.cli.small_project import need_any_clang, write_sources
from tools.studies import cmake_builds, ladder, writing


def build(project, way, code, threshold=None, rung="gc-icf", tables=50):
    """One build: its image has this much code, and tables, and 50 bytes of read-only data."""
    sizes = {"text_bytes": code, "unwind_bytes": tables, "rodata_bytes": 50, "file_bytes": 2 * code}
    return {
        **{"project": project, "rung": rung, "way": way, "threshold": threshold},
        **{"images": {f"lib{project}.so": sizes}, "cpu_s": 10.0, "instructions": None},
        **{"steered": 3, "compiles": 4},
    }


RECORDS = [
    build("a", "-Oz", 100),
    build("a", "threshold", 90, 0),
    build("a", "threshold", 98, 15),
    {**build("a", "policy", 80), "cpu_s": 11.0, "instructions": 5},
    build("b", "-Oz", 200, tables=0),
    build("b", "threshold", 230, 0, tables=0),
    build("b", "threshold", 190, 15, tables=0),
    build("b", "policy", 210, tables=0),
    build("b", "policy", 210, rung="plain"),
]


def test_changes_and_their_means():
    """The whole of a has 200 bytes, of which the policy leaves 180; b has 250, and gets 260."""
    lines = writing.to_markdown(ladder.LADDER.tables[0], RECORDS).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[4:]]
    assert rows[-3:] == [
        ["gc-icf, policy, a, liba.so", "3 of 4", "-20.00%", "+0.00%", "+0.00%"]
        + ["-10.00%", "-20.00%", "+10.0%", ""],
        ["gc-icf, policy, b, libb.so", "3 of 4", "+5.00%", "", "+0.00%"]
        + ["+4.00%", "+5.00%", "+0.0%", ""],
        ["gc-icf, policy, mean", "", "-7.50% (-20.00%..+5.00%)", "+0.00%", "+0.00%"]
        + ["-3.00% (-10.00%..+4.00%)", "-7.50% (-20.00%..+5.00%)", "+5.0% (+0.0%..+10.0%)", ""],
    ]
    # At a rung of its own a build is compared with nothing else.
    assert [row[0] for row in rows[:-3]] == [
        f"gc-icf, threshold {number}, {of}"
        for number in (0, 15)
        for of in ("a, liba.so", "b, libb.so", "mean")
    ]
    # (-2 - 5) / 2
    assert rows[5][2] == "-3.50% (-5.00%..-2.00%)"


def test_images_of_both_builds_count():
    with_program, without = build("a", "-Oz", 100), build("a", "policy", 50)
    with_program["images"]["program"] = with_program["images"]["liba.so"]
    changes = [(row["image"], row["code"]) for row in ladder.changes([with_program, without])]
    assert changes == [("liba.so", pytest.approx(-50)), ("", pytest.approx(-50))]


@pytest.fixture
def compiler():
    need_programs("cmake")
    path = need_any_clang().replace("++", "")
    skip_if(cmake_builds.Compiler(path).why_no_rungs())
    return path


@pytest.fixture
def source(monkeypatch, tmp_path):
    """A small project in the place of one that would be fetched; it has no driver."""
    directory = write_sources(tmp_path / "shapes")
    monkeypatch.setattr(ladder, "unpack", lambda name, unpacked: directory)
    monkeypatch.setattr(cmake_builds.Build, "count_instructions", lambda build, images: None)
    return directory


@pytest.mark.slow
def test_a_small_project(compiler, source, plugin_cache, monkeypatch, study):
    monkeypatch.setenv("XDG_CACHE_HOME", str(plugin_cache))
    words = ("--policy", "never", "--compiler", compiler, "--threshold", -50, "--project", "zxing")
    status, text, records = study("ladder", *words, "--rung", "gc-icf")
    assert status == 0 and len(records) == 3
    measured = {name: record["measured"] for name, record in records.items()}
    plain, steered = measured["zxing-gc-icf-Oz"], measured["zxing-gc-icf-policy"]
    assert (plain["steered"], steered["steered"], steered["compiles"]) == (0, 3, 3)
    assert plain["images"].keys() == {"libshapes.so", "program"} and plain["cpu_s"] > 0
    # Neither way inlines `twice`, and both say so in the same code.
    fixed = measured["zxing-gc-icf-threshold-50"]
    code = [build["images"]["libshapes.so"]["text_bytes"] for build in (plain, fixed)]
    assert code[0] < code[1]
    rows = [line for line in text.splitlines() if "libshapes.so" in line]
    assert ", threshold -50, " in rows[0] and "3 of 3 | +" in rows[1]


@pytest.mark.ci
def test_a_project_that_cannot_be_built(compiler, source, study):
    (source / "main.cpp").write_text("int main() { return undeclared; }\n")
    words = ("--compiler", compiler, "--project", "zxing", "--rung", "plain")
    status, text, _ = study("ladder", *words)
    assert status == 1 and "build.log" in text


def test_without_cmake(tmp_path, monkeypatch, study):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "apt-get install cmake" in study("ladder")[1]
