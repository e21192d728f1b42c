"""A cache: contents by key in an SQLite file, which several processes and machines may share.

The file has a rollback journal, which works on a file system that several machines share as far as
locks do; a write-ahead log never does. A file that is damaged is set aside and begun anew. SQLite
does not notice all damage, so each entry is kept with a digest.
"""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import pathlib
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from environments.files import is_file

DAMAGED = ".damaged"
"""Suffix of a file that was set aside because it is damaged."""

_TABLES = (
    "entries (key TEXT NOT NULL, part BLOB NOT NULL, content BLOB NOT NULL, digest BLOB NOT NULL,"
    " PRIMARY KEY (key, part)) WITHOUT ROWID",
    # When the entries of a key were used last, in hours since 1970.
    "used (key TEXT PRIMARY KEY NOT NULL, used_h INTEGER NOT NULL) WITHOUT ROWID",
)
_WAIT_S = 5.0
_PAUSE_S = 60.0
# How much of the bound is made free at once.
_ROOM = 0.02
# When a key was used is noted to this precision only, because noting it is a write.
_PRECISION_H = 24
# With these SQLite says that the file cannot be used now. Any other error means damage.
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
_complained: set[pathlib.Path] = set()


class Cache:
    """Contents by key and part, in a file or in memory. Several threads may use one object.

    The parts of a key are forgotten together, those of the key that was not used for longest first.
    What is returned is what was put, or nothing. If the file cannot be used, that is said once, and
    nothing is kept. A copy that is sent to another process opens the same file.

    Args:
      path: the file; made with its directory when it is needed. None keeps everything in memory.
      bound_bytes: the space that the file may take, approximately.
      version: raised whenever contents mean something else. A file of another version is emptied.

    Attributes:
      problem: why the file could not be used when it was last tried; "" if it could.
    """

    def __init__(self, path: pathlib.Path | None, bound_bytes: int, version: int) -> None:
        self.problem = ""
        self._path = path
        self._bound_bytes = bound_bytes
        self._version = version
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._inode = 0
        # When the file is read and written again, by the monotonic clock.
        self._read_s = self._write_s = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        """Leave the connection at home."""
        return Cache, (self._path, self._bound_bytes, self._version)

    def __del__(self) -> None:
        self.close()

    def open(self) -> None:
        """Open the file now, so that `problem` tells whether it can be used."""
        self._do(lambda db: None, None, False)

    def get(self, key: str, part: bytes = b"") -> bytes | None:
        """Return what is kept under a key and part; None if there is nothing."""
        return self._read(key, "key = ? AND part = ?", key, part).get(part)

    def parts(self, key: str) -> dict[bytes, bytes]:
        """Return all that is kept under a key, by part, in the order of the parts."""
        return self._read(key, "key = ?", key)

    def put(self, key: str, content: bytes, part: bytes = b"") -> None:
        """Keep a content, in place of what is there."""
        self._write(lambda db: _insert(db, key, part, content), None)

    def put_first(self, key: str, content: bytes) -> bytes:
        """Keep a content unless there is one; return the one that counts.

        Another process may have been first.
        """

        def act(db: sqlite3.Connection) -> bytes:
            rows = db.execute("SELECT * FROM entries WHERE key = ? AND part = ?", (key, b""))
            for row in rows.fetchall():
                if _is_right(row, key):
                    return row[2]
            _insert(db, key, b"", content)
            return content

        return self._write(act, content)

    def close(self) -> None:
        """Close the file; it is opened again when it is needed."""
        if self._db is not None:
            self._db.close()
            self._db = None

    def _read(self, key: str, where: str, *values: Any) -> dict[bytes, bytes]:
        """Return the contents of some rows of a key, by part; delete those that are damaged."""
        select = f"SELECT *, (SELECT used_h FROM used WHERE key = ?) FROM entries WHERE {where}"
        rows: list[tuple] = self._do(
            lambda db: db.execute(select, (key, *values)).fetchall(), [], False
        )
        right = [row for row in rows if _is_right(row[:-1], key)]
        damaged = [(*values, row[-2]) for row in rows if row not in right]
        if damaged:
            delete = f"DELETE FROM entries WHERE {where} AND digest IS ?"
            self._write(lambda db: db.executemany(delete, damaged), None)
        if right and not _is_recent(right[0][-1]):
            self._write(lambda db: _use(db, key), None)
        return {part: content for _, part, content, _, _ in right}

    def _write(self, act_fn: Callable[[sqlite3.Connection], Result], otherwise: Result) -> Result:
        """Let a function write, all or nothing; return `otherwise` if the file cannot be used."""

        def act(db: sqlite3.Connection) -> Result:
            with _transaction(db):
                result = act_fn(db)
                if self._path is not None:
                    _make_room(db, self._bound_bytes)
                return result

        return self._do(act, otherwise, True)

    def _do(
        self, act_fn: Callable[[sqlite3.Connection], Result], otherwise: Result, writes: bool
    ) -> Result:
        with self._lock:
            for _ in range(2):  # The second time with a file that was begun anew.
                # Whoever waits for a lock that nobody gives up must not wait again at each entry.
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
            for name in _table_names(db):
                db.execute(f'DROP TABLE "{name}"')
            for table in _TABLES:
                db.execute(f"CREATE TABLE {table}")
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
        if path not in _complained:
            _complained.add(path)
            _log.warning(
                "cache: expected to read and write %s, found: %s; going on without it", path, error
            )

    def _set_aside(self, path: pathlib.Path, error: Exception) -> None:
        if not path.exists() or path.stat().st_ino != self._inode:
            return  # Another process has done so.
        # Whoever opens the new file must not find the old one's journal.
        for side in _SIDE_FILES:
            path.with_name(path.name + side).unlink(missing_ok=True)
        aside = path.with_name(path.name + DAMAGED)
        path.replace(aside)
        _log.warning("cache: %s is damaged (%s); it is now %s, begun anew", path, error, aside)


def count_entries(path: pathlib.Path) -> int:
    """Return the number of entries in a cache's file; 0 where they cannot be read."""
    if is_file(path):
        with contextlib.suppress(sqlite3.Error), _connected(path) as db:
            return db.execute("SELECT COUNT(*) FROM entries").fetchone()[0]
    return 0


def clear(path: pathlib.Path) -> bool:
    """Remove all entries, while others may use the file; return False if one keeps it locked.

    The file stays, because others may have it open. What is damaged is removed.
    """
    if not is_file(path):
        return True
    try:
        with _connected(path) as db:
            with _transaction(db):
                for name in _table_names(db):
                    db.execute(f'DELETE FROM "{name}"')
            with contextlib.suppress(sqlite3.OperationalError):  # Others may be reading.
                db.execute("VACUUM")
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", None)
        if code is not None and code & 0xFF in _UNUSABLE:
            return False
        for side in (*_SIDE_FILES, ""):
            path.with_name(path.name + side).unlink(missing_ok=True)
    return True


def _lies(path: pathlib.Path, code: int | None) -> bool:
    """Return whether damage makes SQLite say that a file cannot be written."""
    can_write = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    return code == sqlite3.SQLITE_READONLY and can_write


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


def _insert(db: sqlite3.Connection, key: str, part: bytes, content: bytes) -> None:
    row = (key, part, content, _digest(key, part, content))
    db.execute("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", row)
    _use(db, key)


def _use(db: sqlite3.Connection, key: str) -> None:
    db.execute("INSERT OR REPLACE INTO used VALUES (?, ?)", (key, _now_h()))


def _is_recent(used_h: Any) -> bool:
    """Return whether an hour, if damage has left one, need not be noted again."""
    now_h = _now_h()
    return isinstance(used_h, int) and now_h - _PRECISION_H <= used_h <= now_h


def _is_right(row: tuple, key: str) -> bool:
    """Return whether a row is whole, and of the key that was asked for, whatever it says itself."""
    return row[0] == key and row[-1] == _digest(*row[:-1])


def _digest(*values: Any) -> bytes:
    """Return a hash of the values of a row; damage may have changed their types, too."""
    total = hashlib.sha256()
    for value in values:
        data = value if isinstance(value, bytes) else repr(value).encode()
        total.update(f"{type(value).__name__} {len(data)} ".encode())
        total.update(data)
    return total.digest()


def _make_room(db: sqlite3.Connection, bound_bytes: int) -> None:
    if _used_bytes(db) <= bound_bytes:
        return
    while (used_bytes := _used_bytes(db)) > (1 - _ROOM) * bound_bytes:
        # One key in 100.
        some = "LIMIT (SELECT 1 + COUNT(*) / 100 FROM used)"
        oldest = db.execute(f"SELECT key FROM used ORDER BY used_h {some}").fetchall()
        for table in ("entries", "used"):
            if oldest:
                db.executemany(f"DELETE FROM {table} WHERE key = ?", oldest)
            else:
                # Without their uses, which damage may take away, no rows would ever be forgotten.
                db.execute(f"DELETE FROM {table}")
        if _used_bytes(db) >= used_bytes:
            return


def _table_names(db: sqlite3.Connection) -> list[str]:
    rows = db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    return [name for (name,) in rows]


def _number(db: sqlite3.Connection, pragma: str) -> int:
    return int(db.execute(f"PRAGMA {pragma}").fetchone()[0])


def _used_bytes(db: sqlite3.Connection) -> int:
    pages = _number(db, "page_count") - _number(db, "freelist_count")
    return pages * _number(db, "page_size")


def _now_h() -> int:
    return int(time.time()) // 3600
