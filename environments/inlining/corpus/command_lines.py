"""Take command lines of other people's builds apart: launchers, shells and response files.

A compile database says how a source was compiled, as a list of words or as the text of a shell
command. The compiler is not always the first word (`env A=B ccache gcc`, `nice -n 10 gcc`,
`sh -c 'cd src && gcc ...'`), and its options may lie in a file (`@options.rsp`).
"""

from __future__ import annotations

import codecs
import dataclasses
import pathlib
import re
import shlex
from collections.abc import Iterator, Sequence

from environments import files

_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=.*", re.DOTALL)
_QUOTING = re.compile(r"[\"'\\]")
_WORD = re.compile(r"[^ \t\r\n]+")
_OPERATOR = re.compile(r"[;&|]+")
_COMPILER = re.compile(
    r"(?:.*[-_])?"  # arm-none-eabi-gcc, wrapped_clang
    r"(?:[gktpdq]?cc|[cgq]\+\+|c[89]9|cxx|clang(?:\+\+|-cl|-cpp)?|cl|armclang|armcc|zapcc(?:\+\+)?"
    r"|icpc|icc|icp?x|dpcpp|em(?:cc|\+\+)|cosmo(?:cc|c\+\+)|mpi(?:cc|cxx|c\+\+|icc|icpc)|nvcc"
    r"|nvc(?:\+\+)?|hipcc|pg(?:cc|c\+\+)|xlc(?:\+\+)?|sun(?:cc|c\+\+))"
    r"(?:-?(?:mp-)?\d[\d.]*)?(?:[-_]wrapper|[-_]real|-posix|-win32)?(?:\.(?:exe|py|sh|bat|cmd))?",
    re.IGNORECASE,
)
_CXX = re.compile(r"\+\+|cxx|icp[cx]|dpcpp", re.IGNORECASE)
_CL = re.compile(r"(?:.*[-_])?(?:clang-)?cl(?:-?\d[\d.]*)?(?:\.exe)?", re.IGNORECASE)
_INTERNAL = frozenset(("-cc1", "-cc1as", "cc1", "cc1plus"))
_SHELL = re.compile(r"(?:ba|da|z|k)?sh(?:\.exe)?|cmd(?:\.exe)?", re.IGNORECASE)
_SHELL_TEXT = re.compile(r"-\w*c|/c", re.IGNORECASE)
_ENV_TEXT = re.compile(r"(?:-\w*S|--split-string=?)(.*)", re.DOTALL)
_INTERPRETER = re.compile(r"(?:python|perl|ruby|node)[\d.]*(?:\.exe)?", re.IGNORECASE)
# The word after these is a compiler's directory, macro or file, even if it is called "gcc".
_NOT_BEFORE_PROGRAMS = frozenset(
    ("-I", "-D", "-U", "-isystem", "-iquote", "-idirafter", "-include", "-imacros")
    + ("-o", "-x", "-MF", "-MT", "-MQ", "-target", "-arch")
)
_COMPILES = frozenset(("-c", "/c", "-S", "-E", "-fsyntax-only"))
_MAX_WORDS = 100_000
_MAX_FILES = 1000
_MAX_DEPTH = 20


@dataclasses.dataclass(frozen=True)
class CommandLine:
    """What a command line runs.

    Attributes:
        driver: name of the program that gets the options, without its directory.
        options: the words that follow the program.
        directory: where it runs.
    """

    driver: str
    options: tuple[str, ...]
    directory: pathlib.Path

    @property
    def mode(self) -> str:
        """What `--driver-mode` says, or else the name: "g++", "cl", "internal", "gcc" or ""."""
        modes = [word.partition("=")[2] for word in self.options if "--driver-mode=" in word]
        if self.driver in _INTERNAL or _INTERNAL.intersection(self.options[:1]):
            return "internal"
        if modes:
            return modes[-1]
        if _CL.fullmatch(self.driver):
            return "cl"
        if _COMPILER.fullmatch(self.driver):
            return "g++" if _CXX.search(self.driver) else "gcc"
        return ""

    @property
    def compiles(self) -> bool:
        """Whether it is a compiler by its name, or asked to compile."""
        if _INTERPRETER.fullmatch(self.driver) and "-c" in self.options[:1]:
            return False
        return bool(self.mode) or not _COMPILES.isdisjoint(self.options)


def parse_command(command: str | Sequence[str], directory: pathlib.Path) -> CommandLine:
    """Find the compiler in a command line.

    Args:
        command: words, or a text for a shell.
        directory: where the command runs. A `cd` inside it counts if there is such a directory.

    Returns:
        The first compiler that the command runs; if none is recognised, its first program.

    Raises:
        ValueError: if a text has an open quote, or there are no words.
    """
    first = None
    for words, place in _simple_commands(command, directory, _MAX_DEPTH):
        number, is_compiler = _find_driver(words)
        line = CommandLine(program_name(words[number]), tuple(words[number + 1 :]), place)
        if is_compiler:
            return line
        if first is None or (line.compiles and not first.compiles):
            first = line
    if first is None:
        raise ValueError("expected a command, found none")
    return first


def expand_response_files(words: Sequence[str], directory: pathlib.Path) -> list[str]:
    """Replace each `@FILE` by the words in the file, as GCC and clang do.

    Raises:
        ValueError: if a file is missing, includes itself or has an open quote, or there is no end.
    """
    expanded: list[str] = []
    num_files = 0
    opened: list[tuple[Iterator[str], pathlib.Path]] = [(iter(words), directory)]
    while opened:
        word = next(opened[-1][0], None)
        if word is None:
            opened.pop()
        elif len(word) < 2 or not word.startswith("@"):
            expanded.append(word)
        else:
            path = directory / word[1:]
            if any(path == place for _, place in opened):
                raise ValueError(f"expected a file of options {path}, found that it reads itself")
            opened.append((iter(_response_words(path)), path))
            num_files += 1
        if len(expanded) > _MAX_WORDS or num_files > _MAX_FILES:
            raise ValueError(f"expected at most {_MAX_WORDS:,} options in {_MAX_FILES:,} files")
    return expanded


def program_name(word: str) -> str:
    """Return a program's name without its directory, which may be one of Windows."""
    return re.split(r"[/\\]", word)[-1]


def _response_words(path: pathlib.Path) -> list[str]:
    """Return the words of a response file; for errors see `expand_response_files`."""
    try:
        data = files.read_bytes(path)
        is_wide = data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
        text = data.decode("utf-16" if is_wide else "utf-8-sig", "surrogateescape")
    except (OSError, ValueError) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
        raise ValueError(
            f"expected the file of options {path}, found: {reason}; run the build that writes it"
        ) from None
    if "\0" in text:
        raise ValueError(f"expected options in {path}, found a zero byte")
    try:
        return _shell_words(text)
    except ValueError as error:
        raise ValueError(f"expected options in {path}, found: {str(error).lower()}") from None


def _simple_commands(
    command: str | Sequence[str], directory: pathlib.Path, depth: int
) -> Iterator[tuple[list[str], pathlib.Path]]:
    """Yield the commands that a line runs in turn, launchers in front, each with its directory."""
    for words in _split(command):
        if words[0] == "cd" and len(words) == 2:
            target = directory / words[1]
            directory = target if files.is_directory(target) else directory
        elif depth and (text := _shell_text(words)) is not None:
            yield from _simple_commands(text, directory, depth - 1)
        else:
            yield words, directory


def _split(command: str | Sequence[str]) -> list[list[str]]:
    """Split a text into commands of words; a list of words is one command."""
    if not isinstance(command, str):
        return [list(command)] if command else []
    try:
        words = _shell_words(command)
    except ValueError as error:
        raise ValueError(f"expected a command, found: {str(error).lower()}") from None
    if not any(_OPERATOR.fullmatch(word) or word.endswith(";") for word in words):
        return [words] if words else []
    lexer = shlex.shlex(command, posix=True, punctuation_chars=";&|")
    lexer.whitespace_split = True
    lexer.commenters = ""
    commands: list[list[str]] = [[]]
    for word in lexer:
        if _OPERATOR.fullmatch(word):
            commands.append([])
        else:
            commands[-1].append(word)
    return [words for words in commands if words]


def _shell_words(text: str) -> list[str]:
    """Return the words of a text as a shell divides them; an open quote is a ValueError."""
    # `shlex` reads letter by letter, and databases have megabytes of commands without quotes.
    return shlex.split(text) if _QUOTING.search(text) else _WORD.findall(text)


def _shell_text(words: Sequence[str]) -> str | None:
    """Return the text that a shell or `env -S` among the launchers runs; None if there is none."""
    for number, word in enumerate(words):
        name = program_name(word)
        if _COMPILER.fullmatch(name):
            return None
        if _SHELL.fullmatch(name):
            # Options may be in front, as in `bash -euo pipefail -c TEXT`.
            following = words[number + 1 : number + 5]
            for place, option in enumerate(following, number + 1):
                if _SHELL_TEXT.fullmatch(option):
                    return "".join(words[place + 1 : place + 2])
        if name == "env":
            return _env_text(words[number + 1 :])
    return None


def _env_text(words: Sequence[str]) -> str | None:
    """Return the command of `env -S TEXT WORD...`; None if `env` has no such option."""
    for number, word in enumerate(words):
        if split := _ENV_TEXT.fullmatch(word):
            rest = list(words[number + 1 :])
            text = split[1] or "".join(rest[:1])
            return f"{text} {shlex.join(rest if split[1] else rest[1:])}"
        if not word.startswith("-") and not _ASSIGNMENT.fullmatch(word):
            break
    return None


def _find_driver(words: Sequence[str]) -> tuple[int, bool]:
    """Return the index of the compiler, and whether its name says that it is one."""
    before, not_before = "", _NOT_BEFORE_PROGRAMS
    for number, word in enumerate(words):
        name = program_name(word)
        if name == "env":
            not_before |= {"-u"}  # `env -u CC` names a variable, `python3 -u cc.py` a program.
        is_program = not word.startswith(("-", "@")) and not _ASSIGNMENT.fullmatch(word)
        is_program = is_program and before not in not_before
        if is_program and (_COMPILER.fullmatch(name) or name in _INTERNAL):
            return number, True
        before = word
    # It is the last word before the first option then, as in `launcher mycc -c`.
    options = (number for number, word in enumerate(words) if word.startswith(("-", "@")))
    return max(0, next(options, 1) - 1), False
