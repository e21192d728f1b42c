"""Combinations of ranks for the variables of a rule, which are tried in turn.

With random ranks, most products would be of two matrices, and most sums of two tensors of one
shape. Here a vector beside a stack of matrices comes as often as anything else. Combinations to
which the rule has never applied come less often.
"""

from __future__ import annotations

import collections
import itertools
import random
from collections.abc import Iterator, Mapping, Sequence

from environments.tensor_graphs.rules.language.expressions import Apply, Expression, Variable, parts

Ranks = Mapping[str, int]

_MOST_RANK = 4
_MOST_MISSES = 12
_TIRED_SHARE = 0.25
_TURNS_PER_DRAW = 40
_MOST_VARIABLES = 4
_LEAST_SHARE = 0.02
_TURNS_TO_JUDGE = 400

# These inputs need particular ranks and sizes, which `proposals` draws.
_PARTICULAR = {
    *(("Conv", place) for place in (0, 1, 2)),
    *(("ConvTranspose", place) for place in (0, 1, 2)),
    *((op, place) for op in ("Gemm", "Gather") for place in (0, 1)),
    *((f"{kind}Normalization", place) for kind in ("Batch", "Instance") for place in range(5)),
    *((op, 0) for op in ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")),
    *((op, 0) for op in ("DepthToSpace", "SpaceToDepth")),
}


class RankCombinations:
    """The combinations of ranks of one rule."""

    def __init__(self, sources: Sequence[Expression], rng: random.Random) -> None:
        particular = set(_particular_variables(sources))
        mentioned = (part for source in sources for part in parts(source))
        names = dict.fromkeys(part.name for part in mentioned if isinstance(part, Variable))
        self._names = [name for name in names if name not in particular][:_MOST_VARIABLES]
        turns = list(itertools.product(range(_MOST_RANK + 1), repeat=len(self._names)))
        rng.shuffle(turns)
        self._queue = collections.deque(turns)
        self._rng = rng
        self._misses: collections.Counter[tuple[int, ...]] = collections.Counter()
        self._num_turns = self._num_found = 0

    def turns(self) -> Iterator[Ranks]:
        """Yield the next ranks of variables, by name; `note` must be called after each."""
        for _ in range(_TURNS_PER_DRAW):
            if not self._names or self._is_hopeless:
                return
            while self._is_tired(self._queue[0]) and self._rng.random() > _TIRED_SHARE:
                self._queue.rotate(-1)
            yield dict(zip(self._names, self._queue[0], strict=True))

    @property
    def _is_hopeless(self) -> bool:
        enough = self._num_turns >= _TURNS_TO_JUDGE
        return enough and self._num_found < _LEAST_SHARE * self._num_turns

    def _is_tired(self, turn: tuple[int, ...]) -> bool:
        return self._misses[turn] >= _MOST_MISSES

    def note(self, ranks: Ranks, has_applied: bool) -> None:
        """Record whether the rule applied to the combination just tried, and go on to the next."""
        turn = self._queue[0]
        assert turn == tuple(ranks[name] for name in self._names)
        self._queue.rotate(-1)
        self._num_turns += 1
        self._num_found += has_applied
        self._misses[turn] = -_MOST_MISSES if has_applied else self._misses[turn] + 1


def _particular_variables(sources: Sequence[Expression]) -> Iterator[str]:
    for part in (part for source in sources for part in parts(source)):
        if isinstance(part, Apply):
            for place, operand in enumerate(part.inputs):
                if isinstance(operand, Variable) and (part.op, place) in _PARTICULAR:
                    yield operand.name
