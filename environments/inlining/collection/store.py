"""A store of compiles, so that no module is compiled twice with the same decisions.

The module's bytes, the compiler and the decisions determine a compile. `TrajectoryStore` keeps each
compile under that key, in one SQLite file that several processes may share. Because compiles are
deterministic, the kept compiles of other policies often tell the result of a policy that was never
run: `recall` walks the kept compiles as a tree of decisions.
"""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
import sqlite3
import time
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from environments.caches.database import Database
from environments.caches.digests import digest
from environments.caches.table import COMPILES
from environments.inlining.compilers.compilation import CompiledModule
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.heuristics import Decider

# Name -> what follows "CREATE TABLE NAME (". The last column of each row is a digest of the others.
_TABLES = {
    "compiles": """
  module TEXT NOT NULL, compiler TEXT NOT NULL, decisions BLOB NOT NULL,
  text_bytes INTEGER NOT NULL, exec_bytes INTEGER NOT NULL, features BLOB NOT NULL,
  groups BLOB NOT NULL, digest BLOB NOT NULL,
  PRIMARY KEY (module, compiler, decisions)) WITHOUT ROWID""",
    "records": """
  module TEXT NOT NULL, compiler TEXT NOT NULL, request TEXT NOT NULL, arrays BLOB NOT NULL,
  digest BLOB NOT NULL,
  PRIMARY KEY (module, compiler, request)) WITHOUT ROWID""",
    "feature_names": "compiler TEXT PRIMARY KEY, names TEXT NOT NULL, digest BLOB NOT NULL)",
}
# When a module's rows were used last, in hours since 1970. A module is forgotten as a whole.
_USED = """
  module TEXT NOT NULL, compiler TEXT NOT NULL, used_h INTEGER NOT NULL,
  PRIMARY KEY (module, compiler)) WITHOUT ROWID"""
_PRECISION_H = 24


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

    @classmethod
    def of(cls, module: str, names: tuple[str, ...], compiled: CompiledModule) -> Trajectory:
        """Return what is kept of a compile under a policy that saw the features `names`."""
        assert compiled.features is not None
        return cls(module, names, compiled.features, compiled.decisions, compiled.size)

    def column(self, name: str) -> np.ndarray:
        """Return the values of one feature at all call sites, int64 [T]."""
        return self.features[:, self.names.index(name)]


class TrajectoryStore:
    """Compiles in an SQLite file, found by the content of their modules.

    What is recalled is what was put, or nothing: also if the file is damaged, or cannot be read and
    written. That is told once, and compiles are then made again.

    Args:
      path: the file; made with its directory if it does not exist. None keeps everything in memory.
      bound_bytes: the space that the file may take, approximately.
    """

    def __init__(
        self, path: pathlib.Path | None = None, bound_bytes: int = COMPILES.bound_bytes
    ) -> None:
        self._database = Database(
            path,
            {**_TABLES, "used": _USED},
            COMPILES.version,
            None if path is None else bound_bytes,
            _forget,
        )

    @property
    def problem(self) -> str:
        """Why nothing can be kept now; "" if it can."""
        return self._database.problem

    def put(self, key: str, compiler: str, trajectory: Trajectory) -> None:
        """Keep a compile with its features.

        Args:
          key: content hash of the module.
          compiler: identity of the compiler.
          trajectory: the compile.
        """
        compile_ = (
            key,
            compiler,
            trajectory.decisions.astype(np.int8).tobytes(),
            trajectory.size.text_bytes,
            trajectory.size.exec_bytes,
            zlib.compress(trajectory.features.astype("<i4").T.tobytes(), 1),
            zlib.compress(trajectory.size.packed_groups, 1),
        )
        names = (compiler, json.dumps(trajectory.names))

        def write(db: sqlite3.Connection) -> None:
            _insert(db, "feature_names", names)
            _insert(db, "compiles", compile_)
            _use(db, key, compiler)

        self._database.write(write)

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

        def write(db: sqlite3.Connection) -> None:
            _insert(db, "records", (key, compiler, request, packed.getvalue()))
            _use(db, key, compiler)

        self._database.write(write)

    def get_record(self, key: str, compiler: str, request: str) -> dict[str, np.ndarray] | None:
        """Return the arrays that `put_record` kept under a name; None if there are none."""
        rows = self._rows("records", {"module": key, "compiler": compiler, "request": request})
        if not rows:
            return None
        self._note_use(key, compiler)
        with np.load(io.BytesIO(rows[0][3]), allow_pickle=False) as arrays:
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
        self._database.close()

    def _trajectories(
        self, key: str, compiler: str, module_name: str, taken: np.ndarray | None = None
    ) -> list[Trajectory]:
        found = self._rows("feature_names", {"compiler": compiler})
        if not found:
            return []
        names = tuple(json.loads(found[0][1]))
        wanted: dict[str, Any] = {"module": key, "compiler": compiler}
        if taken is not None:
            wanted["decisions"] = taken.astype(np.int8).tobytes()
        trajectories = []
        for _, _, decisions, text_bytes, exec_bytes, packed, groups in self._rows(
            "compiles", wanted
        ):
            matrix = np.frombuffer(zlib.decompress(packed), "<i4").reshape(len(names), -1)
            features = np.ascontiguousarray(matrix.T, np.int64)
            size = ObjectSize(text_bytes, exec_bytes, zlib.decompress(groups))
            played = np.frombuffer(decisions, np.int8)
            trajectories.append(Trajectory(module_name, names, features, played, size))
        if trajectories:
            self._note_use(key, compiler)
        return trajectories

    def _rows(self, table: str, wanted: Mapping[str, Any]) -> list[tuple]:
        """Return the rows with some values, without their digests; delete what is damaged."""
        where = " AND ".join(f"{column} = ?" for column in wanted)
        values = tuple(wanted.values())
        found: list[tuple] = self._database.read(
            lambda db: db.execute(f"SELECT * FROM {table} WHERE {where}", values).fetchall(), []
        )
        # What was asked for counts, not what the row says of it.
        right = [
            row
            for row in found
            if row[: len(values)] == values and row[-1] == digest(table, *row[:-1])
        ]
        if len(right) < len(found):
            self._database.write(
                lambda db: db.executemany(
                    f"DELETE FROM {table} WHERE {where} AND digest IS ?",
                    [(*values, row[-1]) for row in found if row not in right],
                )
            )
        return [row[:-1] for row in right]

    def _note_use(self, key: str, compiler: str) -> None:
        """Note that a module's rows were used, if that was long ago, because it is a write."""
        found: list[tuple] = self._database.read(
            lambda db: db.execute(
                "SELECT 1 FROM used WHERE module = ? AND compiler = ? AND used_h BETWEEN ? AND ?",
                (key, compiler, _now_h() - _PRECISION_H, _now_h()),
            ).fetchall(),
            [],
        )
        if not found:
            self._database.write(lambda db: _use(db, key, compiler))


def _insert(db: sqlite3.Connection, table: str, row: Sequence[Any]) -> None:
    marks = ", ".join("?" * (len(row) + 1))
    db.execute(f"INSERT OR REPLACE INTO {table} VALUES ({marks})", (*row, digest(table, *row)))


def _use(db: sqlite3.Connection, key: str, compiler: str) -> None:
    db.execute("INSERT OR REPLACE INTO used VALUES (?, ?, ?)", (key, compiler, _now_h()))


def _now_h() -> int:
    return int(time.time()) // 3600


def _forget(db: sqlite3.Connection) -> None:
    """Delete what is kept of the modules that were not used for the longest time, one in 100."""
    some = "LIMIT (SELECT 1 + COUNT(*) / 100 FROM used)"
    oldest = db.execute(f"SELECT module, compiler FROM used ORDER BY used_h {some}").fetchall()
    for table in ("compiles", "records", "used"):
        if oldest:
            db.executemany(f"DELETE FROM {table} WHERE module = ? AND compiler = ?", oldest)
        else:
            # Without their uses, which damage may take away, no rows would ever be forgotten.
            db.execute(f"DELETE FROM {table}")
