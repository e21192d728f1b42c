"""How onnxruntime's CPU provider goes through two operands that it broadcasts, and what that takes.

It computes in runs, within which each operand is either one number or as long as the run. A run
takes some 20 ns beside its arithmetic: no matter where a channel's factor serves thousands of
numbers, and all of the time where the last axis is short. Rows of 8 take 10 times as long as ReLU.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

BROADCASTING = frozenset({"Add", "Sub", "Mul", "Div", "Pow"})
"""Operators of two operands that it computes in this way."""

RUN_MS = 2e-5
"""Milliseconds that a run takes beside its arithmetic."""


def num_runs(first: Sequence[int], second: Sequence[int]) -> int:
    """Return in how many runs two operands of these shapes are computed.

    A run ends before the axis where one operand, which was as long as the result so far, has but 1,
    or the other way round. Axes where both have 1 say nothing, but for one case: a shape of fewer
    axes that has only said 1 counts as long, and the next axis ends the run. Where nothing is
    computed, that is one run.
    """
    if 0 in first or 0 in second:
        return 1
    pairs = list(itertools.zip_longest(reversed(first), reversed(second), fillvalue=1))
    # An operand without axes is compared by one axis of the other.
    num_shared = max(1, min(len(first), len(second)))
    total = math.prod(max(pair) for pair in pairs)
    run, ways = 1, (True, True) if set(pairs[:num_shared]) == {(1, 1)} else None
    for pair in pairs:
        longest = max(pair)
        if longest == 1:
            continue
        own = pair[0] == longest, pair[1] == longest
        if ways is None:
            ways = own
        if own != ways:
            break
        run *= longest
    return total // run
