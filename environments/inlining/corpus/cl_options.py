"""Translate options of Microsoft's compiler, which clang-cl understands, to those of clang."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from environments import files

_WITH_VALUE = (
    ("external:I", "-isystem"),
    ("imsvc", "-isystem"),
    ("FI", "-include"),
    ("I", "-I"),
    ("D", "-D"),
    ("U", "-U"),
)
_EXACT = {
    "TP": ("-x", "c++"),
    "TC": ("-x", "c"),
    "J": ("-funsigned-char",),
    "GR-": ("-fno-rtti",),
    "std:c11": ("-std=c11",),
    "std:c17": ("-std=c17",),
    "std:clatest": ("-std=c23",),
    "std:c++latest": ("-std=c++23",),
}
_STANDARD = re.compile(r"std:(c\+\+\d\w)")
# Options that clang-cl shares with clang. The others with "-" are spelled with "/", too.
_SHARED = re.compile(
    r"--.*|-(f|m|Wno-|std=|nostd|i(system|quote|dirafter|macros|nclude)).*", re.DOTALL
)


def gnu_options(words: Sequence[str]) -> list[str]:
    """Return options of clang that mean the same.

    Returns:
        Sources, and the options that select includes, macros, the language and its dialect.
    """
    rest = iter(words)
    options: list[str] = []
    for word in rest:
        if word == "--":
            options += [word, *rest]
        elif not word.startswith(("/", "-")) or _is_source(word):
            options.append(word)
        elif word in ("-o", "/o", "-mllvm"):
            next(rest, None)
        elif word == "-Xclang":
            options += [word, *(value for value in (next(rest, None),) if value is not None)]
        else:
            options += _translated(word, rest)
    return options


def _translated(word: str, rest: Iterator[str]) -> Sequence[str]:
    """Return what one option means; its value may be the next word."""
    if word.startswith("-") and _SHARED.fullmatch(word):
        return (word,)
    name = word[1:]
    if name in _EXACT:
        return _EXACT[name]
    if standard := _STANDARD.fullmatch(name):
        return (f"-std={standard[1]}",)
    if name.startswith("clang:"):
        return (name.removeprefix("clang:"),)
    for prefix, option in _WITH_VALUE:
        if name.startswith(prefix):
            value = name.removeprefix(prefix) or next(rest, "")
            return (option, value) if value else ()
    return ()


def _is_source(word: str) -> bool:
    """Return whether a word with "/" is a file: /Data/x.cpp might also define the macro ata/x."""
    return word.startswith("/") and word.count("/") > 1 and files.is_file(word)
