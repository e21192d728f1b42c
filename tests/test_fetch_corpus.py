"""The benchmark corpus tool: pins, split, downloads that go wrong; no network is needed."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import pathlib
import tarfile

import pytest

from environments.errors import UserError
from environments.inlining.corpus.modules import Corpus
from tests.requirements import need_one_of
from tools import fetch_corpus
from tools.distributions import download_all, make_finder, pip_settings
from tools.fetch_corpus import Project

SOURCE = (
    '#include "config.h"\n'
    "static int twice(int x) { return 2 * x; }\nint f(int x) { return twice(x) + VALUE; }\n"
)


def make_sdist(directory, name="demo-1.0", extra=()):
    """A source distribution with two sources and whatever else is asked for."""
    path = directory / f"{name}.tar.gz"
    files = {"lib/a.c": SOURCE, "lib/b.c": SOURCE.replace("f(", "g("), "lib/b_test.c": "#error\n"}
    with tarfile.open(path, "w:gz") as archive:
        for member, text in {**{f"{name}/{k}": v for k, v in files.items()}, **dict(extra)}.items():
            entry = tarfile.TarInfo(member)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


def make_project(path, **changes):
    fields = {
        "name": "demo",
        "distribution": "demo",
        "version": "1.0",
        "file": path.name,
        "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
        "licence": "MIT",
        "language": "c",
        "root": "lib",
        "sources": ["*.c"],
        "exclude": ["*_test.c"],
        "include": ["tfrl"],
        "defines": ["VALUE=value()"],
        "standard": "gnu11",
        "max_sources": 10,
        "files": {"tfrl/config.h": ["int value(void);"]},
    }
    return Project(**{**fields, **changes})


@pytest.fixture
def fetch(tmp_path, monkeypatch):
    """Runs the tool on some projects; returns the directory of its corpora."""

    def run(projects, *words):
        monkeypatch.setattr(fetch_corpus, "read_projects", lambda: tuple(projects))
        places = ["-o", str(tmp_path / "out"), "--cache", str(tmp_path / "cache")]
        fetch_corpus.run(fetch_corpus.parse_arguments([*places, *words]))
        return tmp_path / "out"

    return run


def test_pins_are_complete_and_varied():
    projects = fetch_corpus.read_projects()
    names = [project.name for project in projects]
    assert len(set(names)) == len(names) >= 12
    cxx = [project for project in projects if project.language == "c++"]
    assert len(cxx) >= 12 and len(projects) - len(cxx) >= 8
    for project in projects:
        assert len(project.sha256) == 64 and project.licence
        for path in (project.root, *project.include, *project.files):
            assert ".." not in pathlib.PurePosixPath(path).parts and not path.startswith("/")


def test_split_follows_from_names_alone():
    sizes = {"c++": dict.fromkeys("abcdefghij", 10), "c": dict.fromkeys("klmnop", 10)}
    split = fetch_corpus.split_projects(sizes)
    cxx = sorted("abcdefghij", key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    assert [split[name] for name in cxx] == ["heldout"] * 3 + ["validation"] * 3 + ["train"] * 4
    c = sorted("klmnop", key=lambda name: hashlib.sha256(name.encode()).hexdigest())
    assert [split[name] for name in c] == ["heldout"] * 2 + ["validation"] + ["train"] * 3
    sizes["c"][c[0]] = 9
    small = fetch_corpus.split_projects(sizes)
    moved = ["train", "heldout", "heldout", "validation", "train", "train"]
    assert [small[name] for name in c] == moved


def test_whole_way_from_distribution_to_corpora(fetch, tmp_path, local_index, capsys):
    path = make_sdist(local_index)
    project = make_project(path)
    output = fetch([project], "--jobs", "2")
    corpus = Corpus.load(output / "train")
    assert [module.name for module in corpus.modules] == ["demo/a.c", "demo/b.c"]
    assert corpus.num_sources == {"demo": 2}
    assert "train: 2 modules (2 c) of demo" in capsys.readouterr().out
    assert sorted(path.name for path in output.iterdir()) == ["all", "train"]

    path.unlink()
    # What was downloaded before is used again.
    files = download_all({project.name: project}, tmp_path / "cache")
    report = fetch_corpus.build([project], files, output, "embedded", 1)
    assert (report.compiled, report.reused) == (0, 2)


def test_whole_projects_of_a_language_with_a_compiler_and_options(fetch, local_index):
    clang = need_one_of("clang-22", "clang-19")
    cpp = "int answer() { return OPTION; }\n"
    path = make_sdist(local_index, extra=[(f"demo-1.0/lib/{n}.cc", cpp) for n in "cde"])
    c = make_project(path)
    cc = dataclasses.replace(
        c, name="cc", language="c++", sources=("*.cc",), standard="c++17", max_sources=1
    )
    how = ("--whole", "--language", "c++", "--compiler", clang, "--option=-DOPTION=42")
    corpus = Corpus.load(fetch([c, cc], *how, "--jobs", "1") / "train")
    assert [module.name for module in corpus.modules] == ["cc/c.cc", "cc/d.cc", "cc/e.cc"]
    assert corpus.num_sources == {"cc": 3}


def test_sources_are_drawn_by_name(tmp_path):
    path = make_sdist(tmp_path)
    project = make_project(path, max_sources=1)
    root = fetch_corpus.extract(project, path, tmp_path / "unpacked")
    (unit,) = fetch_corpus.project_units(project, root)
    assert fetch_corpus.fitting_sources(project, root) == ["a.c", "b.c"]
    drawn = min(("a.c", "b.c"), key=lambda name: fetch_corpus.digest(f"demo/{name}"))
    assert unit.name == f"demo/{drawn}"
    assert unit.argument_sets == (("-std=gnu11", "-Itfrl", "-DVALUE=value()"),)
    assert (root / "tfrl/config.h").read_text() == "int value(void);\n"
    # Of two, at most one is the one that is drawn first.
    both = make_project(path, max_sources=2)
    assert len(fetch_corpus.project_units(both, root)) == 2
    (first,) = fetch_corpus.project_units(both, root, most=1)
    assert first.name == unit.name


def test_fewer_sources_leave_a_project_its_part(tmp_path, monkeypatch):
    monkeypatch.setattr(fetch_corpus, "SMALLEST_DRAWN", 2)
    path = make_sdist(tmp_path)
    for name, most in (("all", {}), ("few", {"most": 1})):
        project = make_project(path, max_sources=2)
        fetch_corpus.build([project], {"demo": path}, tmp_path / name, "embedded", 1, **most)
    parts = [{p.name for p in (tmp_path / name).iterdir()} for name in ("all", "few")]
    assert parts[0] == parts[1] and "heldout" in parts[0]
    assert len(Corpus.load(tmp_path / "few/heldout").modules) == 1


def test_archives_cannot_write_elsewhere(tmp_path):
    path = make_sdist(tmp_path, extra=[("demo-1.0/lib/../../../escaped.c", "int x;")])
    (tmp_path / "deep/enough").mkdir(parents=True)
    with pytest.raises(UserError, match="unpack demo-1.0.tar.gz"):
        fetch_corpus.extract(make_project(path), path, tmp_path / "deep/enough")
    assert not list(tmp_path.rglob("escaped.c"))


def test_wrong_checksum_is_refused(tmp_path, local_index, capsys):
    project = make_project(make_sdist(local_index), sha256="0" * 64)
    with pytest.raises(UserError, match="expected 1 files, found 0"):
        download_all({project.name: project}, tmp_path / "cache")
    assert "demo: expected demo-1.0.tar.gz with sha256 000" in capsys.readouterr().err
    assert list((tmp_path / "cache").iterdir()) == []
    # A damaged file in the cache is fetched again.
    path = local_index / project.file
    (tmp_path / "cache" / path.name).write_bytes(b"half")
    files = download_all({"demo": make_project(path)}, tmp_path / "cache")
    assert files["demo"].read_bytes() == path.read_bytes()


def test_missing_projects_are_named_one_line_each(fetch, tmp_path, local_index, capsys):
    path = make_sdist(local_index)
    projects = [make_project(path, name=name, distribution=name) for name in ("lost", "gone")]
    with pytest.raises(UserError, match="expected 2 files, found 0"):
        fetch(projects)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(":")[1].strip() for line in lines] == ["lost", "gone"]
    assert not (tmp_path / "out").exists()


def test_network_that_is_down_is_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    project = make_project(make_sdist(tmp_path))
    with pytest.raises(UserError, match="run this again"):
        download_all({project.name: project}, tmp_path / "cache")
    (line,) = capsys.readouterr().err.splitlines()
    assert "check the network" in line


@pytest.mark.parametrize("links", ["", "/"])
def test_pip_settings_prefer_the_environment(monkeypatch, links):
    monkeypatch.setenv("PIP_FIND_LINKS", links)
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/one")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    settings = pip_settings()
    assert settings["index-url"] == "http://127.0.0.1:9/one"
    finder = make_finder(settings)
    assert not [source for source in finder.sources if source["type"] == "index"]


def test_options_that_are_wrong(fetch):
    with pytest.raises(UserError, match="--sources: expected 1 or more, found 0"):
        fetch([], "--sources", "0")
    with pytest.raises(UserError, match="found nonesuch"):
        fetch([], "--project", "nonesuch")
