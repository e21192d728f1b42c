"""Build systems and compilers: steered, left out with a reason, or unchanged.

RESULTS.md has these rows as a table.
"""

from __future__ import annotations

import pathlib
from typing import NamedTuple

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


class Row(NamedTuple):
    """A build system or compiler; CXX is a clang."""

    name: str
    build: str  # in a shell, by `tfrl build`
    configure: str = ""  # what comes before, without it
    programs: str = ""  # that it needs
    files: dict[str, str] = {}  # more files of the project
    steered: int = 3  # compiles that the policy decides
    reason: str = ""  # why others are not, as far as the text is fixed


MESON_FILES, QBS_FILES = {"meson.build": MESON}, {"program.qbs": QBS}
SCONS_FILES, SCONS_FILES_OF_OURS = {"SConstruct": SCONS % "('PATH',)"}, {"SConstruct": SCONS % OURS}
AUTOTOOLS = {"configure.ac": CONFIGURE, "Makefile.am": AUTOMAKE}
AUTORECONF = (
    "mv 'library 0.cpp' library0.cpp && mv 'library 1.cpp' library1.cpp && rm Makefile && "
    "autoreconf --install && mkdir b && cd b && ../configure CXXFLAGS=-Oz --disable-static"
)
CMAKE = "cmake -S . -B b -DCMAKE_CXX_FLAGS=-Oz -DCMAKE_BUILD_TYPE="
MINSIZEREL = "cmake -S . -B b -DCMAKE_BUILD_TYPE=MinSizeRel"
QBS_SETUP = "qbs setup-toolchains --settings-dir settings $(readlink -f $CXX) here"
QBS_BUILD = "qbs build --settings-dir settings profile:here"
DISTCC = ALL % "DISTCC_HOSTS=localhost distcc $CXX"

ROWS = [
    Row("make", "make CXXFLAGS=-Oz", "", "make"),
    Row("CMake and Make", "cmake --build b -j2", CMAKE, "cmake make"),
    Row("CMake and Ninja", "ninja -C b", f"{CMAKE} -G Ninja", "cmake ninja"),
    Row("CMake's MinSizeRel", "cmake --build b", MINSIZEREL, "cmake make", {}, 0, "-Os"),
    Row("Autotools", "make -C b check", AUTORECONF, "autoreconf libtoolize make", AUTOTOOLS),
    Row("Meson", "meson compile -C b", "meson setup b", "meson ninja", MESON_FILES),
    Row("SCons", "scons -Q", "", "scons", SCONS_FILES, 0, NOTHING_TOLD),
    Row("SCons that passes our variables on", "scons -Q", "", "scons", SCONS_FILES_OF_OURS),
    Row("Qbs", QBS_BUILD, QBS_SETUP, "qbs", QBS_FILES),
    Row("distcc on this machine", DISTCC, "", "distcc"),
    Row("icecc without a scheduler", ALL % "icecc $CXX", "", "icecc"),
    Row("clang 16", ALL % "clang++-16 -Werror", "", "clang++-16", {}, 0, "older than 19"),
    Row("clang 14", ALL % "clang++-14 -Werror", "", "clang++-14", {}, 0, NOTHING_TOLD),
]


@pytest.mark.slow
@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in ROWS])
def test_a_build_does_what_it_would_have_done(row, tfrl, build_environment, tmp_path, monkeypatch):
    need_programs(CLANGS[1], *row.programs.split())
    clang, _ = find_clang(CLANGS[1])
    sources = write_sources(tmp_path / "project")
    for name, text in row.files.items():
        (sources / name).write_text(text)
    monkeypatch.chdir(sources)
    monkeypatch.setenv("CXX", clang)
    if row.configure:
        run("sh", "-c", row.configure, cwd=sources)
    ran = tfrl("build", "--policy", "never", "--json", "--", "sh", "-c", row.build)
    assert ran.result["steered"] == row.steered
    reasons = {plain["reason"] for plain in ran.result["plain"]}
    assert len(reasons) == bool(row.reason), reasons
    assert all(row.reason in text for text in reasons), reasons
    for program in pathlib.Path().rglob("program"):
        # libtool's own finds its library only by the wrapper beside.
        if program.is_file() and program.parent.name != ".libs":
            run(program.resolve(), cwd=sources)
