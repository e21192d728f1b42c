"""Finds names that are pronouns: a reader has to look back for what they stand for."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.house_rules import Source, Violation

PRONOUNS = ("one", "found", "other", "known", "given", "made", "asked", "kept", "told")
# Keys of what `tfrl doctor --json` prints.
ALLOWED_IN = ("tfrl_systems/training/system.py",)

# Where a name can be bound; only files with such a place are parsed once more.
_PLACE = re.compile(rf"\b({'|'.join(PRONOUNS)})\b\s*(=|:|,|\)|\bin\b)")


def names_are_nouns(source: Source) -> Iterator[Violation]:
    """Variables and parameters are called by nouns of the field."""
    if source.path in ALLOWED_IN or not _PLACE.search(source.text):
        return
    for node in ast.walk(ast.parse(source.text, source.path)):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            name = node.id
        elif isinstance(node, ast.arg):
            name = node.arg
        else:
            continue
        if name in PRONOUNS:
            rule = f"a name is a noun that says what its value is; {name} says nothing"
            yield Violation(source.path, node.lineno, rule)
