"""Functions of a user's own that cannot be minimised."""

from __future__ import annotations

import pathlib
from collections.abc import Callable, Sequence

from tools.benchmarks.bad_inputs.case import Case, MakeFn

_FIRST = "def cost(points):\n    return points[:, 0]\n"
_SOURCES = {
    "raises": "def cost(points):\n    raise RuntimeError('no')",
    "raises an error of two lines": "def cost(points):\n    raise RuntimeError('no\\nno')",
    "returns NaN": "def cost(points):\n    return points[:, 0] * float('nan')",
    "returns infinity": "def cost(points):\n    return points[:, 0] * 0 + float('inf')",
    "returns nothing": "def cost(points):\n    return None",
    "returns one number": "def cost(points):\n    return 1.0",
    "returns the points": "def cost(points):\n    return points",
    "returns text": "def cost(points):\n    return ['a'] * len(points)",
    "returns complex numbers": "def cost(points):\n    return points[:, 0] * 1j",
    "returns objects": "def cost(points):\n    return [None] * len(points)",
    "returns a value too few": "def cost(points):\n    return points[1:, 0]",
    "takes no argument": "def cost():\n    return 1.0",
    "takes two arguments": "def cost(a, b):\n    return a",
    "calls sys.exit": "import sys\ndef cost(points):\n    sys.exit(0)",
    "calls itself without end": "def cost(points):\n    return cost(points)",
    "asks for too much memory": "import numpy\ndef cost(points):\n    numpy.zeros(1 << 45)",
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
_NAMES = {
    "an unknown one": "parabola",
    "a module that is missing": "there_is_no:cost",
    "a path": "mine.py:cost",
    "no module": ":cost",
    "no name": "mine:",
    "two colons": "mine:cost:cost",
    "an expression": "os:system('true')",
    "an empty one": "",
    "a zero byte": "mi\0ne:cost",
    "a line break": "mine\n:cost",
    "a relative module": "..mine:cost",
    "of 10,000 letters": "a" * 10_000,
    "half a character": "\udcff:cost",
}


def functions(words_fn: Callable[[str], Sequence[str]]) -> list[Case]:
    """Make the cases of --function; `words_fn` is (its value) -> the command line."""
    return [
        *(
            Case(f"--function {what}", tuple(words_fn("mine:cost")), _source(text))
            for what, text in _SOURCES.items()
        ),
        *(
            Case(f"--function is {what}", tuple(words_fn(name)), status=(1, 2))
            for what, name in _NAMES.items()
        ),
    ]


def _source(text: str) -> MakeFn:
    def make(directory: pathlib.Path) -> None:
        (directory / "mine.py").write_text(text, encoding="utf-8")

    return make
