"""The headroom of inlining: changes worked by hand, and two small sources in all ways."""

from __future__ import annotations

import pytest

from environments.inlining.corpus.units import CompileUnit
from environments.inlining.plugin.compiler import why_no_plugins
from tests.requirements import need_programs, skip_if
from tools.studies import headroom, writing
from tools.studies.cmake_builds import Compiler

CLANG = "clang-22"
SOURCES = {
    "shapes.c": """
int mix(int x, int y) {
  int z = (x * 31 + y) ^ (x >> 3) ^ (y * x + 7);
  z = (z * 17 + x) ^ (z >> 5) ^ (z * y + 3);
  z = (z * 13 + y) ^ (z >> 7) ^ (z * x + 1);
  return (z * 11 + x) ^ (z >> 9) ^ (z * y + 9);
}
static int twice(int x) { return mix(x, x + 1) + mix(x + 2, x); }
int area(int x) { return x > 3 ? twice(x) : twice(x + 4); }
""",
    "sums.c": """
int mix(int x, int y);
static int all(const int *at, int n) { int s = 0; while (n--) s += mix(at[n], n); return s; }
int sum(const int *at, int n) { return all(at, n) + all(at + n, n); }
""",
}


def sizes(code, against):
    rest = {"unwind_bytes": 100, "rodata_bytes": 100, "file_bytes": 999}
    return {"text_bytes": code, **rest, "against": against}


def test_changes_by_hand():
    """Of b's 300 bytes of code 27 go, of all 500 too."""
    records = [
        {
            **{"part": "os", "project": project},
            "ways": {"-Os": sizes(code, "-Os"), "policy": sizes(less, "-Os")},
        }
        for project, code, less in (("a", 200, 200), ("b", 300, 273))
    ]
    (table,) = headroom.HEADROOM.tables
    assert writing.to_markdown(table, records).splitlines()[4:] == [
        "| os, policy, a | +0.00% | +0.00% |",
        "| os, policy, b | -9.00% | -5.40% |",
        "| os, policy, mean | -4.50% (-9.00%..+0.00%) | -2.70% (-5.40%..+0.00%) |",
    ]


@pytest.fixture
def project(tmp_path, plugin_cache, monkeypatch):
    """Two sources of C, in place of a project that would be downloaded."""
    need_programs(CLANG)
    skip_if(why_no_plugins(CLANG) or Compiler(CLANG).why_no_rungs())
    monkeypatch.setenv("XDG_CACHE_HOME", str(plugin_cache))
    for name, text in SOURCES.items():
        (tmp_path / name).write_text(text)
    units = [CompileUnit(f"p/{name}", name, tmp_path, tmp_path, "c", ((),)) for name in SOURCES]
    monkeypatch.setattr(headroom, "sources_of", lambda name, directory: units)
    return "p"


@pytest.mark.ci
def test_all_parts(project, study):
    words = ("--project", project, "--policy", "always", "--compiler", CLANG)
    status, text, records = study("headroom", *words)
    assert status == 0, text
    code = {
        way: sizes_of_way["text_bytes"]
        for part in ("lto", "os")
        for way, sizes_of_way in records[f"{part}-p"]["measured"]["ways"].items()
    }
    assert code["full LTO, policy in lld"] > code["full LTO"]
    assert code["-Os, policy"] > code["-Os"]
    assert "os, -Oz, policy, mean" in text


def test_a_compiler_that_is_not_there(study):
    status, text, _ = study("headroom", "--compiler", "clang-1")
    assert status == 1 and "clang-1" in text
