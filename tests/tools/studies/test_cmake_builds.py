"""Options of the rungs, and instructions that a small driver executes."""

from __future__ import annotations

import pathlib

import pytest

from environments.errors import UserError
from tests.requirements import need_one_of, need_programs
from tools.studies import cmake_builds
from tools.studies.cmake_builds import RUNGS, Build, Compiler, Tree

LIBRARY = """\
long work(long n) {
  long sum = 0;
  while (n) {
    sum += n--;
    asm("");
  }
  return sum;
}
"""
# The sum of the numbers up to a million is 500000500000.
DRIVER = "long work(long); int main() { return work(1000000) == 500000500000 ? 0 : 1; }\n"


def test_the_options_of_rungs():
    prefixes = {pathlib.Path("/tmp/a b"): "."}
    plain = cmake_builds.definitions(RUNGS["plain"], None, prefixes)
    compiling = "-Oz -DNDEBUG '-ffile-prefix-map=/tmp/a b=.'"
    assert plain == {
        **{f"CMAKE_{name}_FLAGS_MINSIZEREL": compiling for name in ("C", "CXX")},
        **{
            f"CMAKE_{kind}_LINKER_FLAGS_MINSIZEREL": "-fuse-ld=lld"
            for kind in ("SHARED", "MODULE", "EXE")
        },
    }
    variables = cmake_builds.definitions(RUNGS["gc-icf"], -50, {})
    compiling = "-Oz -DNDEBUG -ffunction-sections -fdata-sections -mllvm -inline-threshold=-50"
    linking = "-fuse-ld=lld -Wl,--gc-sections -Wl,--icf=all"
    assert variables["CMAKE_CXX_FLAGS_MINSIZEREL"] == compiling
    assert variables["CMAKE_SHARED_LINKER_FLAGS_MINSIZEREL"] == linking


def test_what_a_compiler_lacks(tmp_path):
    clang = tmp_path / "clang-77"
    clang.write_text("#!/bin/sh\necho ${1#*=}-of-nobody\n")
    clang.chmod(0o755)
    assert Compiler(str(clang)).cxx == tmp_path / "clang++-77"
    assert Compiler(str(clang)).why_no_rungs().endswith("apt-get install lld-77")


@pytest.mark.ci
def test_instructions_of_a_driver(tmp_path, monkeypatch):
    need_programs("valgrind")
    compiler = Compiler(need_one_of("clang-22", "clang-19"))
    monkeypatch.setattr(cmake_builds, "_DRIVERS", tmp_path)
    (tmp_path / "sum.cpp").write_text(DRIVER)
    (tmp_path / "library.cpp").write_text(LIBRARY)
    tree = Tree("libsum.so", "c++17", include=".")
    build = Build("sum", tree, tmp_path, tmp_path, tmp_path / "build.log", compiler)
    library = ("-shared", "-fPIC", tmp_path / "library.cpp", "-o", tmp_path / "libsum.so.1")
    build.run(compiler.cxx, "-O2", *library)
    # At least 3 instructions in each of a million turns; the loader of programs takes 2 million.
    assert 3_000_000 < build.count_instructions(["other.so", "libsum.so.1"]) < 9_000_000
    # A library that computes something else.
    (tmp_path / "library.cpp").write_text("long work(long) { return 0; }\n")
    build.run(compiler.cxx, *library)
    with pytest.raises(UserError, match="expected valgrind to end well, found exit status 1"):
        build.count_instructions(["libsum.so.1"])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert build.count_instructions(["libsum.so.1"]) is None
