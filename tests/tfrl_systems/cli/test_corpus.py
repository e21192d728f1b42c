"""Corpora from the command line; building with the embedded clang is tested in environments."""

from __future__ import annotations

import json
import pathlib
import shutil


def test_info_counts_projects_and_languages(corpus, tfrl):
    described = tfrl("corpus", "info", corpus, "--json").json
    assert described["modules"] == 5 and described["languages"] == {"c": 3, "c++": 2}
    assert [project["project"] for project in described["projects"]] == ["alpha", "beta", "gamma"]
    lines = tfrl("corpus", "info", corpus).out.splitlines()
    assert [line.split()[0] for line in lines] == ["project", "alpha", "beta", "gamma", "all"]


def test_build_takes_over_bitcode_and_writes_to_a_relative_path(
    corpus, tfrl, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(corpus / "alpha", "saved/alpha")
    pathlib.Path("saved/alpha/broken.bc").write_bytes(b"BC\xc0\xde")
    ran = tfrl("corpus", "build", "saved", "-o", "made", "--jobs", 1, "--json")
    assert ran.status == 0 and "broken" in ran.err
    assert ran.json["modules"] == 2 and len(ran.json["not_compiled"]) == 1
    assert tfrl("corpus", "info", "made", "--json").json["modules"] == 2
    again = tfrl("corpus", "build", "saved", "-o", "made")
    assert again.status == 0 and "2 modules" in again.out and "1 not compiled" in again.out


def test_a_compile_database_with_entries_of_every_kind(tfrl, tmp_path):
    (tmp_path / "a.c").write_text("int f(int x) { return x + 1; }\n")
    names = ["a.c", "b.S", "c.S", "d.cu"]
    entries = [{"directory": ".", "file": name, "command": f"nice cc -c {name}"} for name in names]
    database = tmp_path / "compile_commands.json"
    database.write_text(json.dumps([*entries, {"directory": ".", "file": "damaged.c"}]))
    ran = tfrl("corpus", "build", database, "-o", tmp_path / "made", "--json")
    assert ran.status == 0 and ran.json["modules"] == 1
    assert ran.json["skipped"] == {".S": 2, ".cu": 1}
    assert "left out, as they compile neither C nor C++: 2 .S, 1 .cu" in ran.err.splitlines()
    (failure,) = ran.json["not_compiled"]
    assert failure["source"] == "damaged.c"
    assert failure["error"].startswith("entry 4 of compile_commands.json: expected a command")
