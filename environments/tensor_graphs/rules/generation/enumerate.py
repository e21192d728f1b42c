"""Enumerate all small expressions over an operator vocabulary, and find which ones are equal.

Expressions are built from the inside out. An expression that equals an earlier one in all worlds is
a candidate for a rule. No larger expression is built from it, because the same larger expressions
built from the earlier one are equal to those.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Iterator, Sequence

from environments.tensor_graphs.graph.nodes import Ref
from environments.tensor_graphs.operators import table
from environments.tensor_graphs.rules.generation.fingerprint import World
from environments.tensor_graphs.rules.language.expressions import Apply, Expression, Term

_LEAST_WORLDS = 3
_MOST_PARTIAL = 3


@dataclasses.dataclass(frozen=True)
class Move:
    """An operator with attributes, from which expressions are built.

    Attributes:
      op: name of the operator.
      arity: number of inputs.
      attributes: (name, term) pairs.
      outputs: number of outputs.
      excluded: leaves that are not its first input.
      is_distinct: whether its two inputs differ.
    """

    op: str
    arity: int
    attributes: tuple[tuple[str, Term], ...] = ()
    outputs: int = 1
    excluded: tuple[Expression, ...] = ()
    is_distinct: bool = False


@dataclasses.dataclass(frozen=True)
class Entry:
    """An expression and its values in the worlds.

    Attributes:
      expression: the expression.
      size: number of operators in the expression; repeated ones count each time.
      places: the place of its value in each world; None where it has no value.
      prints: the fingerprint of its value in each world; None where it has no value.
    """

    expression: Expression
    size: int
    places: tuple[Ref | None, ...]
    prints: tuple[int | None, ...]


@dataclasses.dataclass(frozen=True)
class Candidate:
    """Two expressions that may be equal.

    Attributes:
      larger: the new expression; it has as many operators as `smaller`, or more.
      smaller: the expression that was built earlier.
      always: whether the two are equal in every world in which both have values.
    """

    larger: Entry
    smaller: Entry
    always: bool


class Enumeration:
    """All expressions with up to a number of operators.

    Attributes:
      candidates: pairs of expressions that may be equal.
      num_expressions: number of expressions that have values in enough worlds.
      num_distinct: number of those that equal no earlier one.
    """

    def __init__(
        self,
        worlds: Sequence[World],
        leaves: Sequence[Expression],
        moves: Sequence[Move],
        max_size: int,
    ) -> None:
        self.candidates: list[Candidate] = []
        self.num_expressions = 0
        self._worlds = worlds
        self._blocks: list[list[Entry]] = [[]]
        self._known: dict[tuple[int | None, ...], Entry] = {}
        self._by_print: list[dict[int, list[Entry]]] = [{} for _ in worlds]
        for leaf in leaves:
            self._take(leaf, 0, tuple(world.place(leaf) for world in worlds))
        for size in range(1, max_size + 1):
            self._blocks.append([])
            for move in moves:
                if size < max_size:
                    self._build(move, size)
                else:
                    self._build_largest(move, size)

    @property
    def num_distinct(self) -> int:
        """See the class."""
        return len(self._known)

    def _build(self, move: Move, size: int) -> None:
        for inputs in self._inputs(move, size):
            for output in range(move.outputs):
                places = tuple(
                    world.apply(
                        move.op, [entry.places[number] for entry in inputs], move.attributes, output
                    )
                    for number, world in enumerate(self._worlds)
                )
                operands = tuple(entry.expression for entry in inputs)
                self._take(Apply(move.op, operands, move.attributes, output), size, places)

    def _build_largest(self, move: Move, size: int) -> None:
        """Build expressions from which no larger ones are built; see `Application`."""
        applications = [
            world.application(move.op, move.attributes, move.outputs) for world in self._worlds
        ]
        nowhere = (None,) * len(self._worlds)
        nothing = (None,) * move.outputs
        for inputs in self._inputs(move, size):
            prints = [
                nothing
                if application is None or None in places
                else application.fingerprints(places)
                for application, *places in zip(
                    applications, *[entry.places for entry in inputs], strict=True
                )
            ]
            operands = tuple([entry.expression for entry in inputs])
            for output, of_output in enumerate(zip(*prints, strict=True)):
                if _num_values(of_output) >= _LEAST_WORLDS:
                    expression = Apply(move.op, operands, move.attributes, output)
                    self._compare(Entry(expression, size, nowhere, of_output))

    def _inputs(self, move: Move, size: int) -> Iterator[tuple[Entry, ...]]:
        if move.arity == 1:
            for entry in tuple(self._blocks[size - 1]):
                if entry.expression not in move.excluded:
                    yield (entry,)
            return
        is_commutative = table.OPERATORS[move.op].commutative
        for first in range(size):
            second = size - 1 - first
            if is_commutative and second > first:
                continue
            for i, left in enumerate(tuple(self._blocks[first])):
                if left.expression in move.excluded:
                    continue
                for j, right in enumerate(tuple(self._blocks[second])):
                    if is_commutative and first == second and j > i:
                        break
                    if left is not right or not move.is_distinct:
                        yield left, right

    def _take(self, expression: Expression, size: int, places: tuple[Ref | None, ...]) -> None:
        prints = tuple(
            world.fingerprint(place) for world, place in zip(self._worlds, places, strict=True)
        )
        if _num_values(prints) >= _LEAST_WORLDS:
            self._compare(Entry(expression, size, places, prints))

    def _compare(self, entry: Entry) -> None:
        """Compare an expression with all before it, and add it to them unless it says the same."""
        prints = entry.prints
        self.num_expressions += 1
        twin = self._known.get(prints)
        if twin is not None:
            self.candidates.append(Candidate(entry, twin, True))
            return
        is_redundant = False
        for rival, always in self._partly_equal(entry):
            self.candidates.append(Candidate(entry, rival, always))
            pairs = zip(prints, rival.prints, strict=True)
            is_redundant |= all(new is None or new == old for new, old in pairs)
        if is_redundant:
            return
        self._known[prints] = entry
        self._blocks[entry.size].append(entry)
        for by_print, fingerprint in zip(self._by_print, prints, strict=True):
            if fingerprint is not None:
                by_print.setdefault(fingerprint, []).append(entry)

    def _partly_equal(self, entry: Entry) -> list[tuple[Entry, bool]]:
        """Return expressions equal to an entry's in some worlds, those with the most worlds first.

        Each comes with whether the two are equal in every world in which both have values.
        """
        counts: collections.Counter[int] = collections.Counter()
        entries: dict[int, Entry] = {}
        for by_print, fingerprint in zip(self._by_print, entry.prints, strict=True):
            for rival in by_print.get(fingerprint, ()) if fingerprint is not None else ():
                counts[id(rival)] += 1
                entries[id(rival)] = rival
        result = []
        for key, count in counts.most_common(_MOST_PARTIAL):
            if count >= _LEAST_WORLDS:
                rival = entries[key]
                both = sum(
                    left is not None and right is not None
                    for left, right in zip(entry.prints, rival.prints, strict=True)
                )
                result.append((rival, both == count))
        return result


def _num_values(prints: Sequence[int | None]) -> int:
    return len(prints) - prints.count(None)
