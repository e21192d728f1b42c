"""Which options a compiler refuses, by what it prints."""

from __future__ import annotations

import pytest

from environments.inlining.corpus.refusals import read_refusals


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        ("clang: error: unknown argument: '-fnonsense'", "-fnonsense"),
        (
            "clang: error: unknown argument '-mlongcalls'; did you mean '-mlong-calls'?",
            "-mlongcalls",
        ),
        ('error: unknown clang option: "-fivopts"', "-fivopts"),
        ("clang: error: unsupported option '-mfpu=' for target 'x86_64'", "-mfpu=neon"),
        (
            "clang: error: unsupported argument 'tiny' to option '-mcmodel=' for target 'x'",
            "-mcmodel=tiny",
        ),
        ("clang: error: unsupported option '-G' for target 'x86_64'", "-G0"),
        ("clang: error: invalid argument '-fa' only allowed with '-fb'", "-fa"),
        ("error: invalid argument '-std=c++17' not allowed with 'C'", "-std=c++17"),
        ("error: invalid value 'c99x' in '-std=c99x'", "-std=c99x"),
        ("clang: error: invalid value 'reg' in 'mguard=', expected one of: tls", "-mguard=reg"),
        ("clang: error: unknown target ABI 'lp64'", "-mabi=lp64"),
        (
            'error: target architecture x86_64 has no LLVM CPU feature named "bulk-memory"',
            "-mbulk-memory",
        ),
        ("error: unknown argument: '-fcc1'", "-Xclang -fcc1"),
        # An error in a source, which may name an option; and options that a source needs.
        ("x.c:1:2: error: use of undeclared identifier '-fnonsense'", ""),
        ("In file included from <built-in>:1:\n<command line>:1:9: error: '-fa'", ""),
        ("clang: error: no such file or directory: '-DX'", ""),
        ("error: unable to read PCH file '-include'", ""),
    ],
)
def test_options_that_a_compiler_refuses(message, refused):
    options = (
        "-DX -include z.h -fnonsense -mlongcalls -mlong-calls -fivopts -mfpu=neon -mcmodel=tiny -G0"
        " -fa -fb -std=c++17 -std=c99x -mguard=reg -mabi=lp64 -mbulk-memory -Xclang -fcc1"
    )
    refusals = read_refusals(f"x.c: note: '-fb'\n{message}\n", options.split())
    assert [" ".join(refusal.group) for refusal in refusals] == ([refused] if refused else [])


def test_all_refused_options_of_one_run_are_read_and_those_of_every_run_marked():
    messages = (
        "clang: error: unknown argument: '-fx'\n"
        "clang: error: unsupported option '-mthumb' for target 'x86_64'\n"
        "clang: error: invalid argument '-fa' only allowed with '-fb'\n"
        "error: invalid argument '-std=c++17' not allowed with 'C'\n"
    )
    refusals = read_refusals(messages, ["-fx", "-mthumb", "-fa", "-std=c++17"])
    assert [refusal.always for refusal in refusals] == [True, True, False, False]


def test_an_error_with_another_name_for_an_option_of_a_machine():
    """Clang says -mbig-endian of -EB, and -fdefault-calling-conv= of -mrtd."""
    message = "clang: error: unsupported option '-mbig-endian' for target 'x86_64'"
    refusals = read_refusals(message, ["-EB", "-mrtd", "-Efoo", "-fPIC", "-I", "-m"])
    assert [refusal.group for refusal in refusals] == [("-EB",), ("-mrtd",)]
    assert not any(refusal.always for refusal in refusals)
