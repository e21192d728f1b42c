"""Bad inputs of `tfrl corpus build`."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterator
from typing import Any

from tools.benchmarks.bad_inputs import damage, texts
from tools.benchmarks.bad_inputs.case import (
    EITHER,
    PERHAPS,
    Case,
    MakeFn,
    all_of,
    at,
    numbers,
    usage,
    with_file,
)
from tools.benchmarks.bad_inputs.verbs import programs

_OUT = ("-o", "out", "--jobs", "1")
_SOURCE = b"int f(int x) { return x + 1; }\n"
_A_SOURCE = with_file("a.c", _SOURCE)
_ENTRY: dict[str, Any] = {"directory": ".", "file": "a.c", "arguments": ["cc", "-c", "a.c"]}
_BITCODE = b"BC\xc0\xde" + bytes(range(256))
_WRITTEN = ("out",)
"""What did not compile is listed there."""

_ENTRIES: dict[str, dict[str, Any]] = {
    "an empty command": {"arguments": []},
    "a command that is a text": {"arguments": "cc -c a.c"},
    "a quote that is not closed": {"arguments": None, "command": "cc 'a.c"},
    "a command that is an object": {"arguments": None, "command": {}},
    "no command": {"arguments": None},
    "a file that is missing": {"file": "missing.c"},
    "a file with a zero byte": {"file": "a\0.c"},
    "a file with a line break": {"file": "a\n.c"},
    "a file of half a character": {"file": "\ud800.c"},
    "a file with too long a name": {"file": "a" * 5000 + ".c"},
    "a file that is a directory": {"file": "..", "arguments": ["cc", "-xc", ".."]},
    "a directory that is missing": {"directory": "nowhere"},
    "a directory with a zero byte": {"directory": "a\0b"},
    "a directory that is a file": {"directory": "a.c"},
    "an option with a zero byte": {"arguments": ["cc", "-DX=a\0b", "a.c"]},
    "an option of half a character": {"arguments": ["cc", "-DX=\ud800", "a.c"]},
    "an option that is not known": {"arguments": ["cc", "-fnonsense", "a.c"]},
    "a language that is not known": {"arguments": ["cc", "-x", "nonsense", "a.c"]},
    "a header that is missing": {"arguments": ["cc", "-include", "missing.h", "a.c"]},
    "an option of 200,000 letters": {"arguments": ["cc", "-D" + "x" * 200_000, "a.c"]},
    "a file of options that is missing": {"arguments": ["cc", "@missing", "a.c"]},
    "a file of options that is a source": {"arguments": ["cc", "@a.c", "a.c"]},
    "a file of options that reads itself": {"arguments": ["cc", "@compile_commands.json", "a.c"]},
    "a file of options that is a directory": {"arguments": ["cc", "@.", "a.c"]},
    "a launcher alone": {"arguments": ["env", "-S", "A=B"]},
    "a shell without a command": {"arguments": ["sh", "-c"]},
    "shells within shells": {"arguments": None, "command": "sh -c 'sh -c \"sh -c cc\"' ;;& && |"},
    "a command of operators": {"arguments": None, "command": "; && || & |"},
    "another language": {"arguments": ["cc", "-x", "cuda", "a.c"]},
    "a precompiled header that is missing": {"arguments": ["cc", "-include-pch", "x.pch", "a.c"]},
}
_SOURCES = {
    "a syntax error": b"int f( {",
    "an error directive": b"#error no\n",
    "a header that is missing": b'#include "missing.h"\n',
    "a header that is itself": b'#include "a.c"\n',
    "a header that is a directory": b'#include "/"\n',
    "no function": b"int x;\n",
    "zero bytes": b"int f(void) { return 1; }\0\0" + bytes(100) + b"(",
    "brackets 100,000 deep": b"int x = " + b"(" * 100_000 + b"1" + b")" * 100_000 + b";",
    "no C": b"\x7fELF" + bytes(100),
    "an error of two lines": b'#error one\\\n two\n',
    "an error with an escape": b"#error \x1b[2J\n",
    "an error that is not UTF-8": b"#error \xff\xfe\n",
}  # fmt: skip


def cases(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl corpus build`."""
    good = ("corpus", "build", "a.c", *_OUT)
    return [
        *damage.files("SOURCE", lambda path: ("corpus", "build", path, *_OUT), _SOURCE, seed,
                      without=("an empty name",), leaves=_WRITTEN),
        *_as("a.c", _SOURCE, seed),
        *_as("a.bc", _BITCODE, seed),
        *_as("compile_commands.json", texts.encoded([_ENTRY]), seed),
        *_databases(),
        *(
            Case(f"a source with {what}", good, with_file("a.c", content), leaves=_WRITTEN)
            for what, content in _SOURCES.items()
        ),
        *(
            Case(f"a.bc: flipped bits {n}", ("corpus", "build", "a.bc", *_OUT),
                 with_file("a.bc", damage.flipped(_BITCODE, seed, n)), leaves=_WRITTEN)
            for n in range(10)
        ),
        *damage.files("--compiler", lambda path: (*good, f"--compiler={path}"), b"#!/bin/sh\n",
                      seed, others_fn=_A_SOURCE, leaves=_WRITTEN),
        *_compilers(),
        *damage.outputs("-o", lambda path: ("corpus", "build", "a.c", "-o", path),
                        others_fn=_A_SOURCE, is_directory=True),
        *_taken(),
        *numbers("corpus build a.c -o out", "--jobs", 1),
        *usage("corpus build", ("nothing", ""), ("no output", "a.c"), ("no source", "-o out")),
        Case("--project: half a character", (*good, "--project", os.fsdecode(b"\xff")), _A_SOURCE,
             (0,), _WRITTEN),
        Case("--project: leads out", (*good, "--project", "../.."), _A_SOURCE, (0,), _WRITTEN),
        Case("an empty directory", ("corpus", "build", "d", *_OUT), lambda d: (d / "d").mkdir()),
    ]  # fmt: skip


def _as(name: str, good: bytes, seed: int) -> Iterator[Case]:
    """Yield cases in which what is damaged has a name by which it is taken for something."""
    for what, make_fn in damage.in_place(name, good, seed):
        yield Case(what, ("corpus", "build", name, *_OUT), at(name, make_fn), PERHAPS, _WRITTEN)


def _databases() -> Iterator[Case]:
    fields = [(0,), (0, "directory"), (0, "file"), (0, "arguments"), (0, "arguments", 1)]
    contents = dict(texts.NO_JSON)
    contents |= {
        what: texts.encoded(bad) for what, bad in texts.with_wrong_values([_ENTRY], fields)
    }
    contents |= {what: texts.encoded([{**_ENTRY, **one}]) for what, one in _ENTRIES.items()}
    for what, content in contents.items():
        make_fn = all_of(with_file("compile_commands.json", content), _A_SOURCE)
        words = ("corpus", "build", "compile_commands.json", *_OUT)
        yield Case(f"compile_commands.json: {what}", words, make_fn, PERHAPS, _WRITTEN)


def _compilers() -> Iterator[Case]:
    scripts = {
        "no clang": "echo gcc version 12",
        "too old a clang": "echo clang version 3.1",
        "a version that is no number": "echo clang version x.y",
        "a version of 5000 digits": f"echo clang version {'9' * 5000}",
        "a version that is not UTF-8": r"printf 'clang version \377\n'",
        "a version of 5000 digits and one": f"echo clang version {'9' * 5000}.1",
        "no version": "exit 0",
        "a failure": "exit 3",
        "a signal": "kill -SEGV $$",
        "a clang that writes nothing": "echo clang version 19.1.0",
    }
    for what, script in scripts.items():
        words = ("corpus", "build", "a.c", *_OUT, "--compiler", "./cc")
        make_fn = all_of(_A_SOURCE, programs.script(script, "cc"))
        yield Case(f"--compiler: {what}", words, make_fn, EITHER, _WRITTEN)


def _taken() -> Iterator[Case]:
    """Yield outputs that hold something already."""

    def case(what: str, name: str, make_fn: MakeFn) -> Case:
        def make(directory: pathlib.Path) -> None:
            _A_SOURCE(directory)
            (directory / "out").mkdir()
            make_fn(directory / "out" / name)

        return Case(f"-o: {what}", ("corpus", "build", "a.c", *_OUT), make)

    yield case("holds another file", "precious", pathlib.Path.touch)
    yield case("holds another directory", "precious", pathlib.Path.mkdir)
    yield case("its place to build is a file", ".building", pathlib.Path.touch)
    yield case("its place to build is a pipe", ".building", os.mkfifo)
