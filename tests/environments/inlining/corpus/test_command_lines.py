"""Finding the compiler in command lines of other people's builds."""

from __future__ import annotations

import pytest

from environments.inlining.corpus import command_lines
from environments.inlining.corpus.command_lines import expand_response_files, parse_command

LAUNCHERS = """
/usr/bin/ccache distcc
rewrapper -cfg=x.cfg -exec_root=/r
CCACHE_SLOPPINESS=pch_defines ccache
env -u CC -i A=B
env CC=/usr/bin/gcc A='b c' ccache
/usr/bin/cmake -E env --unset=CC CCACHE_CPP2=1 ccache
cmake -E __run_co_compile --launcher=ccache --tidy=clang-tidy --source=x.c --
python3 -u tools/wrap.py
nice -n 10
/usr/bin/time -v -o gcc.log
timeout -s KILL -k 5 10
/bin/sh ../libtool --tag=CXX --mode=compile
zig
""".strip().splitlines()


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_launchers_with_their_options_are_skipped(tmp_path, launcher):
    line = parse_command(f"{launcher} cc -DX=1 -c x.c", tmp_path)
    assert (line.driver, line.options, line.mode) == ("cc", ("-DX=1", "-c", "x.c"), "gcc")


@pytest.mark.parametrize(
    ("program", "mode"),
    [
        ("/usr/lib/llvm-22/bin/clang++", "g++"),
        ("clang-22 --driver-mode=g++", "g++"),
        ("arm-none-eabi-gcc-9.3.1", "gcc"),
        ("x86_64-w64-mingw32-g++-posix", "g++"),
        ("em++.py", "g++"),
        ("external/local_config_cc/cc_wrapper.sh", "gcc"),
        ("mpicxx", "g++"),
        ("'C:\\LLVM\\bin\\clang-cl.exe'", "cl"),
        ("clang-22 --driver-mode=cl", "cl"),
        ("clang -cc1", "internal"),
        ("/usr/libexec/gcc/cc1plus", "internal"),
        ("kappa", ""),
    ],
)
def test_compilers_by_their_names(tmp_path, program, mode):
    line = parse_command(f"{program} -c x.c", tmp_path)
    assert (line.mode, line.compiles) == (mode, True)
    assert line.options[-2:] == ("-c", "x.c")


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("bash -euo pipefail -c 'ccache gcc -DX -c x.c'", "-DX -c x.c"),
        ("env -S 'A=B gcc -DX' -c x.c", "-DX -c x.c"),
        ('cmd /C "gcc -DX -c x.c"', "-DX -c x.c"),
        ("cd nowhere && gcc -DX -c x.c -o x.o; true", "-DX -c x.c -o x.o"),
        (": && gcc -DX -c x.c && :", "-DX -c x.c"),
        ("cp x.c y.c && kappa -c y.c", "-c y.c"),
        ("gcc '-DX=a;b && c' -c x.c; true", "-DX=a;b && c -c x.c"),
        # What follows these options is no program.
        ("kappa -I gcc -o cc -c x.c", "-I gcc -o cc -c x.c"),
        ("kappa @options -c x.c", "@options -c x.c"),
    ],
)
def test_the_first_compiler_that_a_command_runs(tmp_path, command, options):
    assert " ".join(parse_command(command, tmp_path).options) == options


def test_a_command_that_changes_the_directory(tmp_path):
    (tmp_path / "src").mkdir()
    for command in ("cd src && gcc -c x.c", "sh -c 'cd src; gcc -c x.c'"):
        assert parse_command(command, tmp_path).directory == tmp_path / "src"
    assert parse_command(["gcc", "-c", "a && b.c"], tmp_path).options == ("-c", "a && b.c")


@pytest.mark.parametrize("command", ["cp x.c y.c", "clang-tidy -p . x.c", "python3 -c 'pass' x.c"])
def test_programs_that_do_not_compile(tmp_path, command):
    assert not parse_command(command, tmp_path).compiles


def test_response_files_with_quotes_line_ends_and_files_of_their_own(tmp_path):
    (tmp_path / "outer.rsp").write_bytes(b'-DA=\'x y\'\r\n"-DB=\\"q\\"" @deep/inner.rsp -DC\n')
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/inner.rsp").write_bytes(b"\xef\xbb\xbf-DI @wide.rsp")
    (tmp_path / "wide.rsp").write_bytes("-DW".encode("utf-16"))
    words = expand_response_files(["@outer.rsp", "-c", "x.c", "@"], tmp_path)
    assert words == ["-DA=x y", '-DB="q"', "-DI", "-DW", "-DC", "-c", "x.c", "@"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "expected the file of options .*x.rsp, found: no such file"),
        (b"@x.rsp", "reads itself"),
        (b"-DX='", "no closing quotation"),
        (b"-DX=\0", "zero byte"),
        (b"-c " * 101, "at most 100 options"),
        (b"@y.rsp @y.rsp @y.rsp", "in 2 files"),
    ],
)
def test_response_files_of_no_use(tmp_path, monkeypatch, content, message):
    monkeypatch.setattr(command_lines, "_MAX_WORDS", 100)
    monkeypatch.setattr(command_lines, "_MAX_FILES", 2)
    (tmp_path / "y.rsp").touch()
    if content is not None:
        (tmp_path / "x.rsp").write_bytes(content)
    with pytest.raises(ValueError, match=message):
        expand_response_files(["@x.rsp"], tmp_path)
