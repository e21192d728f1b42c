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
    of_values,
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
_FINE_RULES = (
    r"rules is an empty list|rules\.0 is missing|made is (missing|an object)|"
    r"rules\.0\.(?!name|source|target)\w+ is missing|"
    r"rules\.0\.(conditions|restrictions|types) is an empty list|rules\.0\.may_\w+ is true|"
    r"rules\.0\.(name|verified_by) is a text of 100,000 letters|"
    r"rules\.0\.(verified_by is an empty text|instances is a huge number)"
)
_RULE_CHANGES: tuple[dict[str, Any], ...] = (
    {"source": ["(Sub ?x ?y"]}, {"source": ["(Sub ?x ?y))"]}, {"source": ["?x"]},
    {"source": ["(Neg " * 50_000 + "?x" + ")" * 50_000]}, {"target": ["(Neg (Sub ?y ?z))"]},
    {"conditions": ["(nonsense ?x)"]}, {"conditions": ["(not " * 50_000 + "true" + ")" * 50_000]},
    {"colour": "red"}, {"sha256": "0" * 64},
)  # fmt: skip


def _rules(seed: int) -> list[Damage]:
    good = {"made": {}, "rules": [_RULE]}
    return [
        *files(encoded(good)),
        *wrong_json(good, 3, _FINE_RULES),
        *damages(of_values(_RULE_CHANGES, lambda changed: encoded({"rules": [_RULE | changed]}))),
    ]


# One of TASO's rules: x + y becomes y + x.
TASO_RULE = bytes.fromhex(
    "0a4e0a20080e120d08ffffffffffffffffff011000120d08feffffffffffffffff011000"
    "1220080e120d08feffffffffffffffff011000120d08ffffffffffffffffff0110001a080800100018002000"
)


def _taso_rules(seed: int) -> list[Damage]:
    cut = {f"the first {n} bytes": TASO_RULE[:n] for n in range(1, len(TASO_RULE), 2)}
    return [*files(TASO_RULE), *damages(cut), *flips(TASO_RULE, seed, 30)]


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


def _models(seed: int) -> list[Damage]:
    return [
        *files(MODEL),
        *damages(wrong_messages(_RIGHT_MODEL), PERHAPS),
        *flips(MODEL, seed, 20),
    ]


def _arrays(seed: int) -> list[Damage]:
    """Return what can be wrong with a file of arrays for the inputs of the right model."""
    x = {"x": np.ones((2, 4), np.float32)}
    # An archive may have bytes in front.
    archives = [damage for damage in files(arrays_file(x)) if "in front" not in damage.what]
    return [*archives, *damages(wrong_arrays(x))]


_CORPUS: dict[str, Any] = {
    "modules": ["p/a.c", "p/b.c"], "has_thinlto": False,
    "global_command_override": ["<UNSPECIFIED>"],
    "tfrl": {"modules": {"p/a.c": {"language": "c"}}},
}  # fmt: skip
_FINE_CORPUS = (
    r"modules\.. is missing|(has_thinlto|tfrl|tfrl\.modules|global_command_override)(\.0)? is "
    r"missing|(global_command_override|tfrl\.modules) is an empty list|tfrl.*"
)
_MODULE_NAMES = ("../a", "p/../../a", "/etc/passwd", "", "p/a\nb.c", "p/a\0b.c", "p/\x1b[2Ja.c",
                 "p/" + "a" * 5000, "p/\ud800.c", "p/missing.c")  # fmt: skip


def _corpora(seed: int) -> list[Damage]:
    modules = {"a.c.bc": b"BC\xc0\xde", "b.c.bc": b"BC\xc0\xde"}
    name = "corpus_description.json"
    good = {"p": modules, name: encoded(_CORPUS)}
    names = of_values(_MODULE_NAMES, lambda module: encoded({**_CORPUS, "modules": [module]}))
    descriptions = [*wrong_json(_CORPUS, 2, _FINE_CORPUS), *damages(names)]
    return [
        *(damage for damage in files(b"{}") if damage.name != ""),
        *(damage._replace(content={**good, name: damage.content}) for damage in descriptions),
        *in_directory(good, name),
    ]


_OF_POINTS = ("points[:, 0] * float('nan')", "None", "1.0", "points", "['a'] * len(points)",
              "points[:, 0] * 1j", "points[1:, 0]", "cost(points)")  # fmt: skip
_FIRST = "def cost(points):\n    return points[:, 0]\ncost.bounds = "
# What mine.py says, whose `cost` is to be minimised.
_FUNCTIONS = (
    *(f"def cost(points):\n    return {value}" for value in _OF_POINTS),
    *(f"def cost(points):\n    raise RuntimeError({text})" for text in ("'no'", "'no\\nno'")),
    *(f"{_FIRST}{bounds}" for bounds in ("'ab'", "1, -1", "float('nan'), 1", "(1,)")),
    "import sys\ndef cost(points):\n    sys.exit(0)",
    "import numpy\ndef cost(points):\n    numpy.zeros(1 << 45)",
    "def cost():\n    return 1.0", "cost = 7", "raise RuntimeError('no')",
    "import sys\nsys.exit(0)", "def cost(", "import there_is_no_such_module",
    "def price(points):\n    return points[:, 0]",
)  # fmt: skip
_FUNCTION_NAMES = ("parabola", "there_is_no:cost", "mine.py:cost", ":cost", "mine:", "",
                   "mine:cost:cost", "os:system('true')", "mi\0ne:cost", "mine\n:cost",
                   "..mine:cost", "a" * 10_000, "\udcff:cost")  # fmt: skip


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


_PROGRAM = f"./{GIVEN}"
_NO_PROGRAMS: dict[str, Content] = {
    "a directory": {}, "a pipe": os.mkfifo, "a file that is no program": b"text",
    "a program of another format": _executable("\x7fELF"),
    "a script without its interpreter": _executable("#!/no/interpreter\n"),
    "a link to nothing": lambda path: path.symlink_to("nowhere"),
}  # fmt: skip
_VERSIONS = ("3.8.0", "9999.0.0", "9" * 5000, "x.y", "22.1.0", "19.1.0")
_SCRIPTS = (
    *("echo no >&2\nexit 1", "kill -SEGV $$", "printf 'clang version \\377\\376'"),
    *("echo gcc version 12", "exit 0"),
    *(f"echo clang version {version}" for version in _VERSIONS),
)


def _programs(seed: int) -> list[Damage]:
    """Return what cannot be started."""
    names = ("no-such-program", "", "a\0b", "n" * 5000, "\udcff")
    return [
        *(Damage(repr(name)[:70], None, name) for name in names),
        *(Damage(what, content, _PROGRAM) for what, content in _NO_PROGRAMS.items()),
    ]


def _compilers(seed: int) -> list[Damage]:
    """Return programs that are no clang, or none that can be used."""
    return [
        *_programs(seed),
        *(Damage(name, None, name) for name in ("/bin/true", "gcc")),
        *(
            Damage(f"{text[:30]} {len(text)}", _executable(f"#!/bin/sh\n{text}\n"), _PROGRAM)
            for text in _SCRIPTS
        ),
    ]


SOURCE = b"int f(int x) { return x + 1; }\n"
_SOURCES = (
    *(b"int f( {", b"#error no\n", b'#include "missing.h"\n', b'#include "a.c"\n', b"int x;\n"),
    *(b"int x = " + b"(" * 100_000 + b"1" + b")" * 100_000 + b";", b"#error one\\\n two\n"),
    *(b"#error \x1b[2J\n", b"#error \xff\xfe\n"),
)
_BITCODE = b"BC\xc0\xde" + bytes(range(256))
_ENTRY: dict[str, Any] = {"directory": ".", "file": "a.c", "arguments": ["cc", "-c", "a.c"]}


def _paths_of_sources(seed: int) -> list[Damage]:
    """Return what may stand where a source should be, under a name that says nothing."""
    return [damage for damage in files(SOURCE) if damage.name != ""]


def _sources(seed: int) -> list[Damage]:
    texts = damages({f"{text[:40]!r} {len(text)}": text for text in _SOURCES})
    return [*_perhaps(in_place(SOURCE)), *texts]


def _bitcode(seed: int) -> list[Damage]:
    return [*_perhaps(in_place(_BITCODE)), *flips(_BITCODE, seed, 10, (1,))]


def _databases_of_commands(seed: int) -> list[Damage]:
    good = [_ENTRY]
    return _perhaps([*in_place(encoded(good)), *wrong_json(good, 3)])


def _perhaps(wrong: Iterable[Damage]) -> list[Damage]:
    """Return the same damages, some of which are right all the same."""
    return [damage._replace(status=PERHAPS) for damage in wrong]


def _policy(description: Mapping[str, Any], arrays: bytes) -> dict[str, Any]:
    """Return a policy's directory; the digest of its arrays is right."""
    digest = {"arrays_sha256": hashlib.sha256(arrays).hexdigest()}
    return {"policy.json": encoded({**description, **digest}), _ARRAYS: arrays}


def _policies(
    right: Mapping[str, Any], arrays: Mapping[str, np.ndarray], fine: str
) -> Callable[[int], list[Damage]]:
    """Return what makes the damages of a policy's directory.

    Args:
      right: policy.json without the digest of the arrays.
      arrays: the arrays by name.
      fine: see `wrong_json`.
    """

    def make(seed: int) -> list[Damage]:
        good = _policy(right, arrays_file(arrays))
        digest = hashlib.sha256(good[_ARRAYS]).hexdigest()
        described = wrong_json({**right, "arrays_sha256": digest}, 1, fine)
        return [
            *files(b"{}"),
            *in_directory(good, _ARRAYS),
            *damages((what, _policy(right, content)) for what, content in wrong_arrays(arrays)),
            *(bad._replace(content={**good, "policy.json": bad.content}) for bad in described),
        ]

    return make


def _full(*shape: int, value: Any = 0.5, dtype: Any = np.float32) -> np.ndarray:
    return np.full(shape, value, dtype)


_ARRAYS = "numpy_policy.npz"
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
# JSON's true is Python's 1; the last ones are read by messages and other verbs alone.
_FINE_OPTIMIZER = (
    "format_version is true|(function|bounds|permits|masked|max_place_logit|state_dependent_std) .*"
)
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
_FINE_DECISIONS = (
    "format_version is true|settings .*|(outside_)?margin is a (negative number|fraction)|"
    "(baseline|scope)_feature is (an empty text|a text of 100,000 letters)|"
    "(environment|scope_feature|outside_margin) is missing"
)


KINDS: Mapping[str, Callable[[int], Iterable[Damage]]] = {
    "nothing": lambda seed: [Damage("", None)],  # the command is wrong by itself
    "directory": lambda seed: [damage for damage in files(b"") if damage.content != {}],
    "rules": _rules,
    "TASO's rules": _taso_rules,
    "model": _models,
    "arrays": _arrays,
    "corpus": _corpora,
    "optimizer": _policies(_OPTIMIZER, _OPTIMIZER_ARRAYS, _FINE_OPTIMIZER),
    "decisions": _policies(_DECISIONS, _DECISIONS_ARRAYS, _FINE_DECISIONS),
    "function": _functions,
    "program": _programs,
    "compiler": _compilers,
    "path of a source": _paths_of_sources,
    "source": _sources,
    "bitcode": _bitcode,
    "compile commands": _databases_of_commands,
    "cache": lambda seed: files(b"SQLite format 3\0" + bytes(4096)),
    "other files": lambda seed: [Damage("other files", {"precious": b"a file"})],
    "output": lambda seed: outputs(is_directory=False),
    "output directory": lambda seed: outputs(is_directory=True),
}
