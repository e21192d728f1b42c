"""Compile databases as other people's tools write them, up to the modules that they give."""

from __future__ import annotations

import json
import os

import pytest

from environments.errors import UserError
from environments.inlining.corpus.building import build_corpus
from environments.inlining.corpus.compile_commands import read_units
from environments.inlining.corpus.modules import Corpus
from environments.inlining.corpus.units import NotCompiled
from tests.requirements import need_programs

SOURCE = "int f(int x) { return x + 1; }\n"
GOOD = {"directory": ".", "file": "good.c", "command": "cc -c good.c"}


def write_database(directory, entries):
    path = directory / "compile_commands.json"
    path.write_text(json.dumps(entries))
    return path


def read(directory, *entries):
    """Return what a database of these entries and a good one gives beside the good one's unit."""
    gathered = read_units(write_database(directory, [GOOD, *entries]))
    units = [unit for unit in gathered.units if not unit.name.endswith("good.c")]
    assert len(units) == len(gathered.units) - 1
    return units, dict(gathered.skipped)


AS_TEXT = "expected a command as text or a list of words"


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"directory": None, "command": "cc a.c"}, "expected directory as text, found none"),
        ({"file": ["a.c"], "command": "cc a.c"}, "expected file as text"),
        ({"file": "a\0.c", "command": "cc"}, "file as a name that a file can have"),
        ({}, AS_TEXT),
        ({"command": "  "}, "expected a command, found none"),
        ({"arguments": ["cc", 1]}, AS_TEXT),
        ({"command": "cc -DX='a a.c"}, "no closing quotation"),
        ({"arguments": ["cc", "\0"]}, "found a zero byte in it"),
        ({"command": "cc @no a.c"}, "no, found: no such file or directory"),
        (None, "expected an object, found none; let the build"),
    ],
)
def test_a_damaged_entry_is_named_and_does_not_spoil_the_others(tmp_path, fields, error):
    entry = 1 if fields is None else {"directory": ".", "file": "a.c", **fields}
    (unit,), skipped = read(tmp_path, entry)
    assert isinstance(unit, NotCompiled) and skipped == {}
    assert unit.error.startswith("entry 1 of compile_commands.json: ") and error in unit.error


def test_a_database_of_damaged_entries_says_why(tmp_path):
    others = [{"directory": ".", "file": "a.S", "command": "cc -c a.S"}] * 2
    with pytest.raises(UserError, match=r"found none, but 2 \.S; let the build"):
        read_units(write_database(tmp_path, others))
    with pytest.raises(
        UserError, match=r"found none \(entry 0 .*: expected a command.*, but 2 \.S"
    ):
        read_units(write_database(tmp_path, [{"directory": ".", "file": "a.c"}, *others]))


@pytest.mark.parametrize(
    ("file", "command", "kind"),
    [
        ("a.S", "cc -c a.S", ".S"),
        ("a.cu", "nvcc -x cu -c a.cu", ".cu"),
        ("a.o", "c++ a.o b.o -o app", ".o"),
        ("a.o", "cc 'a.o", ".o"),
        ("a.o", "cc @missing.rsp", ".o"),
        ("all", "", "without suffix"),
        ("a.c", "cc -x assembler-with-cpp -c a.c", "-x assembler-with-cpp"),
        ("a.cpp", "clang++ -xcuda -c a.cpp", "-x cuda"),
        ("a.hpp", "c++ -x c++-header a.hpp -o a.pch", "-x c++-header"),
        ("a.c", "clang -cc1 -emit-obj a.c", "clang -cc1"),
        ("a.c", "clang-cl /TP /c a.c", "clang-cl"),
        ("a.c", "cp a.c b.c", "cp"),
    ],
)
def test_what_compiles_no_c_is_counted_by_its_kind(tmp_path, file, command, kind):
    entry = {"directory": ".", "file": file, "command": command}
    assert read(tmp_path, entry, entry) == ([], {kind: 2})


@pytest.mark.parametrize(
    ("file", "command", "language"),
    [
        ("a.c", "/usr/bin/g++ -c a.c", "c++"),
        ("a.c", "cc -x c++ -c a.c", "c++"),
        ("a.C", "gcc -c a.C", "c++"),
        ("a.CXX", "gcc -c a.CXX", "c++"),
        ("a.txt", "gcc -xc++ -c a.txt", "c++"),
        ("a.c", "gcc -x c++ -x none -c a.c", "c"),
        ("a.c", "gcc -c a.c -x c++", "c"),
        ("a.c", "icpx -xHost -c a.c", "c++"),
        ("a.c", "clang --driver-mode=g++ -c a.c", "c++"),
    ],
)
def test_the_language_of_an_entry(tmp_path, file, command, language):
    (unit,), _ = read(tmp_path, {"directory": ".", "file": file, "command": command})
    assert unit.language == language


def test_bytes_that_are_no_text_stay_as_they_are(tmp_path):
    path = tmp_path / "compile_commands.json"
    path.write_bytes(
        b'\xef\xbb\xbf[{"directory": ".", "file": "\xe4.c", "command": "cc -c \xe4.c"}]\r\n'
    )
    (unit,) = read_units(path).units
    assert os.fsencode(unit.source) == b"\xe4.c"


def test_links_to_directories_lead_where_the_compiler_goes(tmp_path):
    """It runs in elsewhere/deep, from where ".." is elsewhere."""
    for place in ("elsewhere/deep", "elsewhere/src", "src"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "build").symlink_to(tmp_path / "elsewhere/deep")
    (tmp_path / "src/a.c").touch()
    (tmp_path / "elsewhere/src/b.c").touch()
    entries = [
        {"directory": "build", "file": str(tmp_path / "src/a.c"), "command": "cc -c a.c"},
        {"directory": "build", "file": "../src/b.c", "command": "cc -c ../src/b.c"},
    ]
    units, _ = read(tmp_path, *entries)
    assert all((unit.directory / unit.source).is_file() for unit in units)


def test_a_precompiled_header_stands_for_the_header_that_it_was_made_from(tmp_path):
    (tmp_path / "beside.h").touch()
    entries = [
        {"directory": ".", "file": "all.hpp", "command": "c++ -x c++-header all.hpp -o o/all.pch"},
        {"directory": "o", "file": "../a.cc", "command": "c++ -include-pch all.pch -c ../a.cc"},
        {"directory": ".", "file": "b.cc", "command": "c++ -include-pch beside.h.gch -c b.cc"},
        {"directory": ".", "file": "c.cc", "command": "c++ -include-pch lost.pch -c c.cc"},
    ]
    units, _ = read(tmp_path, *entries)
    headers = [unit.argument_sets[0][-1] for unit in units]
    assert headers == ["../all.hpp", "beside.h", "lost.pch"]


class Project:
    """A project of many small sources, each compiled by its own entry of one database."""

    def __init__(self, directory):
        self.directory = directory
        self.entries = []
        (directory / "include").mkdir(parents=True)
        (directory / "include/three.h").write_text("#define THREE 3\n")

    def add(self, options, suffix=".c", text="", driver="cc", **fields):
        """Add a source that returns a number of its own, and its entry."""
        name = f"s{len(self.entries)}{suffix}"
        text = text or "int f(int x) { return x + THREE; }\n"
        (self.directory / name).write_text(f"{text}int n(void) {{ return {len(self.entries)}; }}\n")
        command = f"{driver} -Iinclude -DTHREE=3 {options} -o x.o -c {name}"
        self.entries.append({"directory": ".", "file": name, "command": command} | fields)
        return name

    def build(self, compiler="embedded"):
        """Return the names of the modules, and the errors of the others by name."""
        output = self.directory / "out" / compiler
        report = build_corpus([write_database(self.directory, self.entries)], output, compiler)
        names = {module.name.partition("/")[2] for module in Corpus.load(output).modules}
        errors = {failure.name.partition("/")[2]: failure.error for failure in report.not_compiled}
        return names, errors


@pytest.fixture
def project(tmp_path):
    return Project(tmp_path / "project")


# One kind in each line, for a compiler that knows none of these options.
REFUSED = """
-fivopts -fsched-pressure -fno-ipa-sra -fmerge-all-constants -mno-fp-ret-in-387
-mcpu=cortex-m4 -mthumb -mfloat-abi=hard -mfpu=fpv4-sp-d16
-march=rv64gc -mabi=lp64d -mcmodel=medany
--target=wasm32-wasi --sysroot=/none -mbulk-memory -mno-simd128
-mmcu=atmega168 -mlongcalls -G0 -EL
-std=c2zz -finput-charset=latin1 -fzero-call-used-regs=none-of-these
-std=c++17 -fcf-protection=most -mstack-protector-guard=sysreg
-ipo -qopt-report=5 -Xclang -fno-such-option
-EB -miphoneos-version-min=12
-coverage -fprofile-instr-generate -fcoverage-mapping -flto -fwhole-program-vtables -fsyntax-only
""".strip().splitlines()


@pytest.mark.parametrize("compiler", ["embedded", "clang-22"])
def test_options_of_other_compilers_and_machines(project, compiler):
    if compiler != "embedded":
        need_programs(compiler)
    wanted = {project.add(options) for options in REFUSED}
    wanted.add(project.add("-stdlib=libc++", ".cc", "#include <initializer_list>\n", "c++"))
    assert project.build(compiler) == (wanted, {})


def test_what_a_build_made_for_its_own_compiler_is_not_read(project):
    """A precompiled header beside the header that is included."""
    for suffix in ("pch", "gch"):
        (project.directory / f"include/three.h.{suffix}").write_text("of another compiler")
    include = "-UTHREE -Winvalid-pch -include include/three.h"
    pair = (
        "-Xclang -include-pch -Xclang include/three.h.pch -Xclang -include -Xclang include/three.h"
    )
    wanted = {project.add(include), project.add(f"-UTHREE {pair}")}
    assert project.build() == (wanted, {})
    (project.directory / "include/three.h").write_text("#define THREE 4\n")
    report = build_corpus([project.directory], project.directory / "out/embedded")
    assert report.compiled == 2, "the header is one of those that the bitcode depends on"


def test_every_source_is_a_module_or_has_the_reason(project):
    wanted = {project.add("", ".CPP"), project.add("-x c++", ".txt"), project.add("--")}
    project.add("", directory="none")
    project.add("", file="lost.c")
    project.add("", file="include", command="cc -x c -c include")
    too_long = project.add(f"-DX={'x' * 200_000}")
    odd = os.fsdecode(b"\xe4.c")
    (project.directory / odd).write_text(SOURCE)
    project.entries.append({"directory": ".", "file": odd, "arguments": ["cc", "-c", odd]})
    names, errors = project.build()
    assert names == {*wanted, "_.c"}
    remedy = "found none; run the build that makes it, then build the corpus again"
    assert errors == {
        "none/s3.c": f"expected the directory {project.directory / 'none'}, {remedy}",
        "lost.c": f"expected the source lost.c, {remedy}",
        "include": "expected the source include, found a directory",
        too_long: "the compiler does not start: Argument list too long",
    }
