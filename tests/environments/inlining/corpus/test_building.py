"""Building corpora with the real embedded compiler, and everything that can go wrong."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time

import psutil
import pytest
from llvmlite import binding as llvm

from environments.errors import UserError
from environments.inlining.corpus.building import build_corpus, write_subset
from environments.inlining.corpus.modules import Corpus
from tests.environments.inlining.corpus.test_compile_commands import write_database
from tests.full_disk import no_room
from tests.processes import unless_ended
from tests.requirements import need_one_of

C_SOURCE = """
#include <assert.h>
#include "twice.h"
static int square(int x) { assert(x < 1000); return x * x; }
int area(int a, int b) { return square(a) + square(twice(b)); }
const char *where(void) { return __FILE__ HEADER_FILE; }
int over(int x) { int a[4] = {x}; return a[x & 3] << x; }
"""
HEADER = "#define HEADER_FILE __FILE__\nstatic inline int twice(int x) { return 2 * x; }\n"
CXX_SOURCE = """
#include <initializer_list>  // small; <vector> takes longer
int sum(const std::initializer_list<int> &v) { int s = 0; for (int x : v) s += x; return s; }
"""
# Takes far longer than any time limit here, and little memory.
SLOW_SOURCE = """
template <int A, int B> struct G { static constexpr unsigned v = G<A, B - 1>::v + G<A - 1, B>::v; };
template <int A> struct G<A, 0> { static constexpr unsigned v = 1; };
template <int B> struct G<0, B> { static constexpr unsigned v = 1; };
unsigned slow() { return G<400, 400>::v; }
"""
# What distributions' clangs add to functions, and nothing that decides about inlining.
ONLY_CLANGS = {"stack-protector-buffer-size"}


@pytest.fixture
def tree(tmp_path):
    """A source tree of one C and one C++ source."""
    directory = tmp_path / "tree"
    (directory / "include").mkdir(parents=True)
    (directory / "include/twice.h").write_text(HEADER)
    (directory / "area.c").write_text(C_SOURCE)
    (directory / "sum.cc").write_text(CXX_SOURCE)
    return directory


def parse(path):
    return llvm.parse_bitcode(path.read_bytes(), llvm.create_context())


def function_attributes(path):
    """Attributes of the first function by name; target features as the set of those that are on."""
    lines = str(parse(path)).splitlines()
    line = next(line for line in lines if line.startswith("attributes #0"))
    words = line.partition("{")[2].rstrip("} ").replace('"', "").split()
    attributes = {word.partition("=")[0]: word.partition("=")[2] for word in words}
    features = attributes["target-features"].split(",")
    attributes["target-features"] = {word for word in features if word.startswith("+")}
    return attributes


def hashes(directory):
    return {module.name: module.sha256 for module in Corpus.load(directory).modules}


def leftovers(directory):
    return list(directory.rglob(".*"))


def test_source_tree_becomes_a_corpus_of_what_clang_gives_its_passes_at_oz(tree, tmp_path):
    seen = []
    output = tmp_path / "out"
    report = build_corpus([tree], output, jobs=2, progress=lambda *event: seen.append(event))
    assert (report.modules, report.compiled, report.not_compiled) == (2, 2, ())
    assert {(done, total) for done, total, _ in seen} == {(1, 2), (2, 2)}
    modules = Corpus.load(output).modules
    languages = {module.name: module.language for module in modules}
    assert [*languages.items()] == [("tree/area.c", "c"), ("tree/sum.cc", "c++")]
    facts = json.loads((output / "corpus_description.json").read_text())["tfrl"]["modules"]
    assert facts["tree/area.c"]["sha256"] == modules[0].sha256
    assert facts["tree/area.c"]["functions"] == 5
    assert json.loads((output / "not_compiled.json").read_text()) == []
    assert leftovers(output) == []

    module = parse(output / "tree/area.c.bc")
    text = str(module)
    assert module.triple.startswith("x86_64") and "linux" in module.triple
    attributes = next(line for line in text.splitlines() if line.startswith("attributes #0"))
    for wanted in ("minsize", "optsize", '"target-cpu"="x86-64"', "nounwind"):
        assert wanted in attributes
    unwanted = "ubsan +sse3 +avx +bmi frame-pointer optnone noinline sanitize stackprotect"
    assert not [word for word in unwanted.split() if word in text]
    assert not module.get_function("square").is_declaration, "no pass has run: nothing is inlined"
    assert "alloca" in text


def test_clang_and_the_embedded_compiler_agree_on_the_attributes(tree, tmp_path):
    clang = need_one_of("clang-22", "clang-19", "clang")
    try:
        build_corpus([tree / "area.c"], tmp_path / "clang", clang)
    except UserError as error:
        pytest.skip(str(error))
    build_corpus([tree / "area.c"], tmp_path / "embedded")
    ours, theirs = (
        function_attributes(tmp_path / name / "tree/area.c.bc") for name in ("embedded", "clang")
    )
    assert ours.pop("target-features") >= theirs.pop("target-features")
    assert {name: theirs.get(name) for name in ours} == ours
    assert theirs.keys() - ours.keys() <= ONLY_CLANGS


def test_bitcode_does_not_depend_on_where_the_checkout_lies(tree, tmp_path):
    """Neither of a tree nor by a compile database with absolute paths."""
    trees, databases = [], []
    for place in ("here", "there/and/deeper"):
        copy = tmp_path / place / "tree"
        shutil.copytree(tree, copy)
        build_corpus([copy], tmp_path / place / "out")
        trees.append(hashes(tmp_path / place / "out"))
        (copy / "build").mkdir()
        entry = {
            "directory": str(copy / "build"),
            "file": str(copy / "area.c"),
            "command": f"gcc -O2 -g -I{copy}/include -MD -o area.o -c {copy}/area.c",
        }
        report = build_corpus([write_database(copy, [entry])], tmp_path / place / "database")
        assert report.modules == 1
        databases.append(hashes(tmp_path / place / "database"))
    assert trees[0] == trees[1] and databases[0] == databases[1]
    assert str(tmp_path).encode() not in (tmp_path / "here/out/tree/area.c.bc").read_bytes()


def test_only_what_changed_is_compiled_again(tree, tmp_path):
    output = tmp_path / "out"
    build_corpus([tree], output)
    before = hashes(output)
    again = build_corpus([tree], output)
    assert (again.compiled, again.reused) == (0, 2)
    assert hashes(output) == before

    (tree / "include/twice.h").write_text(HEADER.replace("2 * x", "x + x"))
    report = build_corpus([tree], output)
    assert (report.compiled, report.reused) == (1, 1)
    assert hashes(output)["tree/area.c"] != before["tree/area.c"]

    (output / "tree/sum.cc.bc").write_bytes(b"BC\xc0\xde damaged")
    report = build_corpus([tree], output)
    assert (report.compiled, report.reused) == (1, 1)
    assert hashes(output)["tree/sum.cc"] == before["tree/sum.cc"]

    (tree / "sum.cc").unlink()
    assert build_corpus([tree], output).modules == 1
    assert not (output / "tree/sum.cc.bc").exists()


def test_damaged_state_only_costs_time(tree, tmp_path):
    build_corpus([tree / "area.c"], tmp_path / "out")
    for text in ("{", "[]", '{"format": 1, "modules": {"tree/area.c": {}}}', '{"format": 99}'):
        (tmp_path / "out/build_state.json").write_text(text)
        assert build_corpus([tree / "area.c"], tmp_path / "out").compiled == 1


def test_broken_sources_are_named_not_dropped(tree, tmp_path):
    (tree / "broken.c").write_text("int f(void) { return missing; }\n")
    (tree / "lost.cc").write_text('#include "no_such_header.h"\n')
    with (tree / "huge.c").open("wb") as file:
        file.truncate(1 << 42)
    report = build_corpus([tree], tmp_path / "out")
    assert report.modules == 2
    errors = {failure.name: failure.error for failure in report.not_compiled}
    assert list(errors) == ["tree/broken.c", "tree/huge.c", "tree/lost.cc"]
    assert "undeclared identifier 'missing'" in errors["tree/broken.c"]
    assert errors["tree/broken.c"].startswith("broken.c:1:")
    assert "no_such_header.h" in errors["tree/lost.cc"]
    # No compiler begins to read this one.
    too_large = "expected a source of at most 268,435,456 bytes, found 4,398,046,511,104"
    assert errors["tree/huge.c"] == too_large
    written = json.loads((tmp_path / "out/not_compiled.json").read_text())
    assert [failure["source"] for failure in written] == ["broken.c", "huge.c", "lost.cc"]
    with pytest.raises(UserError, match="broken.c: .*missing") as caught:
        build_corpus([tree / "broken.c"], tmp_path / "none")
    assert "\n" not in str(caught.value)


def test_equal_modules_are_kept_once_and_empty_ones_not_at_all(tree, tmp_path):
    (tree / "table.c").write_text("const int table[] = {1, 2, 3};\n")
    (tree / "-DX.c").write_text("int option(int x) { return x + 1; }\n")
    commands = [
        *(("area.c", f"cc {level} -Iinclude -c area.c") for level in ("-O2", "-O3")),
        *(("-DX.c", "cc -c -- -DX.c"), ("table.c", "cc -c table.c")),
    ]
    entries = [{"directory": ".", "file": file, "command": text} for file, text in commands]
    write_database(tree, entries)
    report = build_corpus([tree], tmp_path / "out")
    assert report.modules == 2  # a source whose name looks like an option is one
    assert report.duplicates == ("tree/area.c-2",)
    assert report.empty == ("tree/table.c",)


def test_foreign_bitcode_is_taken_over_if_it_can_be_read(tree, tmp_path):
    build_corpus([tree], tmp_path / "first")
    bitcode = tmp_path / "bitcode"
    bitcode.mkdir()
    good = (tmp_path / "first/tree/area.c.bc").read_bytes()
    (bitcode / "good.bc").write_bytes(good)
    (bitcode / "half.bc").write_bytes(good[: len(good) // 2])
    (bitcode / "head.bc").write_bytes(good[:4])
    (bitcode / "text.bc").write_bytes(b"no bitcode at all")
    report = build_corpus([bitcode], tmp_path / "second")
    assert [module.name for module in Corpus.load(tmp_path / "second").modules] == ["bitcode/good"]
    assert (bitcode / "good.bc").read_bytes() == good, "the user's file stays"
    failures = {failure.name: failure.error for failure in report.not_compiled}
    assert set(failures) == {"bitcode/half", "bitcode/head", "bitcode/text"}
    assert all("expected bitcode that LLVM" in error for error in failures.values())
    assert all("\n" not in error for error in failures.values())


def test_a_source_that_takes_too_long_is_killed_and_named(tree, tmp_path):
    (tree / "slow.cc").write_text(SLOW_SOURCE)
    report = build_corpus([tree / "area.c", tree / "slow.cc"], tmp_path / "out", timeout_s=2.0)
    assert [failure.error for failure in report.not_compiled] == ["took longer than 2 s"]
    assert leftovers(tmp_path / "out") == []


@pytest.mark.usefixtures("default_signals")
def test_interrupted_build_leaves_nothing(tree, tmp_path):
    output = tmp_path / "out"
    build_corpus([tree / "area.c"], output)
    before = hashes(output)
    for number in range(20):
        (tree / f"more{number}.cc").write_text(CXX_SOURCE.replace("sum", f"sum{number}"))
    program = (
        "import sys; from environments.inlining.corpus.building import build_corpus\n"
        "def say(*event): print(*event, flush=True)\n"
        "build_corpus(sys.argv[1:2], sys.argv[2], jobs=2, progress=say)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, tree, output],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert b"KeyboardInterrupt" in errors
    assert hashes(output) == before
    assert leftovers(output) == []
    assert not compilers_at_work(output)


def compilers_at_work(directory):
    """Processes whose command line names the directory, unless they end soon."""
    for _ in range(600):
        lines = [" ".join(unless_ended(process.cmdline, [])) for process in psutil.process_iter()]
        compilers = [line for line in lines if str(directory) in line]
        if not compilers:
            break
        time.sleep(0.1)
    return compilers


def test_leftovers_of_a_killed_build_are_removed_but_not_behind_a_link(tree, tmp_path):
    building, precious = tmp_path / "out/.building", tmp_path / "others/7/module.bc"
    precious.parent.mkdir(parents=True)
    precious.write_bytes(b"half")
    (tmp_path / "out").mkdir()
    building.symlink_to(tmp_path / "others")
    with pytest.raises(UserError, match="found a link; remove it"):
        build_corpus([tree / "area.c"], tmp_path / "out")
    assert precious.exists()
    building.unlink()
    (tmp_path / "others").rename(building)
    assert build_corpus([tree / "area.c"], tmp_path / "out").modules == 1
    assert leftovers(tmp_path / "out") == []


def test_output_that_is_no_corpus_is_left_alone(tree, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.tex").write_text("do not touch")
    with pytest.raises(UserError, match="empty directory or a corpus"):
        build_corpus([tree / "area.c"], tmp_path / "mine")
    with pytest.raises(UserError, match="found a file"):
        build_corpus([tree / "area.c"], tmp_path / "mine/thesis.tex")


def test_subset_is_a_corpus_of_its_own(tree, tmp_path):
    output = tmp_path / "all"
    subset = tmp_path / "other"
    subset.mkdir()
    (subset / "alone.c").write_text("int alone(int x) { return x + 1; }\n")
    build_corpus([tree, subset], output)
    corpus = Corpus.load(output)
    for _ in range(2):
        write_subset(corpus.select(["tree"]), tmp_path / "subset")
    assert hashes(tmp_path / "subset") == {
        module.name: module.sha256 for module in corpus.select(["tree"]).modules
    }
    # Not a second copy of it.
    assert (tmp_path / "subset/tree/area.c.bc").samefile(output / "tree/area.c.bc")
    write_subset(corpus.select(["other"]), tmp_path / "subset")
    assert list(Corpus.load(tmp_path / "subset").projects) == ["other"]
    assert not (tmp_path / "subset/tree/area.c.bc").exists()
    assert leftovers(tmp_path / "subset") == []
    whole = hashes(tmp_path / "subset")
    with pytest.raises(UserError, match="expected to write to .*free some space"), no_room():
        write_subset(corpus.select(["other"]), tmp_path / "subset")
    assert hashes(tmp_path / "subset") == whole
    assert leftovers(tmp_path / "subset") == []
