"""Choose the sizes at which a model is optimised and measured: the user's, or ones that work.

A size that the user does not give is 1 if it is that of a batch. The others are found by trying,
because only a run tells which sizes fit: padding by reflection fails at size 1, and a reshape may
need a multiple of 32. Usual sizes are tried first, alike for all, then all combinations.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from environments.errors import UsageError
from environments.tensor_graphs.execution.inputs import NoInputsError
from environments.tensor_graphs.execution.sizes import OpenSize, OpenSizes, Sizes, SizesError

_BATCH = re.compile(r"batch|^bs?$", re.IGNORECASE)
# The batch of NCHW; but the number of tokens is called so, too.
_MAYBE_BATCH = re.compile(r"^n$", re.IGNORECASE)
_LENGTH = re.compile(r"len|seq|time|frame|width|height|^[hwtls]$", re.IGNORECASE)
_OF_BATCHES = (1, 2, 4, 8)
_OF_IMAGES = (256, 224, 320, 640, 128, 96, 64, 48, 32, 512, 100, 16, 8)
_OF_TEXT_LINES = (320, *_OF_IMAGES)
_OF_OTHERS = (128, 64, 256, 512, 32, 100, 16, 1024, 10, 8, 16000, 4)
# Windows of audio are often such multiples: 480, 576, 960.
_IN_DESPAIR = (3, 2, 1, *range(32, 1025, 32))
_NUM_SINGLY = 12
_HEIGHT_OF_TEXT = 64
_MOST_CHANNELS = 4
_MOST_SECONDS = 20.0
_MOST_TRIES = 400
MOST_POINTS = 12
"""A model is measured at this many combinations of sizes at most, since each takes seconds."""

Given = Mapping[str, tuple[int, ...]]
"""The numbers that a user gives, by the name of the size as the user writes it."""

WhyNotFn = Callable[[Sizes], str]
"""Runs the model at some sizes; returns why that fails, "" if it does not."""


@dataclasses.dataclass(frozen=True)
class Choice:
    """The sizes at which a model is optimised.

    Attributes:
      points: the combinations of sizes to measure at; the first one leads the search.
      optional: those of the points with half and double of these, which may be left out for want
        of time.
    """

    points: tuple[Sizes, ...]
    chosen: tuple[str, ...] = ()
    optional: tuple[Sizes, ...] = ()


def choose(
    sizes: OpenSizes,
    requested: Given,
    why_not: WhyNotFn,
    model: str,
    *,
    own: Sequence[Sizes] = (),
    hints: Sequence[int] = (),
) -> Choice:
    """Choose the sizes of a model.

    The user may give the numbers of some sizes, and has own inputs of some. Hints are further
    numbers to try, such as the sizes of the model's weights; the model's name is for messages.

    Raises:
      UserError: no open size has a given name, or the model does not run at given sizes.
      NoInputsError: none are given, and none are found at which it runs.
      UsageError: there are more than `MOST_POINTS` combinations.
    """
    numbers_by_name = _by_name(sizes, requested, model)
    if own and not numbers_by_name:
        return Choice(tuple(dict.fromkeys(own)))
    combinations = list(itertools.product(*numbers_by_name.values()))
    if len(combinations) > MOST_POINTS:
        raise UsageError(
            f"expected up to {MOST_POINTS} combinations of sizes, found "
            f"{len(combinations)}; give fewer sizes"
        )
    named = [dict(zip(numbers_by_name, numbers, strict=True)) for numbers in combinations]
    missing = [size for size in sizes.free if size.name not in numbers_by_name]
    first = _complete(sizes, missing, named[0], why_not, model, hints)
    chosen = {size.name: first[size.name] for size in missing}
    points = [sizes.at({**numbers, **chosen}) for numbers in named]
    for point in points[1:]:
        if reason := why_not(point):
            raise _does_not_run(model, point, reason)
    further = [] if own else _half_and_double(sizes, first, missing, why_not)
    optional = tuple(point for point in further if point not in points)
    return Choice(tuple(dict.fromkeys([*points, *optional, *own])), tuple(chosen), optional)


def _by_name(sizes: OpenSizes, requested: Given, model: str) -> dict[str, tuple[int, ...]]:
    """Return the given numbers by `OpenSize.name`; those of one place win over those of a name."""
    named = [(sizes.named(name, model), numbers) for name, numbers in requested.items()]
    numbers_by_name: dict[str, tuple[int, ...]] = {}
    for sizes_of_name, numbers in sorted(named, key=lambda pair: len(pair[0])):
        for size in sizes_of_name:
            numbers_by_name.setdefault(size.name, numbers)
    return numbers_by_name


def _complete(
    sizes: OpenSizes,
    missing: Sequence[OpenSize],
    numbers: Mapping[str, int],
    why_not: WhyNotFn,
    model: str,
    hints: Sequence[int],
) -> dict[str, int]:
    """Add numbers for the missing sizes, so that the model runs."""
    if not sizes.all:
        return {}
    began_s, reason = time.monotonic(), ""
    for tries, further in enumerate(_combinations(sizes, missing, hints)):
        complete = {**numbers, **further}
        reason = why_not(sizes.at(complete))
        if not reason:
            return complete
        if not missing:
            raise _does_not_run(model, sizes.at(complete), reason)
        if tries >= _MOST_TRIES or time.monotonic() - began_s > _MOST_SECONDS:
            break
    names = ", ".join(size.name for size in missing)
    error = SizesError if numbers else NoInputsError
    beside = " beside " + ", ".join(f"{name}={size}" for name, size in numbers.items())
    raise error(
        f"expected sizes at which the model runs{beside if numbers else ''}, found none by trying "
        f"({reason}); give {names}, or inputs"
    )


def _combinations(
    sizes: OpenSizes, missing: Sequence[OpenSize], hints: Sequence[int]
) -> Iterator[dict[str, int]]:
    """Yield numbers for the missing sizes, the likeliest first."""
    batches = [size.name for size in missing if is_batch(sizes, size)]
    others = [size for size in missing if size.name not in batches]
    names = [size.name for size in others]
    lists = [tuple(dict.fromkeys((*_usual(sizes, size), *hints, *_IN_DESPAIR))) for size in others]
    for batch in _OF_BATCHES if batches else (1,):
        for numbers in dict.fromkeys(itertools.chain(_singly(lists), _diagonally(lists))):
            yield {**dict.fromkeys(batches, batch), **dict(zip(names, numbers, strict=True))}


def _singly(lists: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Yield the first number of each list, then these with one of them varied."""
    firsts = tuple(numbers[0] for numbers in lists)
    yield firsts
    for place, numbers in enumerate(lists):
        for number in numbers[1:_NUM_SINGLY]:
            yield (*firsts[:place], number, *firsts[place + 1 :])


def _diagonally(lists: Sequence[Sequence[int]]) -> Iterator[tuple[int, ...]]:
    """Yield combinations of numbers, those far behind in a list last."""
    for end in range(max(map(len, lists), default=0)):
        yield from itertools.product(*(numbers[: end + 1] for numbers in lists))


def is_batch(sizes: OpenSizes, size: OpenSize) -> bool:
    """Return whether a size is that of a batch, by its name or as the first of several axes."""
    if _BATCH.search(size.own):
        return True
    if _MAYBE_BATCH.search(size.own):
        return any(axis == 0 for _, axis in size.places)
    return not _LENGTH.search(size.own) and all(
        axis == 0 and sizes.rank(name) > 1 for name, axis in size.places
    )


def _usual(sizes: OpenSizes, size: OpenSize) -> tuple[int, ...]:
    name, axis = size.places[0]
    if sizes.rank(name) != 4 or axis == 0:
        return _OF_OTHERS
    first, last = sizes.fixed((name, 1)), sizes.fixed((name, 3))
    is_last = first is None and last is not None and last <= _MOST_CHANNELS
    spatial = (1, 2) if is_last else (2, 3)
    if axis == spatial[1] and (sizes.fixed((name, spatial[0])) or 1 << 20) <= _HEIGHT_OF_TEXT:
        return _OF_TEXT_LINES
    return _OF_IMAGES if axis in spatial else _OF_OTHERS


def _half_and_double(
    sizes: OpenSizes, first: Mapping[str, int], missing: Sequence[OpenSize], why_not: WhyNotFn
) -> list[Sizes]:
    """Return half and double the chosen sizes: of all that were missing, or of as many as run."""
    batches = [size for size in missing if is_batch(sizes, size)]
    others = [size for size in missing if size not in batches]
    points = []
    for half_or_double in (lambda size: max(1, size // 2), lambda size: 2 * size):
        for changed in (missing, others, *([size] for size in others), batches):
            numbers = {size.name: half_or_double(first[size.name]) for size in changed}
            point = sizes.at({**first, **numbers})
            if point != sizes.at(first) and not why_not(point):
                points.append(point)
                break
    return points


def _does_not_run(model: str, sizes: Sizes, reason: str) -> SizesError:
    return SizesError(f"{model} does not run at {sizes} ({reason}); give other sizes, or inputs")
