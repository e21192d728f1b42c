"""A cache in an SQLite file."""

from __future__ import annotations

import contextlib
import pathlib
import sqlite3
from collections.abc import Sequence

_WAIT_S = 5.0
DAMAGED = ".damaged"
"""What the name of a file ends with that was found damaged."""


def rows_in(path: pathlib.Path, tables: Sequence[str]) -> int:
    """Return the number of rows of some tables; 0 where they cannot be read."""
    total = 0
    if path.is_file():
        with contextlib.suppress(sqlite3.Error), _connected(path) as db:
            for table in tables:
                (count,) = db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
                total += count
    return total


def clear(path: pathlib.Path) -> bool:
    """Remove all rows, while others may use the file; return False if one keeps it locked.

    The file stays, because others may have it open. What is no database is removed.
    """
    if not path.is_file():
        return True
    try:
        with _connected(path) as db:
            db.execute("BEGIN IMMEDIATE")
            named = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
            for (table,) in named:
                db.execute(f'DELETE FROM "{table}"')
            db.execute("COMMIT")
            db.execute("VACUUM")
    except sqlite3.OperationalError as error:
        return getattr(error, "sqlite_errorcode", None) != sqlite3.SQLITE_BUSY
    except sqlite3.DatabaseError:
        path.unlink(missing_ok=True)
    return True


@contextlib.contextmanager
def _connected(path: pathlib.Path):
    with contextlib.closing(sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)) as db:
        yield db
