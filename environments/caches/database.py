"""A cache in an SQLite file, which several processes may share.

The file has a rollback journal, which works on a file system that several machines share as far as
locks do; a write-ahead log never does. A file that is damaged is set aside and begun anew. SQLite
does not notice all damage, so rows need digests; see `digests`.
"""

from __future__ import annotations

import contextlib
import logging
import os
import pathlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeVar

from environments.caches.files import complain
from environments.files import is_file

DAMAGED = ".damaged"
"""What the name of a file ends with that was found damaged."""

_WAIT_S = 5.0
_PAUSE_S = 60.0
# How much of the bound is made free at once.
_ROOM = 0.02
# They say that the file, or the way to it, cannot be used now. Any other error means damage.
_UNUSABLE = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_AUTH,
        sqlite3.SQLITE_NOLFS,
        sqlite3.SQLITE_PROTOCOL,
    }
)
_SIDE_FILES = ("-journal", "-wal", "-shm")

Result = TypeVar("Result")
_log = logging.getLogger(__name__)


class Database:
    """Tables in a file, or in memory. Several threads may use one object.

    Args:
      path: the file; made with its directory if it does not exist. None keeps everything in memory.
      tables: name -> what follows "CREATE TABLE NAME (".
      version: raised whenever what is kept means something else. A file of another version is
        emptied.
      bound_bytes: the space that all rows may take, approximately; None for any.
      forget_fn: (connection) -> None; deletes the rows that were not used for the longest time, few
        at once. Called until there is room again.

    Attributes:
      problem: why the file cannot be used now; "" if it can.
    """

    def __init__(
        self,
        path: pathlib.Path | None,
        tables: Mapping[str, str],
        version: int,
        bound_bytes: int | None,
        forget_fn: Callable[[sqlite3.Connection], None],
    ) -> None:
        self.problem = ""
        self._path = path
        self._tables = tables
        self._version = version
        self._bound_bytes = bound_bytes
        self._forget_fn = forget_fn
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        # When the file is read and written again, by the monotonic clock.
        self._read_s = self._write_s = 0.0
        self.read(lambda db: None, None)

    def read(self, act_fn: Callable[[sqlite3.Connection], Result], otherwise: Result) -> Result:
        """Return what a function reads; `otherwise` if the file cannot be used."""
        return self._do(act_fn, otherwise, False)

    def write(self, act_fn: Callable[[sqlite3.Connection], object]) -> None:
        """Let a function write, all or nothing; write nothing if the file cannot be used."""

        def act(db: sqlite3.Connection) -> None:
            with _transaction(db):
                act_fn(db)
                self._make_room(db)

        self._do(act, None, True)

    def close(self) -> None:
        """Close the file."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _do(
        self, act_fn: Callable[[sqlite3.Connection], Result], otherwise: Result, writes: bool
    ) -> Result:
        with self._lock:
            for _ in range(2):  # The second time with a file that was begun anew.
                if time.monotonic() < (self._write_s if writes else self._read_s):
                    break
                try:
                    result = act_fn(self._connect())
                except sqlite3.ProgrammingError:
                    raise
                except (sqlite3.Error, OSError) as error:
                    if self._path is None:
                        raise
                    self._recover(self._path, error, writes)
                else:
                    if time.monotonic() >= self._write_s:
                        self.problem = ""
                    return result
        return otherwise

    def _connect(self) -> sqlite3.Connection:
        if self._db is None:
            if self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                self._path or ":memory:",
                timeout=_WAIT_S,
                isolation_level=None,
                check_same_thread=False,
            )
            if self._path is not None:
                self._inode = self._path.stat().st_ino
            self._db.execute("PRAGMA cell_size_check = ON")
            self._db.execute("PRAGMA journal_mode = TRUNCATE")
            # A process that is killed leaves a whole file all the same. Only a machine that loses
            # its power may leave a damaged one, and waiting for its disk costs more than a compile.
            self._db.execute("PRAGMA synchronous = OFF")
            # A text that is damaged must be read to be noticed.
            self._db.text_factory = lambda text: text.decode(errors="replace")
            if _number(self._db, "user_version") != self._version:
                self._begin(self._db)
        return self._db

    def _begin(self, db: sqlite3.Connection) -> None:
        """Make the tables, in place of those of another version."""
        with _transaction(db):
            if _number(db, "user_version") == self._version:
                return  # Another process has just made them.
            for name, columns in self._tables.items():
                db.execute(f"DROP TABLE IF EXISTS {name}")
                db.execute(f"CREATE TABLE {name} ({columns}")
            db.execute(f"PRAGMA user_version = {self._version}")

    def _recover(self, path: pathlib.Path, error: Exception, writes: bool) -> None:
        """Begin the file anew if it is damaged; else leave it alone for a while."""
        with contextlib.suppress(sqlite3.Error):
            self.close()
        self._db = None
        extended = getattr(error, "sqlite_errorcode", None)
        if extended == sqlite3.SQLITE_READONLY_DBMOVED:
            return  # Another process has set it aside.
        code = None if extended is None else extended & 0xFF
        if isinstance(error, sqlite3.Error) and (code not in _UNUSABLE or _lies(path, code)):
            try:
                self._set_aside(path, error)
            except OSError as refusal:
                error = refusal
            else:
                return
        self.problem = str(error)
        self._write_s = time.monotonic() + _PAUSE_S
        if not writes or code == sqlite3.SQLITE_BUSY:
            self._read_s = self._write_s
        complain(path, error)

    def _set_aside(self, path: pathlib.Path, error: Exception) -> None:
        if not path.exists() or path.stat().st_ino != self._inode:
            return  # Another process has done so.
        # Whoever opens the new file must not find the old one's journal.
        for side in _SIDE_FILES:
            path.with_name(path.name + side).unlink(missing_ok=True)
        aside = path.with_name(path.name + DAMAGED)
        path.replace(aside)
        _log.warning("cache: %s is damaged (%s); it is now %s, begun anew", path, error, aside)

    def _make_room(self, db: sqlite3.Connection) -> None:
        if self._bound_bytes is None or _used_bytes(db) <= self._bound_bytes:
            return
        while (used_bytes := _used_bytes(db)) > (1 - _ROOM) * self._bound_bytes:
            self._forget_fn(db)
            if _used_bytes(db) >= used_bytes:
                return


def _lies(path: pathlib.Path, code: int | None) -> bool:
    """Return whether damage makes SQLite say that a file cannot be written."""
    can_write = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return code == sqlite3.SQLITE_READONLY and can_write


def rows_in(path: pathlib.Path, tables: Sequence[str]) -> int:
    """Return the number of rows of some tables; 0 where they cannot be read."""
    total = 0
    if is_file(path):
        with contextlib.suppress(sqlite3.Error), _connected(path) as db:
            for table in tables:
                (count,) = db.execute(f"SELECT COUNT(*) FROM {table}").fetchone()
                total += count
    return total


def clear(path: pathlib.Path) -> bool:
    """Remove all rows, while others may use the file; return False if one keeps it locked.

    The file stays, because others may have it open. What is damaged is removed.
    """
    if not is_file(path):
        return True
    try:
        with _connected(path) as db:
            with _transaction(db):
                named = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
                for (table,) in named:
                    db.execute(f'DELETE FROM "{table}"')
            with contextlib.suppress(sqlite3.OperationalError):  # Others may be reading.
                db.execute("VACUUM")
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF in _UNUSABLE:
            return False
        for side in (*_SIDE_FILES, ""):
            path.with_name(path.name + side).unlink(missing_ok=True)
    return True


@contextlib.contextmanager
def _connected(path: pathlib.Path) -> Iterator[sqlite3.Connection]:
    with contextlib.closing(sqlite3.connect(path, timeout=_WAIT_S, isolation_level=None)) as db:
        yield db


@contextlib.contextmanager
def _transaction(db: sqlite3.Connection) -> Iterator[None]:
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(sqlite3.Error):
            db.execute("ROLLBACK")
        raise


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])


def _used_bytes(db: sqlite3.Connection) -> int:
    pages = _number(db, "page_count") - _number(db, "freelist_count")
    return pages * _number(db, "page_size")
