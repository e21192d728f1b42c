"""Which options of a build a corpus keeps, and which its compiler may refuse."""

from __future__ import annotations

import pytest

from environments.inlining.corpus.compile_options import clean_arguments, header_sets, read_refusals

KEPT = (
    "-I a -Ib -isystem c -iquote d -DX=1 -D Y -UZ -std=c++20"
    " -fno-exceptions -fno-rtti -fvisibility=hidden"
)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (KEPT, KEPT),
        ("-O2 -g3 -o x.o -c -fPIC", "-fPIC"),
        ("-MD -MMD -MP -MF x.d -MT x.o -MQ x", ""),
        ("-flto=thin -ffat-lto-objects -Wall -Werror -Wl,-z,now -Wp,-MD,x", ""),
        ("-march=native -mtune=generic -mavx2", "-mavx2"),
        ("-fsanitize=address --coverage -fprofile-arcs -pg", ""),
        ("-Xclang -load -mllvm -inline-threshold=3 --param max-inline=3", ""),
        ("-pthread -lfoo -L/lib -shared -funsigned-char", "-pthread -funsigned-char"),
        ("-fplugin=./a.so -fplugin-arg-a-b=1 -B. -B bin -wrapper sh --config=c --config c", ""),
        # Options of which only the other half was dropped.
        ("-fprofile-instr-generate -fcoverage-mapping -fcoverage-mcdc", ""),
        ("-flto -fwhole-program-vtables -fvirtual-function-elimination -fsplit-lto-unit", ""),
        ("-fsyntax-only -E -S -emit-ast -v -### -H -dM --analyze", ""),
        ("-Wall -Wno-int-conversion -Werror", "-Wno-int-conversion"),
        # What is for the preprocessor; its results and those of other programs are not kept.
        ("-Wp,-DX=1,-MD,x.d -Xpreprocessor -DY -Xassembler -a", "-DX=1 -DY"),
        ("-s WASM=1 -sSIDE_MODULE=1 -shared-libgcc -aux-info x -MJ x.json", ""),
        # A header in place of a precompiled one, and never by the option that looks for one.
        ("-include z.h", "-Xclang -include -Xclang z.h"),
        # For its macros, a header that is included need not be read first.
        ("-include z.h -imacros z.h -imacros y.h", "-Xclang -include -Xclang z.h -imacros y.h"),
        ("-includez.h --include=y.h", "-Xclang -include -Xclang z.h -Xclang -include -Xclang y.h"),
        ("-Winvalid-pch -fpch-preprocess -include-pch z.pch", "-Xclang -include -Xclang z.h"),
        ("-Xclang -include-pch -Xclang z.pch", "-Xclang -include -Xclang z.h"),
        (
            "-Xclang -include-pch -Xclang z.pch -Xclang -include -Xclang z.h",
            "-Xclang -include -Xclang z.h",
        ),
        ("-include-pch other.pch", "-include-pch other.pch"),
        # Pairs for cc1: those that say what a source means.
        ("-Xclang -std=c++20 -Xclang -fno-pch-timestamp", "-Xclang -std=c++20"),
        ("-Xclang -load -Xclang ./a.so -Xclang -add-plugin -Xclang a -DX", "-DX"),
        ("-Xclang -plugin-arg-a -Xclang -include -Xclang -mllvm -Xclang -x", ""),
        ("-Xclang=-load -Xarch_host -fplugin=a.so -mllvm=-x -fpass-plugin=a.so -specs=a", ""),
        # Operands, among them those after "--", and options without their value.
        ("-I. -- -x.c y.c", "-I."),
        ("x.c 10 y.o -DX -I", "-DX"),
        ("-fmodules -fmodules-cache-path=a -fmodule-map-file=b -fmodule-file=c", "-fmodule-file=c"),
    ],
)
def test_arguments_that_say_what_a_source_means(arguments, expected):
    assert " ".join(clean_arguments(arguments.split(), {"z.pch": "z.h"}.get)) == expected


def test_headers_of_another_machine_are_tried_only_if_they_are_there():
    options = "-DX --sysroot=/sdk -isysroot /sdk --gcc-toolchain=/none -isysroot/none"
    with_sdk, without = header_sets(options.split(), lambda place: place == "/sdk")
    assert " ".join(with_sdk) == "-DX --sysroot=/sdk -isysroot /sdk"
    assert without == ("-DX",)
    assert header_sets(options.split(), lambda place: False) == (("-DX",),)
    assert header_sets(["-stdlib=libc++"], lambda place: False) == (("-stdlib=libc++",), ())


@pytest.mark.parametrize(
    ("message", "refused"),
    [
        # What real compilers say is in test_compile_commands.REFUSED.
        (
            "clang: error: unknown argument '-mlongcalls'; did you mean '-mlong-calls'?",
            "-mlongcalls",
        ),
        ('error: unknown clang option: "-fivopts"', "-fivopts"),
        # An error in a source, which may name an option; and options that a source needs.
        ("x.c:1:2: error: use of undeclared identifier '-fnonsense'", ""),
        ("In file included from <built-in>:1:\n<command line>:1:9: error: '-fa'", ""),
        ("clang: error: no such file or directory: '-DX'", ""),
        ("error: unable to read PCH file '-include'", ""),
    ],
)
def test_options_that_a_compiler_refuses(message, refused):
    options = "-DX -include z.h -fnonsense -mlongcalls -mlong-calls -fivopts -fa -fb"
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
