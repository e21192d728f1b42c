"""Reading corpora: our own layout and ml-compiler-opt's, and what is wrong with some."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys

import pytest

from environments.errors import UserError
from environments.inlining.corpus.modules import Corpus, describe


def write_corpus(directory, names, suffixes=(".bc",), **description):
    """A corpus whose bitcode is made of its name: enough for a reader."""
    names = list(names)
    for name in names:
        for suffix in suffixes:
            path = directory / f"{name}{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(f"{name}{suffix}".encode())
    description = {"modules": names, "has_thinlto": False, **description}
    (directory / "corpus_description.json").write_text(json.dumps(description))
    return directory


def test_modules_are_sorted_grouped_by_project_and_selected(tmp_path):
    names = ["flat", "fmt/src/os.cc", "zlib/a.c", "zlib/b.c"]
    facts = {"modules": {"flat": {"sha256": "of an older file", "language": "c++"}}}
    corpus = Corpus.load(write_corpus(tmp_path, reversed(names), tfrl=facts))
    assert [module.name for module in corpus.modules] == names
    assert list(corpus.projects) == [".", "fmt", "zlib"]
    assert [module.name for module in corpus.projects["zlib"]] == ["zlib/a.c", "zlib/b.c"]
    assert [module.language for module in corpus.modules] == ["c++", "c++", "c", "c"]
    first = corpus.modules[0]
    assert first.sha256 == hashlib.sha256(b"flat.bc").hexdigest()
    assert (first.command, first.thinlto_index) == ((), None)
    assert list(corpus.select(["zlib"]).projects) == ["zlib"]
    with pytest.raises(UserError, match="found nowhere; it has .*, fmt, zlib"):
        corpus.select(["nowhere"])


def test_ml_compiler_opt_corpus(tmp_path):
    write_corpus(tmp_path, ["lib/a.o"], global_command_override=["<UNSPECIFIED>"])
    (tmp_path / "lib/a.o.cmd").write_bytes(
        b"-cc1\0-triple\0x86_64-linux-gnu\0-Oz\0-DTEXT=two words"
    )
    module = Corpus.load(tmp_path).modules[0]
    assert module.command == ("-cc1", "-triple", "x86_64-linux-gnu", "-Oz", "-DTEXT=two words")
    assert module.path == tmp_path / "lib/a.o.bc"
    write_corpus(tmp_path, ["lib/a.o"], global_command_override=["-cc1", "-Oz"])
    assert Corpus.load(tmp_path).modules[0].command == ("-cc1", "-Oz")


@pytest.mark.parametrize("bitcode", [".bc", ".3.import.bc"])
def test_thinlto_corpus(tmp_path, bitcode):
    write_corpus(tmp_path, ["lib/a"], (bitcode, ".thinlto.bc"), has_thinlto=True)
    module = Corpus.load(tmp_path).modules[0]
    assert module.path == tmp_path / f"lib/a{bitcode}"
    assert module.thinlto_index == tmp_path / "lib/a.thinlto.bc"


@pytest.mark.parametrize(
    "name", ["../a", "/etc/a", "a/../../b", "a//b", "./a", "", "a\nb", "a\0b", "..\\a"]
)
def test_names_stay_inside_the_corpus(tmp_path, name):
    (tmp_path / "corpus_description.json").write_text(json.dumps({"modules": [name]}))
    with pytest.raises(UserError, match="module names inside the corpus") as caught:
        Corpus.load(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "expected JSON"),
        ("[]", "JSON object"),
        ("{}", '"modules" as a list'),
        ('{"modules": [1]}', '"modules" as a list'),
        ('{"modules": []}', "at least one module"),
        ('{"modules": ["a"], "has_thinlto": "no"}', '"has_thinlto"'),
        ('{"modules": ["a"], "global_command_override": "-Oz"}', '"global_command_override"'),
        ('{"modules": ["a"]}', "no such file"),
        ('{"modules": ["a"], "has_thinlto": true}', "no such file"),
    ],
)
def test_damaged_descriptions(tmp_path, text, message):
    (tmp_path / "corpus_description.json").write_text(text)
    with pytest.raises(UserError, match=message):
        Corpus.load(tmp_path)


def test_not_a_corpus(tmp_path):
    with pytest.raises(UserError, match="tfrl corpus build"):
        Corpus.load(tmp_path)
    with pytest.raises(UserError, match="tfrl corpus build"):
        Corpus.load(tmp_path / "missing")


def test_describe(tmp_path):
    facts = describe(Corpus.load(write_corpus(tmp_path, ["p/a.c", "p/b.cc", "q/c.cc"])))
    assert facts["modules"] == 3
    assert facts["languages"] == {"c": 1, "c++": 2}
    assert facts["size_bytes"] == sum(map(len, ("p/a.c.bc", "p/b.cc.bc", "q/c.cc.bc")))
    assert [project["project"] for project in facts["projects"]] == ["p", "q"]
    json.dumps(facts)


def test_reading_needs_no_heavy_package():
    program = (
        "import sys; import environments.inlining.corpus.modules; "
        "assert not {'tensorflow', 'llvmlite', 'tf_agents'} & set(sys.modules), sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
