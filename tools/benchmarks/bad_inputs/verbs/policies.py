"""Policies that are none: damaged, forged, or of something else."""

from __future__ import annotations

import hashlib
import io
import pathlib
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tools.benchmarks.bad_inputs import damage, texts
from tools.benchmarks.bad_inputs.case import Case, MakeFn

JSON_NAME, ARRAYS_NAME = "policy.json", "numpy_policy.npz"

_ARRAYS: Mapping[str, np.ndarray] = {
    "kernel_0": np.full((2, 2), 0.5, np.float32),
    "bias_0": np.zeros(2, np.float32),
    "kernel_1": np.full((2, 1), 0.5, np.float32),
    "bias_1": np.zeros(1, np.float32),
    "log_std": np.zeros(1, np.float32),
}
_DESCRIPTION: Mapping[str, Any] = {
    "format": "tfrl-policy",
    "format_version": 1,
    "function": "sphere",
    "dimensions": 2,
    "free": 1,
    "bounds": None,
    "environment": "learn_to_optimize",
    "kind": "actor",
    "inputs": [{"path": [], "size": 2, "is_integer": False}],
    "actions": {
        "kind": "normal", "size": 1, "low": [-1.0], "high": [1.0], "dtype": "float32",
        "num_places": 0,
    },
    "hidden_sizes": [2],
    "activation": "tanh",
    "state_dependent_std": False,
    "log_std_limits": [-9.0, 1.0],
    "permits": "",
    "masked": -1e9,
    "max_place_logit": 8.0,
}  # fmt: skip
_FIELDS = (
    "format", "format_version", "kind", "dimensions", "free", "inputs", "actions",
    "hidden_sizes", "activation", "log_std_limits", "arrays_sha256",
)  # fmt: skip
_FINE_VALUES = ("format_version is true",)
"""What happens to be right: JSON's true is Python's 1."""


def write(
    directory: pathlib.Path,
    changed: Mapping[str, Any] | None = None,
    arrays: Mapping[str, np.ndarray] | None = None,
) -> None:
    """Write a policy of learn_to_optimize, with other fields or arrays than it should have."""
    content = packed({**_ARRAYS, **(arrays or {})})
    write_with(directory, content, changed)


def write_with(
    directory: pathlib.Path, content: bytes, changed: Mapping[str, Any] | None = None
) -> None:
    """Write a policy whose arrays are some bytes, and whose digest fits them."""
    directory.mkdir()
    digest = hashlib.sha256(content).hexdigest()
    described = {**_DESCRIPTION, "arrays_sha256": digest, **(changed or {})}
    (directory / ARRAYS_NAME).write_bytes(content)
    (directory / JSON_NAME).write_bytes(texts.encoded(described))


def packed(arrays: Mapping[str, np.ndarray]) -> bytes:
    """Return the bytes of an .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def policies(argument: str, words_fn: Callable[[str], Sequence[str]], seed: int) -> list[Case]:
    """Make the cases of an argument that is the directory of a policy of learn_to_optimize."""
    places = damage.files(argument, words_fn, b"{}", seed)
    return [
        *places,
        *(
            Case(f"{argument}: {what}", tuple(words_fn("policy")), _below("policy", make_fn))
            for what, make_fn in (*_described(), *_with_arrays(seed))
        ),
    ]


def _below(name: str, make_fn: MakeFn) -> MakeFn:
    return lambda directory: make_fn(directory / name)


def _described() -> Iterator[tuple[str, MakeFn]]:
    """Yield policies whose policy.json is wrong."""

    def replaced(content: bytes) -> MakeFn:
        def make(directory: pathlib.Path) -> None:
            write(directory)
            (directory / JSON_NAME).write_bytes(content)

        return make

    def forged(changed: Mapping[str, Any]) -> MakeFn:
        return lambda directory: write(directory, changed)

    yield "an empty directory", pathlib.Path.mkdir
    for what, content in texts.NO_JSON.items():
        yield f"policy.json: {what}", replaced(content)
    good = {**_DESCRIPTION, "arrays_sha256": hashlib.sha256(packed(_ARRAYS)).hexdigest()}
    for what, bad in texts.with_wrong_values(good, [(name,) for name in _FIELDS]):
        if what not in _FINE_VALUES:
            yield f"policy.json: {what}", replaced(texts.encoded(bad))
    others: dict[str, Mapping[str, Any]] = {
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
    }
    for what, changed in others.items():
        yield f"a policy {what}", forged(changed)


def _with_arrays(seed: int) -> Iterator[tuple[str, MakeFn]]:
    """Yield policies whose arrays are wrong; their digests are right where it says forged."""
    good = packed(_ARRAYS)

    def damaged(make_fn: MakeFn) -> MakeFn:
        def make(directory: pathlib.Path) -> None:
            write(directory)
            (directory / ARRAYS_NAME).unlink()
            make_fn(directory)
            if (directory / "given").exists() or (directory / "given").is_symlink():
                (directory / "given").rename(directory / ARRAYS_NAME)

        return make

    def forged(content: bytes) -> MakeFn:
        return lambda directory: write_with(directory, content)

    for one in damage.files("arrays", lambda path: (path,), good, seed):
        if one.words == ("given",):
            yield one.what, damaged(one.make_fn)
    changed: dict[str, Mapping[str, Any]] = {
        "of NaN": {"kernel_0": np.full((2, 2), np.nan, np.float32)},
        "of infinity": {"bias_1": np.full(1, np.inf, np.float32)},
        "of another shape": {"kernel_0": np.zeros((3, 2), np.float32)},
        "of no dimension": {"kernel_0": np.float32(0)},
        "of text": {"bias_0": np.array(["a", "b"])},
        "of complex numbers": {"bias_0": np.zeros(2, np.complex128)},
        "of objects": {"bias_0": np.array([None, {}], object)},
        "of dates": {"bias_0": np.zeros(2, "datetime64[s]")},
    }
    for what, arrays in changed.items():
        yield f"forged arrays {what}", forged(packed({**_ARRAYS, **arrays}))
    for name in _ARRAYS:
        rest = {one: array for one, array in _ARRAYS.items() if one != name}
        yield f"forged arrays without {name}", forged(packed(rest))
    yield "forged arrays that are no archive", forged(b"once upon a time")
    yield "forged arrays that are a truncated archive", forged(good[: len(good) // 2])
    yield "forged arrays that declare 8 TiB", forged(_declared(1 << 40))


def _declared(length: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        header = io.BytesIO()
        about = {"descr": "<f8", "fortran_order": False, "shape": (length,)}
        np.lib.format.write_array_header_1_0(header, about)
        archive.writestr("kernel_0.npy", header.getvalue())
    return buffer.getvalue()


def good(directory: pathlib.Path) -> None:
    """Make a right policy, `policy`."""
    write(directory / "policy")
