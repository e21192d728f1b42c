"""Bad inputs of `tfrl optimize`."""

from __future__ import annotations

import io
import pathlib
import zipfile
from collections.abc import Iterator
from typing import Any

import numpy as np

from tools.benchmarks.bad_inputs import damage, texts
from tools.benchmarks.bad_inputs.case import PERHAPS, USAGE, Case, all_of, numbers, usage, with_file
from tools.benchmarks.bad_inputs.verbs import models

_FAST = ("--no-measure", "--objective", "analytic", "--seconds", "1")
_COMMAND = ("optimize", "model.onnx", "-o", "out.onnx", *_FAST)
_USAGE = {
    "an unknown method": "--method magic",
    "negative seconds": "--seconds -1",
    "infinite seconds": "--seconds inf",
    "seconds of NaN": "--seconds nan",
    "a measurement of no seconds": "--measure-seconds 0",
    "a size of 0": "--dimension n=0",
    "a negative size": "--dimension n=-1",
    "a size without a name": "--dimension =3",
    "a size without a number": "--dimension n=",
    "no size": "--dimension n",
    "a size that is a fraction": "--dimension n=1.5",
    "a policy that cannot play": "--method greedy --policy p",
    "a method without its policy": "--method policy",
    "no such option": "--nonsense",
    "two sizes to freeze": "--freeze --dimension n=1,2",
}
_FAILURE = {
    "a size that is not open": "--dimension k=3",
    "a size of a fixed axis": "--dimension x[1]=3",
    "a size of 10^15": "--dimension n=1000000000000000",
    "an objective that is not there": "--objective nonsense",
    "a page that is the model": "--report model.onnx",
    "a search kept in the model": "--checkpoint model.onnx",
}


def cases(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl optimize`."""
    good = models.good().SerializeToString()
    with_model = with_file("model.onnx", good)

    def to(path: str) -> tuple[str, ...]:
        return ("optimize", "model.onnx", "-o", path, *_FAST)

    def of(option: str, content: bytes) -> list[Case]:
        return damage.files(
            option, lambda path: (*_COMMAND, f"{option}={path}"), content, seed,
            others_fn=with_model, without=_FINE.get(option, ()),
        )  # fmt: skip

    def written(option: str) -> list[Case]:
        return damage.outputs(
            option, lambda path: (*_COMMAND, f"{option}={path}"), others_fn=with_model
        )

    return [
        *damage.files(
            "MODEL", lambda path: ("optimize", path, "-o", "out.onnx", *_FAST), good, seed
        ),
        *damage.outputs("--output", to, others_fn=with_model),
        *of("--inputs", _arrays(x=np.ones((2, 4), np.float32))),
        *of("--rules", b'{"rules": []}'),
        *of("--policy", b"{}"),
        *written("--report"),
        *written("--checkpoint"),
        *_models(good, seed),
        *_contents(good),
        *numbers(" ".join(_COMMAND), "--expansions", 0),
        *numbers(" ".join(_COMMAND), "--rollouts", 1),
        *(
            Case(what, (*_COMMAND, *words.split()), with_model, USAGE)
            for what, words in _USAGE.items()
        ),
        *(Case(what, (*_COMMAND, *words.split()), with_model) for what, words in _FAILURE.items()),
        *usage("optimize", ("nothing", ""), ("no output", "model.onnx")),
        Case("--output: the model", to("model.onnx"), with_model),
    ]


_FINE = {"--inputs": ("with bytes in front",)}
"""What an archive may have."""


def _models(good: bytes, seed: int) -> Iterator[Case]:
    for what, content in models.wrong():
        yield Case(f"MODEL: {what}", _COMMAND, with_file("model.onnx", content))
    for what, content in models.not_running():
        # It gets a copy: that no inputs are known on which a model runs is no error.
        make_fn = with_file("model.onnx", content)
        yield Case(f"MODEL: {what}", _COMMAND, make_fn, PERHAPS, ("out.onnx",))
    for number in range(20):
        bad = damage.flipped(good, seed, number)
        make_fn = with_file("model.onnx", bad)
        yield Case(f"MODEL: flipped bits {number}", _COMMAND, make_fn, PERHAPS, ("out.onnx",))


def _contents(good: bytes) -> Iterator[Case]:
    """Yield cases of files that an option names."""
    given = {"--inputs": ("in.npz", _inputs()), "--rules": ("r.json", texts.NO_JSON.items())}
    for option, (name, contents) in given.items():
        for what, content in contents:
            make_fn = all_of(with_file("model.onnx", good), with_file(name, content))
            yield Case(f"{option}: {what}", (*_COMMAND, option, name), make_fn)


def _inputs() -> Iterator[tuple[str, bytes]]:
    x = np.ones((2, 4), np.float32)
    wrong: dict[str, dict[str, Any]] = {
        "no array": {},
        "another name": {"z": x},
        "one too many": {"x": x, "z": x},
        "another rank": {"x": x[0]},
        "another size": {"x": x[:, :3]},
        "doubles": {"x": x.astype(np.float64)},
        "texts": {"x": np.array([["a"] * 4])},
        "truths": {"x": x > 0},
        "complex numbers": {"x": x.astype(np.complex64)},
        "records": {"x": np.zeros((2, 4), [("a", "f4")])},
        "objects": {"x": np.array([[{}] * 4], np.object_)},
    }
    for what, arrays in wrong.items():
        yield what, _arrays(**arrays)
    single = io.BytesIO()
    np.save(single, x)
    yield "a single array (.npy)", single.getvalue()
    yield "a declared size of 2^60", _forged("x", (1 << 60, 4))
    yield "a negative declared size", _forged("x", (-2, 4))
    yield "a header that is no literal", _forged("x", "__import__('os')")


def _arrays(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def _forged(name: str, shape: Any) -> bytes:
    """Return an .npz file whose array declares a shape and holds 32 bytes."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    header = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{name}.npy", header + bytes(32))
    return buffer.getvalue()
