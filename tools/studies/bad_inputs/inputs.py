"""What can be wrong with each kind of input that a verb takes."""

from __future__ import annotations

import hashlib
import os
import pathlib
import sqlite3
import tempfile
from collections.abc import Mapping
from typing import Any

import numpy as np

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
    wrong_arrays,
    wrong_json,
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
    {"source": []}, {"source": ["(Sub ?x ?y)", "(Neg ?x)"]}, {"source": ["(Sub ?x ?y"]},
    {"source": ["(Sub ?x ?y))"]}, {"source": ["?x"]}, {"source": [""]},
    {"source": ["(Sub ?x\0 ?y)"]}, {"source": ["(Sub ?x ?y) (Sub ?y ?x)"]},
    {"source": ["(Sub ?x ?y)", "(Neg ?z)"], "target": ["(Neg ?x)", "(Neg ?z)"]},
    {"source": ["(Neg " * 50_000 + "?x" + ")" * 50_000]},
    {"target": ["(Neg (Sub ?y ?z))"]}, {"target": ["(Softmax ?x :axis $axis)"]},
    {"conditions": ["true"]}, {"conditions": ["(nonsense ?x)"]},
    {"conditions": ["(in (dtype ?x))"]}, {"conditions": ["(= (+ ?x 1) 2)"]},
    {"conditions": ["(not " * 50_000 + "true" + ")" * 50_000]},
    {"conditions": ['(in (dtype ?x) (list "float32))']},
    {"colour": "red"}, {"origin": "stolen"}, {"sha256": "0" * 64}, {"sha256": 7},
)  # fmt: skip


def rules(seed: int) -> list[Damage]:
    """Return what can be wrong with a file of rules."""
    good = {"made": {}, "rules": [_RULE]}
    return [
        *files(encoded(good)),
        *wrong_json(good, 3, _FINE_RULES),
        *damages(of_values(_RULE_CHANGES, lambda changed: encoded({"rules": [_RULE | changed]}))),
        *damages({"two rules of one name": encoded({"rules": [_RULE, _RULE]})}),
    ]


# One of TASO's rules: x + y becomes y + x.
TASO_RULE = bytes.fromhex(
    "0a4e0a20080e120d08ffffffffffffffffff011000120d08feffffffffffffffff011000"
    "1220080e120d08feffffffffffffffff011000120d08ffffffffffffffffff0110001a080800100018002000"
)


def taso_rules(seed: int) -> list[Damage]:
    """Return what can be wrong with a file of TASO's rules."""
    wrong = {
        "a number without end": b"\xff" * 20,
        "a length of 2^60": b"\x0a" + b"\xff" * 8 + b"\x0f",
        "a field of no number": b"\x02\x00",
        "a group": b"\x0b\x0c",
        "groups 10,000 deep": b"\x0b" * 10_000 + b"\x0c" * 10_000,
        "a rule that is a number": b"\x08\x01",
        "64 MiB of zeros": bytes(64 << 20),
        **{f"the first {n} bytes": TASO_RULE[:n] for n in range(1, len(TASO_RULE), 2)},
    }
    return [*files(TASO_RULE), *damages(wrong), *flips(TASO_RULE, seed, 30)]


_CORPUS: dict[str, Any] = {
    "modules": ["p/a.c", "p/b.c"], "has_thinlto": False,
    "global_command_override": ["<UNSPECIFIED>"],
    "tfrl": {"modules": {"p/a.c": {"language": "c"}}},
}  # fmt: skip
_FINE_CORPUS = (
    r"modules\.. is missing|(has_thinlto|tfrl|tfrl\.modules|global_command_override)(\.0)? is "
    r"missing|(global_command_override|tfrl\.modules) is an empty list|tfrl.*"
)
_MODULE_NAMES = ("../a", "p/../../a", "/etc/passwd", "", ".", "p//a.c", "p/a\nb.c", "p/a\0b.c",
                 "p/\x1b[2Ja.c", "..\\a.c", "p/" + "a" * 5000, "p/\ud800.c",
                 "p/missing.c")  # fmt: skip


def corpora(seed: int) -> list[Damage]:
    """Return what can be wrong with the directory of a corpus."""
    modules = {"a.c.bc": b"BC\xc0\xde", "b.c.bc": b"BC\xc0\xde"}
    name = "corpus_description.json"
    good = {"p": modules, name: encoded(_CORPUS)}
    zeros: Content = lambda path: path.symlink_to("/dev/zero")  # noqa: E731
    parts: dict[str, dict[str, Content]] = {
        "options": {"a.c.cmd": b"-cc1\0\xff"}, "a directory": {"a.c.cmd": {}},
        "a pipe": {"a.c.cmd": os.mkfifo}, "no options": {"a.c.cmd": zeros},
        "no module": {"a.c.bc": zeros}, "no file": {"a.c.bc": {}}, "module": {"a.c.bc": os.mkfifo},
        "a loop": {"a.c.bc": lambda path: path.symlink_to(path.name)},
    }  # fmt: skip
    names = of_values(_MODULE_NAMES, lambda module: encoded({**_CORPUS, "modules": [module]}))
    names["ThinLTO without its indices"] = encoded({**_CORPUS, "has_thinlto": True})
    descriptions = [*wrong_json(_CORPUS, 2, _FINE_CORPUS), *damages(names)]
    return [
        *(damage for damage in files(b"{}") if damage.name != ""),
        *(damage._replace(content={**good, name: damage.content}) for damage in descriptions),
        *in_directory(good, name),
        *damages((f"p: {what}", {**good, "p": modules | part}) for what, part in parts.items()),
    ]


_OF_POINTS = ("points[:, 0] * float('nan')", "points[:, 0] * 0 + float('inf')", "None", "1.0",
              "points", "['a'] * len(points)", "points[:, 0] * 1j", "[None] * len(points)",
              "points[1:, 0]", "cost(points)")  # fmt: skip
_FIRST = "def cost(points):\n    return points[:, 0]\ncost.bounds = "
# What mine.py says, whose `cost` is to be minimised.
_FUNCTIONS = (
    *(f"def cost(points):\n    return {value}" for value in _OF_POINTS),
    *(f"def cost(points):\n    raise RuntimeError({text})" for text in ("'no'", "'no\\nno'")),
    *(f"{_FIRST}{bounds}" for bounds in ("'ab'", "1, -1", "float('nan'), 1", "(1,)")),
    "import sys\ndef cost(points):\n    sys.exit(0)",
    "import numpy\ndef cost(points):\n    numpy.zeros(1 << 45)",
    "def cost():\n    return 1.0", "def cost(a, b):\n    return a", "cost = 7", "cost = 'sphere'",
    "raise RuntimeError('no')", "import sys\nsys.exit(0)", "def cost(", "cost = 1\0",
    "import there_is_no_such_module", "def price(points):\n    return points[:, 0]",
    "class Cost:\n    def __call__(self, points):\n        return 1\n    @property\n"
    "    def bounds(self):\n        raise RuntimeError('no')\ncost = Cost()",
)  # fmt: skip
_FUNCTION_NAMES = ("parabola", "there_is_no:cost", "mine.py:cost", ":cost", "mine:", "",
                   "mine:cost:cost", "os:system('true')", "mi\0ne:cost", "mine\n:cost",
                   "..mine:cost", "a" * 10_000, "\udcff:cost")  # fmt: skip


def functions(seed: int) -> list[Damage]:
    """Return functions of a user's own that cannot be minimised, and names of none."""

    def module(text: str) -> Content:
        return lambda path: path.with_name("mine.py").write_text(text)

    wrong = {repr(text): module(text) for text in _FUNCTIONS}
    return [
        *(Damage(what, content, "mine:cost") for what, content in wrong.items()),
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
    "a link to itself": lambda path: path.symlink_to(path.name),
}  # fmt: skip
_VERSIONS = ("3.8.0", "9999.0.0", "9" * 5000, f"{'9' * 5000}.1", "x.y", "22.1.0", "19.1.0")
_SCRIPTS = (
    *("echo no >&2\nexit 1", "kill -SEGV $$", "printf 'clang version \\377\\376'"),
    *("echo gcc version 12", "exit 0"),
    *(f"echo clang version {version}" for version in _VERSIONS),
)


def programs(seed: int) -> list[Damage]:
    """Return what cannot be started."""
    names = ("no-such-program", "", "a\0b", "n" * 5000, "\udcff")
    return [
        *(Damage(repr(name)[:70], None, name) for name in names),
        *(Damage(what, content, _PROGRAM) for what, content in _NO_PROGRAMS.items()),
    ]


def compilers(seed: int) -> list[Damage]:
    """Return programs that are no clang, or none that can be used."""
    return [
        *programs(seed),
        *(Damage(name, None, name) for name in ("/bin/true", "gcc")),
        *(
            Damage(f"{text[:30]} {len(text)}", _executable(f"#!/bin/sh\n{text}\n"), _PROGRAM)
            for text in _SCRIPTS
        ),
    ]


SOURCE = b"int f(int x) { return x + 1; }\n"
_SOURCES = (
    *(b"int f( {", b"#error no\n", b'#include "missing.h"\n', b'#include "a.c"\n', b"int x;\n"),
    *(b'#include "/"\n', b"int f(void) { return 1; }\0\0" + bytes(100) + b"(", b"\x7fELF"),
    *(b"int x = " + b"(" * 100_000 + b"1" + b")" * 100_000 + b";", b"#error one\\\n two\n"),
    *(b"#error \x1b[2J\n", b"#error \xff\xfe\n"),
)
_BITCODE = b"BC\xc0\xde" + bytes(range(256))
_ENTRY: dict[str, Any] = {"directory": ".", "file": "a.c", "arguments": ["cc", "-c", "a.c"]}
_ENTRIES: tuple[dict[str, Any], ...] = (
    *({"arguments": words} for words in (
        [], "cc -c a.c", None, ["cc", "-DX=a\0b", "a.c"], ["cc", "-DX=\ud800", "a.c"],
        ["cc", "-fnonsense", "a.c"], ["cc", "-x", "nonsense", "a.c"], ["cc", "-x", "cuda", "a.c"],
        ["cc", "-include", "missing.h", "a.c"], ["cc", "-D" + "x" * 200_000, "a.c"],
        ["cc", "@missing", "a.c"], ["cc", "@a.c", "a.c"], ["cc", "@compile_commands.json", "a.c"],
        ["cc", "@.", "a.c"], ["env", "-S", "A=B"], ["sh", "-c"],
        ["cc", "-include-pch", "x.pch", "a.c"],
    )),
    {"arguments": None, "command": {}},
    *({"arguments": None, "command": command} for command in (
        "cc 'a.c", "sh -c 'sh -c \"sh -c cc\"' ;;& && |", "; && || & |",
    )),
    *({"file": name} for name in ("missing.c", "a\0.c", "a\n.c", "\ud800.c", "a" * 5000 + ".c")),
    {"file": "..", "arguments": ["cc", "-xc", ".."]},
    *({"directory": name} for name in ("nowhere", "a\0b", "a.c")),
)  # fmt: skip


def paths_of_sources(seed: int) -> list[Damage]:
    """Return what may stand where a source should be, under a name that says nothing."""
    return [damage for damage in files(SOURCE) if damage.name != ""]


def sources(seed: int) -> list[Damage]:
    """Return what can be wrong with a file that has the name of a C source."""
    texts = damages({f"{text[:40]!r} {len(text)}": text for text in _SOURCES})
    return [*_perhaps(in_place(SOURCE)), *texts]


def bitcode(seed: int) -> list[Damage]:
    """Return what can be wrong with a file that has the name of bitcode."""
    return [*_perhaps(in_place(_BITCODE)), *flips(_BITCODE, seed, 10, (1,))]


def databases_of_commands(seed: int) -> list[Damage]:
    """Return what can be wrong with a compile_commands.json."""
    changed = of_values(_ENTRIES, lambda entry: encoded([_ENTRY | entry]))
    good = [_ENTRY]
    return _perhaps([*in_place(encoded(good)), *wrong_json(good, 3), *damages(changed)])


def _perhaps(wrong: list[Damage]) -> list[Damage]:
    """Return the same damages, some of which compile."""
    return [damage._replace(status=PERHAPS) for damage in wrong]


def caches(seed: int) -> list[Damage]:
    """Return what can be wrong with the cache of compiles."""
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(scratch) / "a.db"
        with sqlite3.connect(path) as db:
            db.execute("PRAGMA user_version = 3")
            for table in ("entries", "used"):
                db.execute(f"CREATE TABLE {table} (key BLOB PRIMARY KEY, value BLOB)")
                rows = [(bytes([k]) * 32, bytes(200)) for k in range(50)]
                db.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
        db.close()
        good = path.read_bytes()
    return [*files(good), *flips(good, seed, 10)]


def images(seed: int) -> list[Damage]:
    """Return ELF files that are damaged, some of them where it matters, in their headers."""
    good = pathlib.Path("/bin/true").read_bytes()
    # cp would copy for hours what is sparse, and wait for a pipe.
    wrong = [damage for damage in in_place(good) if damage.what[:8] not in ("a sparse", "a pipe w")]
    sections = int.from_bytes(good[40:48], "little")
    for start, end in ((16, 64), (sections, len(good))):
        for what, content, *_ in flips(good[start:end], seed, 12):
            assert isinstance(content, bytes)
            whole = good[:start] + content + good[end:]
            wrong.append(Damage(f"{what} from {start} on", whole, status=PERHAPS))
    return wrong


def policy(description: Mapping[str, Any], arrays: bytes) -> dict[str, Any]:
    """Return a policy's directory; the digest of its arrays is right unless it is named."""
    digest = {"arrays_sha256": hashlib.sha256(arrays).hexdigest()}
    return {"policy.json": encoded({**digest, **description}), _ARRAYS: arrays}


def _of_policy(
    right: Mapping[str, Any],
    arrays: Mapping[str, np.ndarray],
    changes: tuple[Mapping[str, Any], ...],
    fine: str,
) -> list[Damage]:
    """Return what can be wrong with a policy's directory.

    Args:
      right: policy.json without the digest of the arrays.
      arrays: the arrays by name.
      changes: fields of policy.json that do not fit the rest.
      fine: see `wrong_json`.
    """
    packed = arrays_file(arrays)
    digest = hashlib.sha256(packed).hexdigest()
    wrong = damages(of_values((*_UNKNOWN, *changes), lambda new: policy({**right, **new}, packed)))
    wrong += damages((what, policy(right, content)) for what, content in wrong_arrays(arrays))
    for damage in wrong_json({**right, "arrays_sha256": digest}, 1, fine):
        content = {"policy.json": damage.content, _ARRAYS: packed}
        wrong.append(damage._replace(content=content))
    return [*files(b"{}"), *in_directory(policy(right, packed), _ARRAYS), *wrong]


def _full(*shape: int, value: Any = 0.5, dtype: Any = np.float32) -> np.ndarray:
    return np.full(shape, value, dtype)


_ARRAYS = "numpy_policy.npz"
_UNKNOWN: tuple[Mapping[str, Any], ...] = (
    {"format_version": 2}, {"kind": "graph_actor"}, {"kind": "controller"}, {"kind": "oracle"},
)  # fmt: skip
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
OPTIMIZER = policy(_OPTIMIZER, arrays_file(_OPTIMIZER_ARRAYS))
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


def optimizers(seed: int) -> list[Damage]:
    """Return what can be wrong with a policy of learn_to_optimize."""
    changes = ({"kind": "networks"}, {"dimensions": 3}, {"free": 2}, {"activation": "magic"},
               {"hidden_sizes": [10**9]}, {"hidden_sizes": [1] * 100_000})  # fmt: skip
    # JSON's true is Python's 1; the last ones are read by messages and other verbs alone.
    fine = ("format_version is true|(function|bounds|permits|masked|max_place_logit|"
            "state_dependent_std) .*")  # fmt: skip
    return _of_policy(_OPTIMIZER, _OPTIMIZER_ARRAYS, changes, fine)


def decisions(seed: int) -> list[Damage]:
    """Return what can be wrong with a policy of inlining."""
    changes: tuple[dict[str, Any], ...] = (
        *({"kind": "actor"}, {"features": []}, {"num_models": 10**9}, {"num_models": 0}),
        {"features": ['a"; #include "b', "inlining_default"]},
    )
    fine = ("format_version is true|settings .*|(outside_)?margin is a (negative number|fraction)|"
            "(baseline|scope)_feature is (an empty text|a text of 100,000 letters)|"
            "(environment|scope_feature|outside_margin) is missing")  # fmt: skip
    return _of_policy(_DECISIONS, _DECISIONS_ARRAYS, changes, fine)
