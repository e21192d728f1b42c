"""A store of compiles, so that no module is compiled twice with the same decisions.

The module's bytes, the compiler and the decisions determine a compile. A `TrajectoryStore` keeps
each under that key, in a cache that processes may share. Because compiles are deterministic,
the kept compiles of other policies often tell the result of a policy that was never run:
`ModuleStore.recall` walks them as a tree of decisions.
"""

from __future__ import annotations

import dataclasses
import hashlib
import io
import json
import pathlib
import struct
import zlib
from collections.abc import Mapping

import numpy as np

from environments.caches.cache import Cache
from environments.caches.table import COMPILES
from environments.inlining.compilers.compilation import CompiledModule, CompilerError
from environments.inlining.compilers.compiler import Compiler
from environments.inlining.compilers.object_size import ObjectSize
from environments.inlining.corpus.modules import Module
from environments.inlining.features import DERIVATION, feature_names
from environments.inlining.heuristics import Policy

# The first byte of a part: a compile, followed by its decisions, or a record and its name.
_COMPILE, _RECORD = b"c", b"r"
# What begins a compile: text and executable bytes, and the lengths of names and features in bytes.
_HEAD = struct.Struct("<4q")


@dataclasses.dataclass(frozen=True)
class Trajectory:
    """One compile of one module under a policy.

    Attributes:
      module: its name.
      names: names of the F features.
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
    def of(cls, module: Module, compiler: Compiler, compiled: CompiledModule) -> Trajectory:
        """Return what is kept of a compile under a policy."""
        names = feature_names(compiler.announced)
        return cls(module.name, names, compiled.features, compiled.decisions, compiled.size)

    def column(self, name: str) -> np.ndarray:
        """Return the values of one feature at all call sites, int64 [T]."""
        return self.features[:, self.names.index(name)]


class TrajectoryStore(Cache):
    """Compiles in a cache, found by the content of their modules.

    Args:
      path: the file; made with its directory if it does not exist. None keeps everything in memory.
    """

    def __init__(self, path: pathlib.Path | None = None) -> None:
        super().__init__(path, COMPILES.bound_bytes, COMPILES.version)
        self.open()


@dataclasses.dataclass(frozen=True)
class ModuleStore:
    """The part of a store that holds one module's compiles by one compiler.

    Attributes:
      names: names of the features, in order.
      key: tells all that decides the object, besides decisions, and the features.
    """

    store: TrajectoryStore
    module_name: str
    project: str
    names: tuple[str, ...]
    key: str

    @classmethod
    def of(cls, store: TrajectoryStore, compiler: Compiler, module: Module) -> ModuleStore:
        """Return the part for a module and a compiler.

        Raises:
          CompilerError: the module cannot be read.
        """
        names = feature_names(compiler.announced)
        derived = hashlib.sha256(f"{DERIVATION} {','.join(names)}".encode()).hexdigest()
        key = json.dumps([_content_key(module), f"{compiler.identity} {derived[:16]}"])
        return cls(store, module.name, module.project, names, key)

    def put(self, trajectory: Trajectory) -> None:
        """Keep a compile with its features."""
        self.store.put(self.key, _pack(trajectory), _part(trajectory.decisions))

    def get(self, decisions: np.ndarray) -> Trajectory | None:
        """Return the compile with exactly these decisions; None if it was not kept."""
        part = _part(decisions)
        content = self.store.get(self.key, part)
        return None if content is None else _unpack(self.module_name, part, content)

    def put_record(self, request: str, arrays: Mapping[str, np.ndarray]) -> None:
        """Keep the results of several compiles under a name of their own."""
        packed = io.BytesIO()
        np.savez_compressed(packed, **arrays)
        self.store.put(self.key, packed.getvalue(), _RECORD + request.encode())

    def get_record(self, request: str) -> dict[str, np.ndarray] | None:
        """Return the arrays that `put_record` kept under a name; None if there are none."""
        content = self.store.get(self.key, _RECORD + request.encode())
        if content is None:
            return None
        with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
            return dict(arrays)

    def recall(self, policy: Policy) -> Trajectory | None:
        """Return the compile that a policy would lead to, without compiling; None if not kept."""
        decide = policy.begin(self.module_name, self.names)
        trajectories = [
            _unpack(self.module_name, part, content)
            for part, content in self.store.parts(self.key).items()
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
            matching = (
                trajectory
                for trajectory in trajectories
                if np.array_equal(trajectory.decisions[:step], prefix)
            )
            current = next(matching, None)
        return None


def _content_key(module: Module) -> str:
    try:
        parts = [module.sha256, *module.command]
        if module.thinlto_index is not None:
            parts.append(hashlib.sha256(module.thinlto_index.read_bytes()).hexdigest())
            parts.append("merged")  # Unlike those that an older version kept.
    except OSError as error:
        raise CompilerError(
            f"{module.name}: expected to read the module, found: {error}; build the corpus again"
        ) from error
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _part(decisions: np.ndarray) -> bytes:
    return _COMPILE + decisions.astype(np.int8).tobytes()


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
