"""Build systems and compilers: steered, left out with a reason, or unchanged.

RESULTS.md has these rows as a table.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys

import pytest

from tests.requirements import need_programs
from tests.tfrl_systems.cli.small_project import CLANGS, find_clang, run, write_sources

MESON = """\
project('shapes', 'cpp', default_options: ['buildtype=plain', 'cpp_args=-Oz'])
library = shared_library('shapes', 'library 0.cpp', 'library 1.cpp')
executable('program', 'main.cpp', link_with: library)
"""
SCONS = """\
import os
passed = {name: os.environ[name] for name in %s if name in os.environ}
variables = Environment(CXX=os.environ['CXX'], CXXFLAGS='-Oz', ENV=passed)
variables.Program('program', ['main.cpp', 'library 0.cpp', 'library 1.cpp'])
"""
OURS = "('PATH', 'CCC_OVERRIDE_OPTIONS', 'TFRL_INLINING_LOG', 'TFRL_INLINING_CONFIG')"
QBS = """\
CppApplication {
    name: "program"
    files: ["main.cpp", "library 0.cpp", "library 1.cpp"]
    cpp.commonCompilerFlags: ["-Oz"]
    cpp.optimization: "none"
}
"""
CONFIGURE = """\
AC_INIT([shapes], [1.0])
AM_INIT_AUTOMAKE([foreign])
AM_PROG_AR
LT_INIT
AC_PROG_CXX
AC_CONFIG_FILES([Makefile])
AC_OUTPUT
"""
AUTOMAKE = """\
lib_LTLIBRARIES = libshapes.la
libshapes_la_SOURCES = library0.cpp library1.cpp shape.h
check_PROGRAMS = program
program_SOURCES = main.cpp
program_LDADD = libshapes.la
TESTS = program
"""
ALL = "for f in main 'library 0' 'library 1'; do %s -Oz -c \"$f.cpp\" || exit 1; done"
NOTHING_TOLD = "no clang told of it"


@dataclasses.dataclass(frozen=True)
class Row:
    """One line of the table.

    Attributes:
      name: the build system or compiler.
      build: what builds, in a shell; CXX is a clang.
      configure: what comes before, without `tfrl build`.
      programs: what it needs.
      files: more files of the project.
      steered: the number of compiles that the policy decides.
      reasons: why others are not, as far as the text is fixed.
    """

    name: str
    build: str
    configure: str = ""
    programs: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()
    steered: int = 3
    reasons: tuple[str, ...] = ()


ROWS = [
    Row("make", "make CXXFLAGS=-Oz", programs=("make",)),
    Row(
        "CMake and Make",
        "cmake --build b -j2",
        "cmake -S . -B b -DCMAKE_CXX_FLAGS=-Oz -DCMAKE_BUILD_TYPE=",
        ("cmake", "make"),
    ),
    Row(
        "CMake and Ninja",
        "ninja -C b",
        "cmake -S . -B b -G Ninja -DCMAKE_CXX_FLAGS=-Oz -DCMAKE_BUILD_TYPE=",
        ("cmake", "ninja"),
    ),
    Row(
        "CMake's MinSizeRel",
        "cmake --build b",
        "cmake -S . -B b -DCMAKE_BUILD_TYPE=MinSizeRel",
        ("cmake", "make"),
        steered=0,
        reasons=("-Os",),
    ),
    Row(
        "Autotools and libtool",
        "make -C b -j2 check",
        "mv 'library 0.cpp' library0.cpp && mv 'library 1.cpp' library1.cpp && rm Makefile && "
        "autoreconf --install && mkdir b && cd b && ../configure CXXFLAGS=-Oz --disable-static",
        ("autoreconf", "libtoolize", "make"),
        (("configure.ac", CONFIGURE), ("Makefile.am", AUTOMAKE)),
    ),
    Row(
        "Meson",
        "meson compile -C b",
        "meson setup b",
        ("meson", "ninja"),
        (("meson.build", MESON),),
    ),
    Row(
        "SCons",
        "scons -Q",
        "",
        ("scons",),
        (("SConstruct", SCONS % "('PATH',)"),),
        steered=0,
        reasons=(NOTHING_TOLD,),
    ),
    Row(
        "SCons that passes our variables on",
        "scons -Q",
        "",
        ("scons",),
        (("SConstruct", SCONS % OURS),),
    ),
    Row(
        "Qbs",
        "qbs build --settings-dir settings profile:here",
        "qbs setup-toolchains --settings-dir settings $(readlink -f $CXX) here",
        ("qbs",),
        (("program.qbs", QBS),),
    ),
    Row("a shell", ALL % "$CXX", programs=("sh",)),
    Row("distcc on this machine", ALL % "DISTCC_HOSTS=localhost distcc $CXX", programs=("distcc",)),
    Row("icecc without a scheduler", ALL % "icecc $CXX", programs=("icecc",)),
    Row("link-time optimisation", ALL % "$CXX -flto=thin", steered=0, reasons=("link-time",)),
    Row("GCC", ALL % "g++", programs=("g++",), steered=0, reasons=("compiled by GCC",)),
    Row("zig", ALL % f"{sys.executable} -m ziglang c++", steered=0, reasons=(NOTHING_TOLD,)),
    Row(
        "clang-cl",
        "$CXX --driver-mode=cl --target=x86_64-pc-windows-msvc /c /O1 k.cpp /Fok.obj /WX",
        files=(("k.cpp", '#include "shape.h"\nint measure(Sum s) { return s.total; }\n'),),
        steered=0,
        reasons=(NOTHING_TOLD,),
    ),
    Row(
        "clang 16",
        ALL % "clang++-16 -Werror",
        programs=("clang++-16",),
        steered=0,
        reasons=("older than 19",),
    ),
    Row(
        "clang 14",
        ALL % "clang++-14 -Werror",
        programs=("clang++-14",),
        steered=0,
        reasons=(NOTHING_TOLD,),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_a_build_does_what_it_would_have_done(row, tfrl, build_environment, tmp_path, monkeypatch):
    need_programs(CLANGS[1], *row.programs)
    clang, _ = find_clang(CLANGS[1])
    sources = write_sources(tmp_path / "project")
    for name, text in row.files:
        (sources / name).write_text(text)
    monkeypatch.chdir(sources)
    monkeypatch.setenv("CXX", clang)
    if row.configure:
        run("sh", "-c", row.configure, cwd=sources)
    ran = tfrl("build", "--policy", "never", "--json", "--", "sh", "-c", row.build)
    assert ran.status == 0, ran.err
    assert ran.json["steered"] == row.steered
    reasons = {plain["reason"] for plain in ran.json["plain"]}
    assert len(reasons) == len(row.reasons), reasons
    for reason in row.reasons:
        assert any(reason in text for text in reasons), reasons
    for program in pathlib.Path().rglob("program"):
        if program.is_file():
            run(program.resolve(), cwd=sources)
