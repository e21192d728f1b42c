"""Bad inputs of `tfrl rules`."""

from __future__ import annotations

import pathlib
from typing import Any

from tools.benchmarks.bad_inputs import damage, texts
from tools.benchmarks.bad_inputs.case import PERHAPS, Case, numbers, usage, with_file

_GOOD: dict[str, Any] = {
    "made": {},
    "rules": [
        {
            "name": "truth",
            "source": ["(Sub ?x ?y)"],
            "target": ["(Neg (Sub ?y ?x))"],
            "conditions": ['(in (dtype ?x) (list "float32"))'],
            "restrictions": [],
            "verified_by": "identity testing",
            "may_change_nonfinite": False,
            "may_lose_digits": False,
            "types": ["float"],
            "origin": "written",
            "instances": 10,
        }
    ],
}
_CONTENTS: dict[str, dict[str, Any]] = {
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


def _of_file(words: tuple[str, ...], seed: int) -> list[Case]:
    """Make the cases of a file of rules."""
    good = texts.encoded(_GOOD)

    def case(what: str, content: bytes) -> Case:
        def make(directory: pathlib.Path) -> None:
            (directory / "bad.json").write_bytes(content)

        return Case(f"FILE: {what}", (*words, "bad.json"), make)

    paths: list[tuple[Any, ...]] = [("rules",), ("rules", 0)]
    paths += [("rules", 0, name) for name in ("name", "source", "target", "conditions", "origin")]
    paths += [("rules", 0, name) for name in ("restrictions", "instances", "verified_by")]
    paths += [("rules", 0, "may_change_nonfinite"), ("rules", 0, "may_lose_digits")]
    paths += [("rules", 0, "types"), ("made",)]
    fine = _FINE_VALUES
    return [
        *damage.files("FILE", lambda path: (*words, path), good, seed, without=("an empty name",)),
        *(case(what, content) for what, content in texts.NO_JSON.items()),
        *(
            case(what, texts.encoded(bad))
            for what, bad in texts.with_wrong_values(_GOOD, paths)
            if what not in fine
        ),
        *(
            case(what, texts.encoded({"rules": [{**_GOOD["rules"][0], **changed}]}))
            for what, changed in _CONTENTS.items()
        ),
        case("two rules of one name", texts.encoded({"rules": _GOOD["rules"] * 2})),
    ]


_FINE_VALUES = frozenset(
    {
        *(f"rules.0.{name} is missing" for name in _GOOD["rules"][0]),
        "rules.0.conditions is an empty list",
        "rules.0.restrictions is an empty list",
        "rules.0.may_change_nonfinite is true",
        "rules.0.may_lose_digits is true",
        "rules.0.types is an empty list",
        "rules.0.name is a text of 100,000 letters",
        "rules.0.verified_by is a text of 100,000 letters",
        "rules.0.verified_by is an empty text",
        "rules.0.instances is a huge number",
        "rules is an empty list",
        "rules.0 is missing",
        "made is missing",
        "made is an object",
    }
) - {f"rules.0.{name} is missing" for name in ("name", "source", "target")}
"""What happens to be right."""


def listed(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl rules list`."""
    return [
        *_of_file(("rules", "list"), seed),
        *usage("rules list", ("two files", "a.json b.json"), ("no such option", "--nonsense")),
    ]


def verify(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl rules verify`."""
    return [
        *_of_file(("rules", "verify"), seed),
        *numbers("rules verify", "--instances", 1),
        *numbers("rules verify", "--seed", 0),
        *numbers("rules verify", "--jobs", 1),
    ]


def taken(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl rules import`."""
    good = _taso()

    words = ("rules", "import", "bad.pb", "-o", "out.json")

    def case(what: str, content: bytes) -> Case:
        return Case(what, words, with_file("bad.pb", content))

    def perhaps(what: str, content: bytes) -> Case:
        return Case(what, words, with_file("bad.pb", content), PERHAPS, ("out.json",))

    flips = [
        perhaps(f"FILE.pb: flipped bits {n}", damage.flipped(good, seed, n)) for n in range(30)
    ]
    cuts = [case(f"FILE.pb: the first {n} bytes", good[:n]) for n in range(1, len(good), 2)]
    forged = {
        "a number without end": b"\xff" * 20,
        "a length of 2^60": b"\x0a" + b"\xff" * 8 + b"\x0f",
        "a field of no number": b"\x02\x00",
        "a group": b"\x0b\x0c",
        "a rule that is a number": b"\x08\x01",
        "a rule within rules 10,000 deep": _nested(10_000),
        "64 MiB of zeros": bytes(64 << 20),
    }
    return [
        *damage.files("FILE.pb", lambda path: ("rules", "import", path, "-o", "out.json"), good,
                      seed),
        *(case(f"FILE.pb: {what}", content) for what, content in forged.items()),
        *cuts,
        *flips,
        *damage.outputs("--output", lambda path: ("rules", "import", "good.pb", "-o", path),
                        others_fn=with_file("good.pb", good)),
        *numbers("rules import good.pb", "--instances", 1),
        *usage("rules import", ("no file", ""), ("two files", "a.pb b.pb")),
    ]  # fmt: skip


def generate(seed: int, _: pathlib.Path) -> list[Case]:
    """Make the cases of `tfrl rules generate`."""
    fast = "--vocabulary order --max-size 1 --instances 1 --seeds 1 --without-written"
    good = f"rules generate -o out.json {fast}"

    def reused(what: str, content: bytes) -> Case:
        words = (*good.split(), "--reuse", "bad.json")
        return Case(f"--reuse: {what}", words, with_file("bad.json", content))

    return [
        *damage.files("--reuse", lambda path: (*good.split(), f"--reuse={path}"),
                      texts.encoded(_GOOD), seed),
        *damage.outputs("--output", lambda path: ("rules", "generate", "-o", path, *fast.split())),
        *(reused(what, content) for what, content in texts.NO_JSON.items()),
        *(
            reused(what, texts.encoded({"rules": [{**_GOOD["rules"][0], **changed}]}))
            for what, changed in _CONTENTS.items()
        ),
        *numbers(good, "--seed", 0),
        *numbers(good, "--max-size", 1),
        *numbers(good, "--instances", 1),
        *numbers(good, "--seeds", 1),
        *numbers(good, "--jobs", 1),
        *usage("rules generate", ("no output", "")),
        Case("no such vocabulary", (*good.split(), "--vocabulary", "nonsense")),
        Case("an empty vocabulary", (*good.split(), "--vocabulary=")),
    ]  # fmt: skip


def _field(number: int, content: bytes | int) -> bytes:
    """Return a protobuf field."""
    if isinstance(content, int):
        return bytes([number << 3]) + bytes([content])
    return bytes([number << 3 | 2, len(content)]) + content


def _taso() -> bytes:
    """Return a file of one rule: x + y becomes y + x."""

    def add(*inputs: int) -> bytes:
        return _field(1, 14) + b"".join(_field(2, _tensor(one)) for one in inputs)

    output = b"".join(_field(number, 0) for number in (1, 2, 3, 4))
    return _field(1, _field(1, add(-1, -2)) + _field(2, add(-2, -1)) + _field(3, output))


def _tensor(index: int) -> bytes:
    value, encoded = index + (1 << 64) if index < 0 else index, b""
    while value >= 0x80:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return b"\x08" + encoded + bytes([value]) + _field(2, 0)


def _nested(depth: int) -> bytes:
    content = b""
    for _ in range(depth):
        size, prefix = len(content), b""
        while size >= 0x80:
            prefix += bytes([size & 0x7F | 0x80])
            size >>= 7
        content = b"\x0a" + prefix + bytes([size]) + content
    return content
