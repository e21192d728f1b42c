"""Policies that are none: damaged, forged, or of something else."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import pathlib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tools.benchmarks.bad_inputs import damage, texts
from tools.benchmarks.bad_inputs.case import FAILURE, PERHAPS, Case, MakeFn, at

JSON_NAME, ARRAYS_NAME = "policy.json", "numpy_policy.npz"
_FINE_VALUES = ("policy.json: format_version is true",)
"""What happens to be right: JSON's true is Python's 1."""


@dataclasses.dataclass(frozen=True)
class Right:
    """A right policy, and how it can be made a wrong one.

    Attributes:
      description: policy.json without the digest of the arrays.
      arrays: the arrays by name.
      fields: the fields of policy.json whose values are made wrong.
      fine: which of all that is wrong may be right all the same, or make another right policy.
      described: what is wrong -> fields that make it so.
      forged: what is wrong -> arrays that make it so; the digest fits them.
    """

    description: Mapping[str, Any]
    arrays: Mapping[str, np.ndarray]
    fields: Sequence[str]
    fine: Sequence[str] = _FINE_VALUES
    described: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    forged: Mapping[str, Mapping[str, np.ndarray]] = dataclasses.field(default_factory=dict)

    def write(
        self,
        directory: pathlib.Path,
        changed: Mapping[str, Any] | None = None,
        content: bytes | None = None,
    ) -> None:
        """Write the policy, with other fields or other bytes for its arrays."""
        content = packed(self.arrays) if content is None else content
        directory.mkdir()
        (directory / ARRAYS_NAME).write_bytes(content)
        (directory / JSON_NAME).write_bytes(texts.encoded(self.filled(content, changed)))

    def filled(self, content: bytes, changed: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Return policy.json for the bytes of the arrays."""
        digest = hashlib.sha256(content).hexdigest()
        return {**self.description, "arrays_sha256": digest, **(changed or {})}


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the bytes of an .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def policies(
    argument: str,
    words_fn: Callable[[str], Sequence[str]],
    seed: int,
    right: Right | None = None,
    **others: Any,
) -> list[Case]:
    """Make the cases of an argument that is a policy's directory.

    Args:
      argument: its name.
      words_fn: (directory) -> the command line.
      seed: of the damage.
      right: the policy that would be right (default: one of learn_to_optimize).
      **others: other attributes of the cases.
    """
    right = OPTIMIZER if right is None else right
    found = damage.files(argument, words_fn, b"{}", seed)
    for what, make_fn in (*_described(right), *_with_arrays(right, seed)):
        status = PERHAPS if what in right.fine else FAILURE
        words = tuple(words_fn("policy"))
        found.append(Case(f"{argument}: {what}", words, at("policy", make_fn), status))
    return [dataclasses.replace(one, **others) for one in found]


def _described(right: Right) -> Iterator[tuple[str, MakeFn]]:
    """Yield policies whose policy.json is wrong."""

    def replaced(content: bytes) -> MakeFn:
        def make(directory: pathlib.Path) -> None:
            right.write(directory)
            (directory / JSON_NAME).write_bytes(content)

        return make

    def forged(changed: Mapping[str, Any]) -> MakeFn:
        return lambda directory: right.write(directory, changed)

    yield "an empty directory", pathlib.Path.mkdir
    for what, content in texts.NO_JSON.items():
        yield f"policy.json: {what}", replaced(content)
    good = right.filled(packed(right.arrays))
    for what, bad in texts.with_wrong_values(good, [(name,) for name in right.fields]):
        yield f"policy.json: {what}", replaced(texts.encoded(bad))
    for what, changed in right.described.items():
        yield f"a policy {what}", forged(changed)


def _with_arrays(right: Right, seed: int) -> Iterator[tuple[str, MakeFn]]:
    """Yield policies whose arrays are wrong; their digests are right where it says forged."""
    good = packed(right.arrays)

    def damaged(make_fn: MakeFn) -> MakeFn:
        def make(directory: pathlib.Path) -> None:
            right.write(directory)
            (directory / ARRAYS_NAME).unlink()
            make_fn(directory / ARRAYS_NAME)

        return make

    def forged(content: bytes) -> MakeFn:
        return lambda directory: right.write(directory, content=content)

    for what, make_fn in damage.in_place("arrays", good, seed):
        yield what, damaged(make_fn)
    for what, arrays in right.forged.items():
        yield f"forged arrays {what}", forged(packed({**right.arrays, **arrays}))
    for name in right.arrays:
        rest = {one: array for one, array in right.arrays.items() if one != name}
        yield f"forged arrays without {name}", forged(packed(rest))
    yield "forged arrays that are no archive", forged(b"once upon a time")
    yield "forged arrays that are a truncated archive", forged(good[: len(good) // 2])
    yield "forged arrays that declare 8 TiB", forged(_declared(next(iter(right.arrays)), 1 << 40))


def _declared(name: str, length: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        header = io.BytesIO()
        about = {"descr": "<f8", "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(header, about)
        archive.writestr(f"{name}.npy", header.getvalue())
    return buffer.getvalue()


def good(directory: pathlib.Path) -> None:
    """Make a right policy of learn_to_optimize, `policy`."""
    OPTIMIZER.write(directory / "policy")


OPTIMIZER = Right(
    description={
        "format": "tfrl-policy", "format_version": 1, "function": "sphere", "dimensions": 2,
        "free": 1, "bounds": None, "environment": "learn_to_optimize", "kind": "actor",
        "inputs": [{"path": [], "size": 2, "is_integer": False}],
        "actions": {
            "kind": "normal", "size": 1, "low": [-1.0], "high": [1.0], "dtype": "float32",
            "num_places": 0,
        },
        "hidden_sizes": [2], "activation": "tanh", "state_dependent_std": False,
        "log_std_limits": [-9.0, 1.0], "permits": "", "masked": -1e9, "max_place_logit": 8.0,
    },
    arrays={
        "kernel_0": np.full((2, 2), 0.5, np.float32),
        "bias_0": np.zeros(2, np.float32),
        "kernel_1": np.full((2, 1), 0.5, np.float32),
        "bias_1": np.zeros(1, np.float32),
        "log_std": np.zeros(1, np.float32),
    },
    fields=(
        "format", "format_version", "kind", "dimensions", "free", "inputs", "actions",
        "hidden_sizes", "activation", "log_std_limits", "arrays_sha256",
    ),
    described={
        "of version 2": {"format_version": 2},
        "of another kind": {"kind": "graph_actor"},
        "a controller without its fields": {"kind": "controller"},
        "of trees without their fields": {"kind": "trees"},
        "a kind that is not known": {"kind": "oracle"},
        "of 3 coordinates": {"dimensions": 3},
        "all of whose coordinates are free": {"free": 2},
        "of 10^9 hidden units": {"hidden_sizes": [10**9]},
        "of 100,000 hidden layers": {"hidden_sizes": [1] * 100_000},
        "of another activation": {"activation": "magic"},
    },
    forged={
        "of NaN": {"kernel_0": np.full((2, 2), np.nan, np.float32)},
        "of infinity": {"bias_1": np.full(1, np.inf, np.float32)},
        "of another shape": {"kernel_0": np.zeros((3, 2), np.float32)},
        "of no dimension": {"kernel_0": np.array(0, np.float32)},
        "of text": {"bias_0": np.array(["a", "b"])},
        "of complex numbers": {"bias_0": np.zeros(2, np.complex128)},
        "of objects": {"bias_0": np.array([None, {}], object)},
        "of dates": {"bias_0": np.zeros(2, "datetime64[s]")},
    },
)  # fmt: skip


def _integers(*values: int, dtype: type = np.int32) -> np.ndarray:
    return np.array([values], dtype)


DECISIONS = Right(
    # One tree of one test: is callee_users above 1?
    description={
        "format": "tfrl-policy", "format_version": 1, "environment": "inlining", "kind": "trees",
        "num_models": 1, "features": ["callee_users", "inlining_default"],
        "baseline_feature": "inlining_default", "scope_feature": "", "margin": 0.5,
        "outside_margin": 128.0, "settings": {},
    },
    arrays={
        "feature": _integers(0, 0, 0),
        "threshold": _integers(1, 0, 0, dtype=np.int64),
        "left": _integers(1, 1, 2),
        "right": _integers(2, 1, 2),
        "value": _integers(0, -(1 << 25), 1 << 25, dtype=np.int64),
        "base": np.array(0, np.int64),
        "depth": np.array(1, np.int32),
    },
    fields=(
        "format", "format_version", "environment", "kind", "num_models", "features",
        "baseline_feature", "scope_feature", "margin", "outside_margin", "arrays_sha256",
    ),
    fine=(
        *_FINE_VALUES,
        *(
            f"policy.json: {name} is {value}"
            for name in ("margin", "outside_margin")
            for value in ("a negative number", "a fraction")
        ),
        *(
            f"policy.json: {name} is {value}"
            for name in ("baseline_feature", "scope_feature")
            for value in ("an empty text", "a text of 100,000 letters")
        ),
        "policy.json: environment is missing", "policy.json: scope_feature is missing",
        "policy.json: outside_margin is missing", "a policy of a feature that no clang has",
        "forged arrays of a tree whose branches meet",
    ),
    described={
        "of version 2": {"format_version": 2},
        "of networks without their arrays": {"kind": "networks"},
        "of an actor without its fields": {"kind": "actor"},
        "a kind that is not known": {"kind": "oracle"},
        "of no feature": {"features": []},
        "of a feature that is no name": {"features": ['a"; #include "b', "inlining_default"]},
        "of a feature that no clang has": {"features": ["the_weather", "inlining_default"]},
        "of 10^9 members": {"num_models": 10**9},
        "of no members": {"num_models": 0},
    },
    forged={
        "of NaN": {"value": np.full((1, 3), np.nan)},
        "of infinity": {"value": np.full((1, 3), np.inf)},
        "of fractions": {"threshold": np.full((1, 3), 0.5)},
        "of another shape": {"left": _integers(1, 1)},
        "of no dimension": {"feature": np.array(0, np.int32)},
        "of text": {"value": np.array([["a", "b", "c"]])},
        "of objects": {"value": np.array([[None, {}, 1]], object)},
        "of a tree that is a circle": {"left": _integers(1, 0, 2)},
        "of a tree whose branches meet": {"left": _integers(1, 1, 1), "right": _integers(1, 1, 2)},
        "of a child that is missing": {"left": _integers(7, 1, 2)},
        "of a child before the first": {"left": _integers(-1, 1, 2)},
        "of a feature that is missing": {"feature": _integers(7, 0, 0)},
        "of a feature before the first": {"feature": _integers(-1, 0, 0)},
        "of a tree without nodes": {
            name: np.zeros((1, 0), np.int32)
            for name in ("feature", "threshold", "left", "right", "value")
        },
        "of a tree 100,000 deep": {
            "feature": np.zeros((1, 100_001), np.int32),
            "threshold": np.zeros((1, 100_001), np.int64),
            "value": np.zeros((1, 100_001), np.int64),
            "left": np.minimum(np.arange(1, 100_002), 100_000)[np.newaxis].astype(np.int32),
            "right": np.full((1, 100_001), 100_000, np.int32),
        },
        "of a depth of 10^9": {"depth": np.array(10**9, np.int32)},
        "of a depth of no steps": {"depth": np.array(0, np.int32)},
        "of a base that is a list": {"base": np.zeros(2, np.int64)},
    },
)  # fmt: skip
