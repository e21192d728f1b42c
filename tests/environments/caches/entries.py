"""What lies in the file of a cache, past all of its checks."""

from __future__ import annotations

import contextlib
import os
import sqlite3


def execute(path: os.PathLike, statement: str, *values) -> list[tuple]:
    """Execute a statement; return its rows."""
    with contextlib.closing(sqlite3.connect(path)) as db, db:
        return db.execute(statement, values).fetchall()


def contents(path: os.PathLike) -> list[bytes]:
    """Return all contents, whole or damaged."""
    return [content for (content,) in execute(path, "SELECT content FROM entries")]
