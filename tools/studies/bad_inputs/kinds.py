"""What can be wrong with each kind of input that a verb takes: a right one, and its damages."""

from __future__ import annotations

import hashlib
import os
import pathlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx.parser

from tools.studies.bad_inputs.damage import (
    EITHER,
    GIVEN,
    PERHAPS,
    Content,
    Damage,
    arrays_file,
    damages,
    encoded,
    files,
    flips,
    in_directory,
    in_place,
    outputs,
    wrong_arrays,
    wrong_json,
    wrong_messages,
)

_RULE: dict[str, Any] = {
    "name": "truth", "source": ["(Sub ?x ?y)"], "target": ["(Neg (Sub ?y ?x))"],
    "conditions": ['(in (dtype ?x) (list "float32"))'], "restrictions": [],
    "verified_by": "identity testing", "may_change_nonfinite": False, "may_lose_digits": False,
    "types": ["float"], "origin": "written", "instances": 10,
}  # fmt: skip
_RULES = {"made": {}, "rules": [_RULE]}
# One of TASO's rules: x + y becomes y + x.
TASO_RULE = bytes.fromhex(
    "0a4e0a20080e120d08ffffffffffffffffff011000120d08feffffffffffffffff011000"
    "1220080e120d08feffffffffffffffff011000120d08ffffffffffffffffff0110001a080800100018002000"
)
# relu(x w + b), with x [n, 4].
_RIGHT_MODEL = onnx.parser.parse_model("""
<ir_version: 8, opset_import: ["": 17]>
good (float[n, 4] x) => (float[n, 3] y)
<float[4, 3] w = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, float[3] b = {1, 1, 1}> {
  m = MatMul(x, w)
  a = Add(m, b)
  y = Relu(a)
}
""")
MODEL = _RIGHT_MODEL.SerializeToString()
_X = {"x": np.ones((2, 4), np.float32)}
_CORPUS: dict[str, Any] = {
    "modules": ["p/a.c", "p/b.c"], "has_thinlto": False,
    "global_command_override": ["<UNSPECIFIED>"],
    "tfrl": {"modules": {"p/a.c": {"language": "c"}}},
}  # fmt: skip
SOURCE = b"int f(int x) { return x + 1; }\n"
_BITCODE = b"BC\xc0\xde" + bytes(range(256))
_COMMANDS = [{"directory": ".", "file": "a.c", "arguments": ["cc", "-c", "a.c"]}]


def _directory_of(name: str, good: Mapping[str, Any], right: Any, depth: int) -> list[Damage]:
    """Return damages of a directory that a file of JSON describes: `right`, which `name` holds."""
    described = wrong_json(right, depth)
    return [
        *_unnamed(files(b"{}")),
        *(bad._replace(content={**good, name: bad.content}) for bad in described),
    ]


def _unnamed(wrong: Iterable[Damage]) -> list[Damage]:
    """Return damages without the name that is empty: some arguments take it for the directory."""
    return [damage for damage in wrong if damage.name != ""]


def _perhaps(wrong: Iterable[Damage]) -> list[Damage]:
    """Return the same damages, some of which are right all the same."""
    return [damage._replace(status=PERHAPS) for damage in wrong]


def _corpora(seed: int) -> list[Damage]:
    name = "corpus_description.json"
    good = {"p": {"a.c.bc": b"BC\xc0\xde", "b.c.bc": b"BC\xc0\xde"}, name: encoded(_CORPUS)}
    return [*_directory_of(name, good, _CORPUS, 2), *in_directory(good, name)]


# What mine.py says, whose `cost` is to be minimised.
_FUNCTIONS = (
    *(f"def cost(points):\n    return {value}" for value in (
        "points[:, 0] * float('nan')", "None", "points", "['a'] * len(points)", "points[1:, 0]",
        "points[:, 0] * 1j", "cost(points)",
    )),
    *(f"def cost(points):\n    return points[:, 0]\ncost.bounds = {bounds}"
      for bounds in ("'ab'", "1, -1", "float('nan'), 1")),
    "def cost(points):\n    raise RuntimeError('no\\nno')",
    "import sys\ndef cost(points):\n    sys.exit(0)",
    "import numpy\ndef cost(points):\n    numpy.zeros(1 << 45)",
    "def cost():\n    return 1.0", "cost = 7", "raise RuntimeError('no')", "def cost(",
    "import sys\nsys.exit(0)", "import there_is_no_such_module",
)  # fmt: skip
_FUNCTION_NAMES = ("parabola", "there_is_no:cost", ":cost", "mine:", "", "os:system('true')",
                   "mi\0ne:cost", "..mine:cost", "a" * 10_000, "\udcff:cost")  # fmt: skip


def _functions(seed: int) -> list[Damage]:
    """Return functions of a user's own that cannot be minimised, and names of none."""

    def module(text: str) -> Content:
        return lambda path: path.with_name("mine.py").write_text(text)

    return [
        *(Damage(repr(text), module(text), "mine:cost") for text in _FUNCTIONS),
        *(Damage(repr(name)[:70], None, name, EITHER) for name in _FUNCTION_NAMES),
    ]


def _executable(text: str) -> Content:
    def make(path: pathlib.Path) -> None:
        path.write_text(text)
        path.chmod(0o755)

    return make


_NO_PROGRAMS: dict[str, Content] = {
    "a directory": {}, "a pipe": os.mkfifo, "a file that is no program": b"text",
    "a program of another format": _executable("\x7fELF"),
    "a script without its interpreter": _executable("#!/no/interpreter\n"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}  # fmt: skip
_SCRIPTS = (
    *("echo no >&2\nexit 1", "kill -SEGV $$", "printf 'clang version \\377\\376'", "exit 0"),
    *(f"echo clang version {version}" for version in ("3.8.0", "9" * 5000, "x.y", "22.1.0")),
)


def _programs(seed: int) -> list[Damage]:
    """Return what cannot be started."""
    names = ("no-such-program", "", "a\0b", "n" * 5000, "\udcff")
    return [
        *(Damage(repr(name)[:70], None, name) for name in names),
        *(Damage(what, content, f"./{GIVEN}") for what, content in _NO_PROGRAMS.items()),
    ]


def _compilers(seed: int) -> list[Damage]:
    """Return programs that are no clang, or none that can be used."""
    scripts = {f"{text[:30]} {len(text)}": f"#!/bin/sh\n{text}\n" for text in _SCRIPTS}
    return [
        *_programs(seed),
        *(Damage(name, None, name) for name in ("/bin/true", "gcc")),
        *(Damage(what, _executable(text), f"./{GIVEN}") for what, text in scripts.items()),
    ]


_SOURCES = (
    *(b"int f( {", b"#error no\n", b'#include "a.c"\n', b"#error one\\\n two\n"),
    *(b"int x = " + b"(" * 100_000 + b"1" + b")" * 100_000 + b";", b"#error \x1b[2J\xff\xfe\n"),
)


def _sources(seed: int) -> list[Damage]:
    texts = damages({f"{text[:40]!r} {len(text)}": text for text in _SOURCES})
    return [*_perhaps(in_place(SOURCE)), *texts]


_ARRAYS, _DESCRIPTION = "numpy_policy.npz", "policy.json"


def _policy(description: Mapping[str, Any], arrays: bytes) -> dict[str, Any]:
    """Return a policy's directory; the digest of its arrays is right."""
    digest = {"arrays_sha256": hashlib.sha256(arrays).hexdigest()}
    return {_DESCRIPTION: encoded({**description, **digest}), _ARRAYS: arrays}


def _policies(right: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> list[Damage]:
    """Return damages of a policy's directory.

    Args:
      right: policy.json without the digest of the arrays.
      arrays: the arrays by name.
    """
    good = _policy(right, arrays_file(arrays))
    digest = hashlib.sha256(good[_ARRAYS]).hexdigest()
    return [
        *_directory_of(_DESCRIPTION, good, {**right, "arrays_sha256": digest}, 1),
        *in_directory(good, _ARRAYS),
        *damages((what, _policy(right, content)) for what, content in wrong_arrays(arrays)),
    ]


def _full(*shape: int, value: Any = 0.5, dtype: Any = np.float32) -> np.ndarray:
    return np.full(shape, value, dtype)


_OPTIMIZER = {
    "format": "tfrl-policy", "format_version": 1, "function": "sphere", "dimensions": 2,
    "free": 1, "bounds": None, "environment": "learn_to_optimize", "kind": "actor",
    "inputs": [{"path": [], "size": 2, "is_integer": False}],
    "actions": {
        "kind": "normal", "size": 1, "low": [-1.0], "high": [1.0], "dtype": "float32",
        "num_places": 0,
    },
    "hidden_sizes": [2], "activation": "tanh", "state_dependent_std": False,
    "log_std_limits": [-9.0, 1.0], "permits": "", "masked": -1e9, "max_place_logit": 8.0,
}  # fmt: skip
_OPTIMIZER_ARRAYS = {
    "kernel_0": _full(2, 2), "bias_0": _full(2), "kernel_1": _full(2, 1), "bias_1": _full(1),
    "log_std": _full(1),
}  # fmt: skip
OPTIMIZER = _policy(_OPTIMIZER, arrays_file(_OPTIMIZER_ARRAYS))
# A network without a hidden layer, over ranks of two features.
_DECISIONS = {
    "format": "tfrl-policy", "format_version": 1, "environment": "inlining", "kind": "networks",
    "num_models": 1, "features": ["callee_users", "inlining_default"],
    "baseline_feature": "inlining_default", "scope_feature": "", "margin": 0.5,
    "outside_margin": 128.0, "settings": {},
}  # fmt: skip
_DECISIONS_ARRAYS = {
    **{name: _full(2, 1, value=0, dtype=np.int64) for name in ("start", "base", "rise")},
    "run": _full(2, 1, value=1, dtype=np.int64),
    "weights_0": _full(1, 2, 1, value=65536.0), "biases_0": _full(1, 1, 1, value=0.0),
}  # fmt: skip


KINDS: Mapping[str, Callable[[int], Iterable[Damage]]] = {
    "nothing": lambda seed: [Damage("", None)],  # the command is wrong by itself
    "directory": lambda seed: [damage for damage in files(b"") if damage.content != {}],
    "rules": lambda seed: [*files(encoded(_RULES)), *wrong_json(_RULES, 3)],
    "TASO's rules": lambda seed: [*files(TASO_RULE), *flips(TASO_RULE, seed, 80)],
    "model": lambda seed: [
        *files(MODEL), *damages(wrong_messages(_RIGHT_MODEL), PERHAPS), *flips(MODEL, seed, 20),
    ],
    # An archive may have bytes in front.
    "arrays": lambda seed: [
        *(damage for damage in files(arrays_file(_X)) if "in front" not in damage.what),
        *damages(wrong_arrays(_X)),
    ],
    "corpus": _corpora,
    "optimizer": lambda seed: _policies(_OPTIMIZER, _OPTIMIZER_ARRAYS),
    "decisions": lambda seed: _policies(_DECISIONS, _DECISIONS_ARRAYS),
    "function": _functions,
    "program": _programs,
    "compiler": _compilers,
    # Under a name that says nothing.
    "path of a source": lambda seed: _unnamed(files(SOURCE)),
    "source": _sources,
    "bitcode": lambda seed: [*_perhaps(in_place(_BITCODE)), *flips(_BITCODE, seed, 10, (1,))],
    "compile commands": lambda seed: _perhaps(
        [*in_place(encoded(_COMMANDS)), *wrong_json(_COMMANDS, 3)]
    ),
    "cache": lambda seed: files(b"SQLite format 3\0" + bytes(4096)),
    "other files": lambda seed: [Damage("other files", {"precious": b"a file"})],
    "output": lambda seed: outputs(is_directory=False),
    "output directory": lambda seed: outputs(is_directory=True),
}  # fmt: skip
