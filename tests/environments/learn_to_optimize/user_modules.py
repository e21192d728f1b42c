"""Modules of a user's, written to a directory and found as Python finds modules."""

from __future__ import annotations

import itertools
import pathlib
import textwrap

_numbers = itertools.count()


def write_module(directory: pathlib.Path, text: str) -> str:
    """Writes a module under a name that no test has used before, and returns the name."""
    name = f"users_module_{next(_numbers)}"
    (directory / f"{name}.py").write_text(textwrap.dedent(text), encoding="utf-8")
    return name
