"""JSON that is wrong: values of wrong types in each field, and texts that are no JSON."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable, Iterator
from typing import Any

WRONG_VALUES: dict[str, Any] = {
    "null": None,
    "true": True,
    "a negative number": -1,
    "a fraction": 0.5,
    "a huge number": 10**30,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "an empty text": "",
    "a text of half a character": "\ud800",
    "a text of 100,000 letters": "a" * 100_000,
    "an empty list": [],
    "a list of null": [None],
    "a list of lists": [[[]]],
    "an object": {"a": 1},
}

NO_JSON: dict[str, bytes] = {
    "nested 100,000 deep": b"[" * 100_000 + b"]" * 100_000,
    "objects nested 100,000 deep": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "a number of 100,000 digits": b"9" * 100_000,
    "two objects": b"{}{}",
    "a comma too many": b'{"a": 1,}',
    "single quotes": b"{'a': 1}",
    "a list": b"[]",
    "a number": b"7",
    "null": b"null",
    "a text": b'"text"',
    "an empty object": b"{}",
    "bytes that are not UTF-8": b'{"a": "\xff\xfe"}',
    "a field given twice": b'{"format": 1, "format": 2}',
}


def with_wrong_values(
    good: Any, paths: Iterable[tuple[Any, ...]], kinds: Iterable[str] = WRONG_VALUES
) -> Iterator[tuple[str, Any]]:
    """Yield copies of a JSON value in which one field has another value or is missing.

    Args:
      good: the right value.
      paths: keys and indices that lead to the fields.
      kinds: names of WRONG_VALUES.

    Yields:
      What is wrong, and the value.
    """
    kinds = tuple(kinds)
    for path in paths:
        *outer, last = path
        name = ".".join(map(str, path))
        for kind in (*kinds, None):
            bad = copy.deepcopy(good)
            inside = bad
            for key in outer:
                inside = inside[key]
            if kind is None:
                del inside[last]
                yield f"{name} is missing", bad
            else:
                inside[last] = WRONG_VALUES[kind]
                yield f"{name} is {kind}", bad


def encoded(value: Any) -> bytes:
    """Return a JSON value as a file has it; NaN and infinity too."""
    return json.dumps(value).encode()
