"""A store of compiles, so that no module is compiled twice with the same decisions.

The module's bytes, the compiler and the decisions determine a compile. `TrajectoryStore` keeps each
compile under that key, in a cache that several processes may share. Because compiles are
deterministic, the kept compiles of other policies often tell the result of a policy that was never
run: `recall` walks the kept compiles as a tree of decisions.
"""

from __future__ import annotations

import dataclasses
import io
import json
import pathlib
import struct
import zlib
from collections.abc import Mapping

import numpy as np

from environments.caches.cache import Cache
from environments.caches.table import COMPILES
from environments.inlining.compilers.compilation import CompiledModule
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.heuristics import Decider

# The first byte of a part: a compile, followed by its decisions, or a record and its name.
_COMPILE, _RECORD = b"c", b"r"
# What begins a compile: text and executable bytes, and the lengths of names and features in bytes.
_HEAD = struct.Struct("<4q")


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
        return cls(module, names, compiled.features, compiled.decisions, compiled.size)

    def column(self, name: str) -> np.ndarray:
        """Return the values of one feature at all call sites, int64 [T]."""
        return self.features[:, self.names.index(name)]


class TrajectoryStore:
    """Compiles in a cache, found by the content of their modules; see `caches.cache`.

    Args:
      path: the file; made with its directory if it does not exist. None keeps everything in memory.
      bound_bytes: the space that the file may take, approximately.
    """

    def __init__(
        self, path: pathlib.Path | None = None, bound_bytes: int = COMPILES.bound_bytes
    ) -> None:
        self._cache = Cache(path, bound_bytes, COMPILES.version)
        self._cache.open()

    @property
    def problem(self) -> str:
        """Why nothing can be kept now; "" if it can."""
        return self._cache.problem

    def put(self, key: str, compiler: str, trajectory: Trajectory) -> None:
        """Keep a compile with its features.

        Args:
          key: content hash of the module.
          compiler: identity of the compiler.
          trajectory: the compile.
        """
        part = _COMPILE + trajectory.decisions.astype(np.int8).tobytes()
        self._cache.put(_key(key, compiler), _pack(trajectory), part)

    def get(
        self, key: str, compiler: str, module_name: str, decisions: np.ndarray
    ) -> Trajectory | None:
        """Return the compile with exactly these decisions; None if it was not kept."""
        part = _COMPILE + decisions.astype(np.int8).tobytes()
        content = self._cache.get(_key(key, compiler), part)
        return None if content is None else _unpack(module_name, part, content)

    def put_record(
        self, key: str, compiler: str, request: str, arrays: Mapping[str, np.ndarray]
    ) -> None:
        """Keep the results of several compiles of a module, under the name `request`."""
        packed = io.BytesIO()
        np.savez_compressed(packed, **arrays)
        self._cache.put(_key(key, compiler), packed.getvalue(), _RECORD + request.encode())

    def get_record(self, key: str, compiler: str, request: str) -> dict[str, np.ndarray] | None:
        """Return the arrays that `put_record` kept under a name; None if there are none."""
        content = self._cache.get(_key(key, compiler), _RECORD + request.encode())
        if content is None:
            return None
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
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
        trajectories = [
            _unpack(module_name, part, content)
            for part, content in self._cache.parts(_key(key, compiler)).items()
            if part.startswith(_COMPILE)
        ]
        current, step = trajectories[0] if trajectories else None, 0
        while current is not None:
            rest = current.features[step:]
            wanted = decide(rest, step) if len(rest) else np.empty(0, np.int8)
            differs = np.flatnonzero(wanted != current.decisions[step:])
            if not len(differs):
                return current
            # Up to this decision, all compiles with these decisions have the same features.
            step += int(differs[0])
            prefix = np.append(current.decisions[:step], wanted[differs[0]]).astype(np.int8)
            step += 1
            current = next(
                (
                    trajectory
                    for trajectory in trajectories
                    if np.array_equal(trajectory.decisions[:step], prefix)
                ),
                None,
            )
        return None

    def close(self) -> None:
        """Close the file."""
        self._cache.close()


def _key(module: str, compiler: str) -> str:
    return json.dumps([module, compiler])


def _pack(trajectory: Trajectory) -> bytes:
    names = json.dumps(trajectory.names).encode()
    # By columns: neighbouring values of one feature are alike, which compresses better.
    features = trajectory.features.astype("<i4").T.tobytes()
    size = trajectory.size
    head = _HEAD.pack(size.text_bytes, size.exec_bytes, len(names), len(features))
    return zlib.compress(head + names + features + size.packed_groups, 1)


def _unpack(module_name: str, part: bytes, content: bytes) -> Trajectory:
    data = zlib.decompress(content)
    text_bytes, exec_bytes, num_names, num_features = _HEAD.unpack_from(data)
    begin = _HEAD.size + num_names
    names = tuple(json.loads(data[_HEAD.size : begin]))
    columns = np.frombuffer(data[begin : begin + num_features], "<i4").reshape(len(names), -1)
    return Trajectory(
        module_name,
        names,
        np.ascontiguousarray(columns.T, np.int64),
        np.frombuffer(part[len(_COMPILE) :], np.int8),
        ObjectSize(text_bytes, exec_bytes, data[begin + num_features :]),
    )
