"""Programs that are none, or not those that are asked for."""

from __future__ import annotations

import os
import pathlib

from tools.benchmarks.bad_inputs.case import MakeFn, nothing

NAME = "program"
"""The name of the program that a case makes, in its directory."""


def executable(text: str, name: str = NAME) -> MakeFn:
    """Return what makes a program of some text."""

    def make(directory: pathlib.Path) -> None:
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    return make


def script(text: str, name: str = NAME) -> MakeFn:
    """Return what makes a shell script."""
    return executable(f"#!/bin/sh\n{text}\n", name)


NOT_STARTING: dict[str, tuple[str, MakeFn]] = {
    "missing": ("no-such-program", nothing),
    "empty": ("", nothing),
    "a zero byte": ("a\0b", nothing),
    "too long a name": ("n" * 5000, nothing),
    "half a character": ("\udcff", nothing),
    "a directory": (f"./{NAME}", lambda path: (path / NAME).mkdir()),
    "a pipe": (f"./{NAME}", lambda path: os.mkfifo(path / NAME)),
    "a file that is no program": (f"./{NAME}", lambda path: (path / NAME).write_text("text")),
    "a program of another format": (f"./{NAME}", executable("\x7fELF")),
    "a script without its interpreter": (f"./{NAME}", executable("#!/no/such/interpreter\n")),
    "a link to nothing": (f"./{NAME}", lambda path: (path / NAME).symlink_to("nowhere")),
    "a link to itself": (f"./{NAME}", lambda path: (path / NAME).symlink_to(NAME)),
}
"""What is wrong -> the program's name, and what makes it."""

NO_CLANGS: dict[str, tuple[str, MakeFn]] = {
    "no compiler": ("/bin/true", nothing),
    "another compiler": ("gcc", nothing),
    "a program that fails": (f"./{NAME}", script("echo no >&2\nexit 1")),
    "a program that is killed": (f"./{NAME}", script("kill -SEGV $$")),
    "a program that says it is old": (f"./{NAME}", script("echo 'clang version 3.8.0'")),
    "a program that says it is from far away": (f"./{NAME}", script("echo clang version 9999.0.0")),
    "a version of 5000 digits": (f"./{NAME}", script(f"echo clang version {'9' * 5000}")),
    "a program that is not UTF-8": (f"./{NAME}", script("printf 'clang version \\377\\376'")),
    "a program that says it is a clang": (f"./{NAME}", script("echo clang version 22.1.0")),
}  # fmt: skip
"""What is wrong with a program that starts -> its name, and what makes it."""
