"""What can be wrong with rules, corpora, functions, programs and sources."""

from __future__ import annotations

import os
import pathlib
import sqlite3
import tempfile
from collections.abc import Iterator
from typing import Any

from tools.studies.bad_inputs.damage import (
    EITHER,
    Damage,
    MakeFn,
    any_file,
    contents,
    encoded,
    flips,
    nothing,
    writer,
    wrong_json,
)

RULES: dict[str, Any] = {
    "made": {},
    "rules": [
        {
            "name": "truth", "source": ["(Sub ?x ?y)"], "target": ["(Neg (Sub ?y ?x))"],
            "conditions": ['(in (dtype ?x) (list "float32"))'], "restrictions": [],
            "verified_by": "identity testing", "may_change_nonfinite": False,
            "may_lose_digits": False, "types": ["float"], "origin": "written", "instances": 10,
        }
    ],
}  # fmt: skip
_RULES: dict[str, dict[str, Any]] = {
    "no source": {"source": []},
    "two sources, one target": {"source": ["(Sub ?x ?y)", "(Neg ?x)"]},
    "brackets that do not close": {"source": ["(Sub ?x ?y"]},
    "brackets that do not open": {"source": ["(Sub ?x ?y))"]},
    "no operator": {"source": ["?x"]},
    "an unbound variable": {"target": ["(Neg (Sub ?y ?z))"]},
    "an unbound attribute": {"target": ["(Softmax ?x :axis $axis)"]},
    "a condition that is no call": {"conditions": ["true"]},
    "a function that is not known": {"conditions": ["(nonsense ?x)"]},
    "a function with too few arguments": {"conditions": ["(in (dtype ?x))"]},
    "a tensor as an argument of numbers": {"conditions": ["(= (+ ?x 1) 2)"]},
    "brackets 50,000 deep": {"source": ["(Neg " * 50_000 + "?x" + ")" * 50_000]},
    "a condition 50,000 deep": {"conditions": ["(not " * 50_000 + "true" + ")" * 50_000]},
    "an empty text": {"source": [""]},
    "a zero byte": {"source": ["(Sub ?x\0 ?y)"]},
    "a field that is not known": {"colour": "red"},
    "another origin": {"origin": "stolen"},
    "another digest": {"sha256": "0" * 64},
    "a digest that is no text": {"sha256": 7},
    "a text that is not closed": {"conditions": ['(in (dtype ?x) (list "float32))']},
    "a source of two expressions in one text": {"source": ["(Sub ?x ?y) (Sub ?y ?x)"]},
    "sources that share no variable": {
        "source": ["(Sub ?x ?y)", "(Neg ?z)"], "target": ["(Neg ?x)", "(Neg ?z)"],
    },
}  # fmt: skip
_NEEDED = ("name", "source", "target")
_FINE_RULES = {
    *(f"rules.0.{name} is missing" for name in RULES["rules"][0] if name not in _NEEDED),
    *(f"rules.0.{name} is an empty list" for name in ("conditions", "restrictions", "types")),
    *(f"rules.0.{name} is true" for name in ("may_change_nonfinite", "may_lose_digits")),
    *(f"rules.0.{name} is a text of 100,000 letters" for name in ("name", "verified_by")),
    *("rules.0.verified_by is an empty text", "rules.0.instances is a huge number"),
    *("rules is an empty list", "rules.0 is missing", "made is missing", "made is an object"),
}


def rules(seed: int) -> list[Damage]:
    """Return what can be wrong with a file of rules."""
    (rule,) = RULES["rules"]
    fields = [("made",), ("rules",), ("rules", 0), *(("rules", 0, name) for name in rule)]
    changed = {what: {"rules": [{**rule, **fields}]} for what, fields in _RULES.items()}
    changed["two rules of one name"] = {"rules": [rule, rule]}
    return [
        *any_file(encoded(RULES), seed),
        *contents(wrong_json(RULES, fields, _FINE_RULES)),
        *contents((what, encoded(value)) for what, value in changed.items()),
    ]


def _number(value: int) -> bytes:
    """Return a whole number as protobuf writes it."""
    text = b""
    while value >= 0x80:
        text += bytes([value & 0x7F | 0x80])
        value >>= 7
    return text + bytes([value])


def _field(number: int, content: bytes | int) -> bytes:
    """Return a protobuf field."""
    if isinstance(content, int):
        return bytes([number << 3]) + bytes([content])
    return bytes([number << 3 | 2]) + _number(len(content)) + content


def taso_file() -> bytes:
    """Return a file of one of TASO's rules: x + y becomes y + x."""

    def add(*inputs: int) -> bytes:
        tensors = (b"\x08" + _number(index + (1 << 64)) + _field(2, 0) for index in inputs)
        return _field(1, 14) + b"".join(_field(2, tensor) for tensor in tensors)

    output = b"".join(_field(number, 0) for number in (1, 2, 3, 4))
    return _field(1, _field(1, add(-1, -2)) + _field(2, add(-2, -1)) + _field(3, output))


def taso(seed: int) -> list[Damage]:
    """Return what can be wrong with a file of TASO's rules."""
    good, nested = taso_file(), b""
    for _ in range(10_000):
        nested = _field(1, nested)
    forged = {
        "a number without end": b"\xff" * 20,
        "a length of 2^60": b"\x0a" + b"\xff" * 8 + b"\x0f",
        "a field of no number": b"\x02\x00",
        "a group": b"\x0b\x0c",
        "a rule that is a number": b"\x08\x01",
        "a rule within rules 10,000 deep": nested,
        "64 MiB of zeros": bytes(64 << 20),
        **{f"the first {n} bytes": good[:n] for n in range(1, len(good), 2)},
    }
    return [*any_file(good, seed), *contents(forged.items()), *flips(good, seed, 30)]


_CORPUS: dict[str, Any] = {
    "modules": ["p/a.c", "p/b.c"], "has_thinlto": False,
    "global_command_override": ["<UNSPECIFIED>"],
    "tfrl": {"modules": {"p/a.c": {"language": "c"}}},
}  # fmt: skip
_FINE_CORPUS = {
    *("has_thinlto is missing", "modules.0 is missing", "global_command_override is missing"),
    "global_command_override is an empty list",
}
_MODULE_NAMES = {
    "leads out": "../a", "leads out in its middle": "p/../../a", "is absolute": "/etc/passwd",
    "is empty": "", "is a dot": ".", "has an empty part": "p//a.c",
    "has a line break": "p/a\nb.c", "has a zero byte": "p/a\0b.c",
    "has an escape": "p/\x1b[2Ja.c", "has a backslash": "..\\a.c", "is too long": "p/" + "a" * 5000,
    "has half a character": "p/\ud800.c", "is that of a missing file": "p/missing.c",
}  # fmt: skip


def corpora(seed: int) -> Iterator[Damage]:
    """Yield what can be wrong with the directory of a corpus."""
    good = encoded(_CORPUS)

    def corpus(description: bytes, replaced: str = "", make_fn: MakeFn = nothing) -> MakeFn:
        def make(directory: pathlib.Path) -> None:
            (directory / "p").mkdir(parents=True)
            for name in ("a.c", "b.c"):
                (directory / "p" / f"{name}.bc").write_bytes(b"BC\xc0\xde")
            (directory / "corpus_description.json").write_bytes(description)
            if replaced:
                (directory / replaced).unlink(missing_ok=True)
                make_fn(directory / replaced)

        return make

    yield from any_file(b"{}", seed, without=("an empty name",))
    fields = [("modules",), ("modules", 0), ("has_thinlto",), ("global_command_override",)]
    descriptions = dict(wrong_json(_CORPUS, fields, _FINE_CORPUS))
    for what, name in _MODULE_NAMES.items():
        descriptions[f"a module's name {what}"] = encoded({**_CORPUS, "modules": [name]})
    descriptions["ThinLTO without its indices"] = encoded({**_CORPUS, "has_thinlto": True})
    for what, description in descriptions.items():
        yield Damage(f"description: {what}", corpus(description))
    for damage in any_file(good, seed):
        if damage.name == "given":
            replaced = corpus(good, "corpus_description.json", damage.make_fn)
            yield Damage(f"description is {damage.what}", replaced)
    unreadable: dict[str, MakeFn] = {
        "a directory": pathlib.Path.mkdir,
        "a pipe": os.mkfifo,
        "an endless device": lambda path: path.symlink_to("/dev/zero"),
    }
    for what, make_fn in unreadable.items():
        yield Damage(f"options are {what}", corpus(good, "p/a.c.cmd", make_fn))
    yield Damage("options are not UTF-8", corpus(good, "p/a.c.cmd", writer(b"-cc1\0\xff")))
    unreadable["a link to nothing"] = lambda path: path.symlink_to("no")
    unreadable["a link to itself"] = lambda path: path.symlink_to(path.name)
    for what, make_fn in unreadable.items():
        yield Damage(f"a module is {what}", corpus(good, "p/a.c.bc", make_fn))


_FIRST = "def cost(points):\n    return points[:, 0]\n"
_FUNCTIONS = {
    "raises": "def cost(points):\n    raise RuntimeError('no')",
    "raises an error of two lines": "def cost(points):\n    raise RuntimeError('no\\nno')",
    "calls sys.exit": "import sys\ndef cost(points):\n    sys.exit(0)",
    "asks for too much memory": "import numpy\ndef cost(points):\n    numpy.zeros(1 << 45)",
    **{
        what: f"def cost(points):\n    return {value}"
        for what, value in {
            "returns NaN": "points[:, 0] * float('nan')",
            "returns infinity": "points[:, 0] * 0 + float('inf')",
            "returns nothing": "None",
            "returns one number": "1.0",
            "returns the points": "points",
            "returns text": "['a'] * len(points)",
            "returns complex numbers": "points[:, 0] * 1j",
            "returns objects": "[None] * len(points)",
            "returns a value too few": "points[1:, 0]",
            "calls itself without end": "cost(points)",
        }.items()
    },
    "takes no argument": "def cost():\n    return 1.0",
    "takes two arguments": "def cost(a, b):\n    return a",
    "is no function": "cost = 7",
    "is a module's text": "cost = 'sphere'",
    "is in a module that raises": "raise RuntimeError('no')",
    "is in a module that exits": "import sys\nsys.exit(0)",
    "is in a module that is no Python": "def cost(",
    "is in a module with a zero byte": "cost = 1\0",
    "is in a module of a missing one": "import there_is_no_such_module",
    "is missing": "def price(points):\n    return points[:, 0]",
    "has bounds of text": f"{_FIRST}cost.bounds = 'ab'",
    "has bounds that are reversed": f"{_FIRST}cost.bounds = 1, -1",
    "has bounds of NaN": f"{_FIRST}cost.bounds = float('nan'), 1",
    "has one bound": f"{_FIRST}cost.bounds = (1,)",
    "has bounds that raise": "class Cost:\n    def __call__(self, points):\n        return 1\n"
    "    @property\n    def bounds(self):\n        raise RuntimeError('no')\ncost = Cost()",
}  # fmt: skip
_FUNCTION_NAMES = {
    "an unknown one": "parabola", "a module that is missing": "there_is_no:cost",
    "a path": "mine.py:cost", "no module": ":cost", "no name": "mine:",
    "two colons": "mine:cost:cost", "an expression": "os:system('true')", "an empty one": "",
    "a zero byte": "mi\0ne:cost", "a line break": "mine\n:cost", "a relative module": "..mine:cost",
    "of 10,000 letters": "a" * 10_000, "half a character": "\udcff:cost",
}  # fmt: skip


def functions(_: int) -> Iterator[Damage]:
    """Yield functions of a user's own, in mine.py, that cannot be minimised, and names of none."""
    for what, text in _FUNCTIONS.items():
        yield Damage(what, _module(text), "mine:cost")
    for what, name in _FUNCTION_NAMES.items():
        yield Damage(f"is {what}", nothing, name, EITHER)


def _module(text: str) -> MakeFn:
    return lambda path: path.with_name("mine.py").write_text(text)


def script(text: str) -> MakeFn:
    """Return what makes a shell script."""
    return _executable(f"#!/bin/sh\n{text}\n")


def _executable(text: str) -> MakeFn:
    def make(path: pathlib.Path) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    return make


PROGRAM = "./given"


def no_programs(_: int) -> list[Damage]:
    """Return what cannot be started."""
    return [
        Damage("missing", nothing, "no-such-program"),
        Damage("empty", nothing, ""),
        Damage("a zero byte", nothing, "a\0b"),
        Damage("too long a name", nothing, "n" * 5000),
        Damage("half a character", nothing, "\udcff"),
        Damage("a directory", pathlib.Path.mkdir, PROGRAM),
        Damage("a pipe", os.mkfifo, PROGRAM),
        Damage("a file that is no program", writer(b"text"), PROGRAM),
        Damage("a program of another format", _executable("\x7fELF"), PROGRAM),
        Damage("a script without its interpreter", _executable("#!/no/interpreter\n"), PROGRAM),
        Damage("a link to nothing", lambda path: path.symlink_to("nowhere"), PROGRAM),
        Damage("a link to itself", lambda path: path.symlink_to(path.name), PROGRAM),
    ]


def compilers(seed: int) -> list[Damage]:
    """Return programs that are no clang, or none that can be used."""
    says = "echo clang version"
    scripts = {
        "a program that fails": "echo no >&2\nexit 1",
        "a program that is killed": "kill -SEGV $$",
        "a program that says it is old": f"{says} 3.8.0",
        "a program that says it is from far away": f"{says} 9999.0.0",
        "a version of 5000 digits": f"{says} {'9' * 5000}",
        "a version of 5000 digits and one": f"{says} {'9' * 5000}.1",
        "a version that is no number": f"{says} x.y",
        "a program that is not UTF-8": "printf 'clang version \\377\\376'",
        "a program that says it is a clang": f"{says} 22.1.0",
        "a program that says it is another clang": f"{says} 19.1.0",
        "a program that says it is no clang": "echo gcc version 12",
        "a program that says nothing": "exit 0",
    }
    return [
        *no_programs(seed),
        Damage("no compiler", nothing, "/bin/true"),
        Damage("another compiler", nothing, "gcc"),
        *(Damage(what, script(text), PROGRAM) for what, text in scripts.items()),
    ]


def database(seed: int) -> list[Damage]:
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
    return [*any_file(good, seed), *flips(good, seed, 10)]


def image(seed: int) -> list[Damage]:
    """Return ELF files that are damaged, some of them where it matters, in their headers."""
    good = pathlib.Path("/bin/true").read_bytes()
    sections = int.from_bytes(good[40:48], "little")
    damages = [damage for damage in any_file(good, seed) if "pipe" not in damage.what + damage.name]
    # cp would copy for hours what is sparse, and wait for a pipe.
    damages = [
        damage for damage in damages if damage.name == "given" and "sparse" not in damage.what
    ]
    for part, (start, end) in {"header": (16, 64), "sections": (sections, len(good))}.items():
        for flip in flips(good[start:end], seed, 12):
            make_fn = _spliced(good[:start], flip.make_fn, good[end:])
            damages.append(Damage(f"{flip.what} in its {part}", make_fn))
    return damages


def _spliced(before: bytes, make_fn: MakeFn, after: bytes) -> MakeFn:
    def make(path: pathlib.Path) -> None:
        make_fn(path)
        path.write_bytes(before + path.read_bytes() + after)

    return make
