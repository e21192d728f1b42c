"""What can be wrong with sources to compile, and with how they are compiled."""

from __future__ import annotations

from typing import Any

from tools.studies.bad_inputs.damage import (
    GIVEN,
    PERHAPS,
    Damage,
    any_file,
    contents,
    encoded,
    flips,
    wrong_json,
)

SOURCE = b"int f(int x) { return x + 1; }\n"
_BITCODE = b"BC\xc0\xde" + bytes(range(256))
_ENTRY: dict[str, Any] = {"directory": ".", "file": "a.c", "arguments": ["cc", "-c", "a.c"]}
# What is wrong -> the arguments of an entry.
_ARGUMENTS: dict[str, Any] = {
    "an empty command": [],
    "a command that is a text": "cc -c a.c",
    "no command": None,
    "an option with a zero byte": ["cc", "-DX=a\0b", "a.c"],
    "an option of half a character": ["cc", "-DX=\ud800", "a.c"],
    "an option that is not known": ["cc", "-fnonsense", "a.c"],
    "a language that is not known": ["cc", "-x", "nonsense", "a.c"],
    "a header that is missing": ["cc", "-include", "missing.h", "a.c"],
    "an option of 200,000 letters": ["cc", "-D" + "x" * 200_000, "a.c"],
    "a file of options that is missing": ["cc", "@missing", "a.c"],
    "a file of options that is a source": ["cc", "@a.c", "a.c"],
    "a file of options that reads itself": ["cc", "@compile_commands.json", "a.c"],
    "a file of options that is a directory": ["cc", "@.", "a.c"],
    "a launcher alone": ["env", "-S", "A=B"],
    "a shell without a command": ["sh", "-c"],
    "another language": ["cc", "-x", "cuda", "a.c"],
    "a precompiled header that is missing": ["cc", "-include-pch", "x.pch", "a.c"],
}
_ENTRIES: dict[str, dict[str, Any]] = {
    **{what: {"arguments": words} for what, words in _ARGUMENTS.items()},
    "a quote that is not closed": {"arguments": None, "command": "cc 'a.c"},
    "a command that is an object": {"arguments": None, "command": {}},
    "shells within shells": {"arguments": None, "command": "sh -c 'sh -c \"sh -c cc\"' ;;& && |"},
    "a command of operators": {"arguments": None, "command": "; && || & |"},
    "a file that is missing": {"file": "missing.c"},
    "a file with a zero byte": {"file": "a\0.c"},
    "a file with a line break": {"file": "a\n.c"},
    "a file of half a character": {"file": "\ud800.c"},
    "a file with too long a name": {"file": "a" * 5000 + ".c"},
    "a file that is a directory": {"file": "..", "arguments": ["cc", "-xc", ".."]},
    "a directory that is missing": {"directory": "nowhere"},
    "a directory with a zero byte": {"directory": "a\0b"},
    "a directory that is a file": {"directory": "a.c"},
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
    "an error of two lines": b"#error one\\\n two\n",
    "an error with an escape": b"#error \x1b[2J\n",
    "an error that is not UTF-8": b"#error \xff\xfe\n",
}


def paths_of_sources(seed: int) -> list[Damage]:
    """Return what may stand where a source should be, under a name that says nothing."""
    return any_file(SOURCE, seed, without=("an empty name",))


def sources(seed: int) -> list[Damage]:
    """Return what can be wrong with a file that has the name of a C source."""
    perhaps = _perhaps(any_file(SOURCE, seed))
    return [*perhaps, *contents((f"with {what}", text) for what, text in _SOURCES.items())]


def bitcode(seed: int) -> list[Damage]:
    """Return what can be wrong with a file that has the name of bitcode."""
    flipped = [damage._replace(status=(1,)) for damage in flips(_BITCODE, seed, 10)]
    return [*_perhaps(any_file(_BITCODE, seed)), *flipped]


def databases(seed: int) -> list[Damage]:
    """Return what can be wrong with a compile_commands.json."""
    fields = [(0,), (0, "directory"), (0, "file"), (0, "arguments"), (0, "arguments", 1)]
    wrong = dict(wrong_json([_ENTRY], fields))
    wrong |= {what: encoded([{**_ENTRY, **entry}]) for what, entry in _ENTRIES.items()}
    return _perhaps([*any_file(encoded([_ENTRY]), seed), *contents(wrong.items())])


def _perhaps(damages: list[Damage]) -> list[Damage]:
    """Return those that are in place; some of them compile."""
    return [damage._replace(status=PERHAPS) for damage in damages if damage.name == GIVEN]
