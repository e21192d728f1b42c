"""A store of compiles, so that no module is compiled twice with the same decisions.

The module's bytes, the compiler and the decisions determine a compile. `TrajectoryStore` keeps each
compile under that key, in one SQLite file that several processes may share. Because compiles are
deterministic, the kept compiles of other policies often tell the result of a policy that was never
run: `recall` walks the kept compiles as a tree of decisions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import pathlib
import sqlite3
import threading
import zlib
from collections.abc import Iterator, Mapping

import numpy as np

from environments.errors import UserError
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.heuristics import Decider

# Raised whenever what is kept means something else: an older file is emptied.
_VERSION = 1
# Name -> what follows "CREATE TABLE NAME (".
_TABLES = {
    "compiles": """
  module TEXT NOT NULL, compiler TEXT NOT NULL, decisions BLOB NOT NULL,
  text_bytes INTEGER NOT NULL, exec_bytes INTEGER NOT NULL, features BLOB NOT NULL,
  groups BLOB NOT NULL,
  PRIMARY KEY (module, compiler, decisions)) WITHOUT ROWID""",
    "records": """
  module TEXT NOT NULL, compiler TEXT NOT NULL, request TEXT NOT NULL, arrays BLOB NOT NULL,
  PRIMARY KEY (module, compiler, request)) WITHOUT ROWID""",
    "feature_names": "compiler TEXT PRIMARY KEY, names TEXT NOT NULL)",
}


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """One compile of one module under a policy.

    Attributes:
      module: name of the module.
      names: names of the features, F of them.
      features: int64 [T, F], one row for each call site, as seen before its decision.
      decisions: int8 [T], 1 where the call site was inlined.
      size: sizes of the object.
    """

    module: str
    names: tuple[str, ...]
    features: np.ndarray
    decisions: np.ndarray
    size: ObjectSize

    def column(self, name: str) -> np.ndarray:
        """Return the values of one feature at all call sites, int64 [T]."""
        return self.features[:, self.names.index(name)]


class TrajectoryStore:
    """Compiles in an SQLite file, found by the content of their modules.

    Args:
      path: the file; made with its directory if it does not exist. None keeps everything in memory.

    Raises:
      UserError: the file cannot be opened or written.
    """

    def __init__(self, path: pathlib.Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        with self._writing():
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path or ":memory:", check_same_thread=False, timeout=60)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._begin()

    def _begin(self) -> None:
        """Make the tables, in place of those of an older version.

        It is one transaction, because several processes may begin at once.
        """
        with self._db:
            self._db.execute("BEGIN IMMEDIATE")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version != _VERSION:
                for name in _TABLES:
                    self._db.execute(f"DROP TABLE IF EXISTS {name}")
                self._db.execute(f"PRAGMA user_version={_VERSION}")
            for name, columns in _TABLES.items():
                self._db.execute(f"CREATE TABLE IF NOT EXISTS {name} ({columns}")

    def put(self, key: str, compiler: str, trajectory: Trajectory) -> None:
        """Keep a compile with its features.

        Args:
          key: content hash of the module.
          compiler: identity of the compiler.
          trajectory: the compile.
        """
        packed = zlib.compress(trajectory.features.astype("<i4").T.tobytes(), 1)
        with self._lock, self._writing(), self._db:
            self._db.execute(
                "INSERT OR IGNORE INTO feature_names VALUES (?, ?)",
                (compiler, json.dumps(trajectory.names)),
            )
            self._db.execute(
                "INSERT OR IGNORE INTO compiles VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    key,
                    compiler,
                    trajectory.decisions.astype(np.int8).tobytes(),
                    trajectory.size.text_bytes,
                    trajectory.size.exec_bytes,
                    packed,
                    zlib.compress(trajectory.size.packed_groups, 1),
                ),
            )

    def get(
        self, key: str, compiler: str, module_name: str, decisions: np.ndarray
    ) -> Trajectory | None:
        """Return the compile with exactly these decisions; None if it was not kept."""
        kept = self._trajectories(key, compiler, module_name, decisions)
        return kept[0] if kept else None

    def put_record(
        self, key: str, compiler: str, request: str, arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Keep the results of several compiles of a module, under the name `request`."""
        packed = io.BytesIO()
        np.savez_compressed(packed, **arrays)
        with self._lock, self._writing(), self._db:
            self._db.execute(
                "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?)",
                (key, compiler, request, packed.getvalue()),
            )

    def get_record(self, key: str, compiler: str, request: str) -> dict[str, np.ndarray] | None:
        """Return the arrays that `put_record` kept under a name; None if there are none."""
        rows = self._select(
            "SELECT arrays FROM records WHERE module = ? AND compiler = ? AND request = ?",
            (key, compiler, request),
        )
        if not rows:
            return None
        with np.load(io.BytesIO(rows[0][0]), allow_pickle=False) as arrays:
            return dict(arrays)

    def recall(
        self, key: str, compiler: str, module_name: str, decide: Decider
    ) -> Trajectory | None:
        """Return the compile that a decider would lead to, without compiling.

        Args:
          key: content hash of the module.
          compiler: identity of the compiler.
          module_name: name of the module, for the returned trajectory.
          decide: the decider. It gets the features of a kept compile, from the first call site on
            where its own decision is not known yet.

        Returns:
          The kept compile whose decisions are all those of the decider; None if there is none.
        """
        kept = self._trajectories(key, compiler, module_name)
        current, step = kept[0] if kept else None, 0
        while current is not None:
            rest = current.features[step:]
            wanted = decide(rest, step) if len(rest) else np.empty(0, np.int8)
            differs = np.flatnonzero(wanted != current.decisions[step:])
            if not len(differs):
                return current
            step += int(differs[0])
            prefix = np.append(current.decisions[:step], wanted[differs[0]]).astype(np.int8)
            step += 1
            current = next(
                (one for one in kept if np.array_equal(one.decisions[:step], prefix)), None
            )
        return None

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _trajectories(
        self, key: str, compiler: str, module_name: str, taken: np.ndarray | None = None
    ) -> list[Trajectory]:
        found = self._select("SELECT names FROM feature_names WHERE compiler = ?", (compiler,))
        if not found:
            return []
        names = tuple(json.loads(found[0][0]))
        query = (
            "SELECT decisions, text_bytes, exec_bytes, features, groups FROM compiles "
            "WHERE module = ? AND compiler = ?"
        )
        if taken is None:
            rows = self._select(query, (key, compiler))
        else:
            wanted = taken.astype(np.int8).tobytes()
            rows = self._select(query + " AND decisions = ?", (key, compiler, wanted))
        trajectories = []
        for decisions, text_bytes, exec_bytes, packed, groups in rows:
            matrix = np.frombuffer(zlib.decompress(packed), "<i4").reshape(len(names), -1)
            features = np.ascontiguousarray(matrix.T, np.int64)
            size = ObjectSize(text_bytes, exec_bytes, zlib.decompress(groups))
            played = np.frombuffer(decisions, np.int8)
            trajectories.append(Trajectory(module_name, names, features, played, size))
        return trajectories

    def _select(self, query: str, values: tuple) -> list[tuple]:
        with self._lock, self._writing():
            return self._db.execute(query, values).fetchall()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise UserError(
                f"cache: expected to read and write {self._path}, found: {error}; free some space "
                "or name another place with --cache (what was kept stays)"
            ) from error
