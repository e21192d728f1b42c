"""Random choices of sizes, shapes and attributes.

Sizes come from a small palette, so that they are often equal by chance, and often not. `proposals`
makes the choices that each kind of operator needs.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Sequence
from typing import Any

Shape = tuple[int, ...]

MAX_RANK = 5
_PALETTES = (
    (2,),
    (3,),
    (1,),
    (1, 2),
    (1, 2),
    (1, 1, 2),
    (1, 3),
    (2, 3),
    (2, 4),
    (2, 3, 5),
    (1, 2, 4),
    (4, 6),
)
_NUMBERS = (0.5, 2.0, 0.25, -1.0, 4.0, -0.5, 1.0, 8.0, 1.5, 3.0, 0.0)


class ImpossibleError(Exception):
    """The choices made so far leave no choice that fits."""


def check(is_right: bool) -> None:
    """Give up what was drawn, by an ImpossibleError, if a check fails."""
    if not is_right:
        raise ImpossibleError


class Draw:
    """The choices for one instance of a rule.

    Args:
      usual_rank: the rank of most tensors; random by default.
      is_small: whether all sizes are 1 or one other number, and choices seldom repeat earlier ones.

    Attributes:
      is_coherent: whether several uses of one operator mostly get the same attributes.
      vectors: probability of drawing a vector where matrices are usual.
      stacks: probability of drawing a stack of matrices without regard to the other operand.
    """

    def __init__(
        self, rng: random.Random, usual_rank: int | None = None, is_small: bool = False
    ) -> None:
        self.rng = rng
        # The probabilities themselves are drawn, so that each rare case is frequent in some
        # instances: wrong rules often fail in rare cases only. If all sizes are equal and ranks
        # differ, types fit together by chance.
        is_even = is_small or rng.random() < 0.3
        self.is_coherent = rng.random() < (0.2 if is_even else 0.7)
        self.vectors = 0.35 if is_even else rng.choice((0.0, 0.1, 0.6))
        self.stacks = 0.6 if is_even else rng.choice((0.05, 0.1, 0.6))
        self._constancy = 0.3 if is_even else rng.choice((0.5, 0.9, 0.95))
        self._sameness = rng.choice((0.1, 0.5, 0.9))
        self._palette: tuple[int, ...] = rng.choice(((2,), (3,)) if is_even else _PALETTES)
        if is_small:
            self._palette = (*(rng.choice((2, 3, 3)) * self._palette), 1)
        self._remembered: dict[Any, Any] = {}
        self._usual_rank = rng.choice((1, 2, 2, 3, 3, 4, 4)) if usual_rank is None else usual_rank

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < probability

    def size(self) -> int:
        """Draw the size of an axis."""
        return self.rng.choice(self._palette)

    def shape(self, rank: int | None = None, least: int = 0) -> Shape:
        """Draw a shape of the given rank; without one, of a random rank of at least `least`."""
        if rank is None:
            rank = (
                self._usual_rank if self.chance(self._constancy) else self.rng.randint(0, MAX_RANK)
            )
            rank = max(least, rank)
        return self.like_before(("shape", rank), lambda: tuple(self.size() for _ in range(rank)))

    def number(self) -> float:
        """Draw a number whose products and quotients are mostly exact."""
        return self.rng.choice(_NUMBERS)

    def like_before(self, key: Any, choose: Callable[[], Any]) -> Any:
        """Make a choice; if draws are coherent, mostly repeat the last one under the same key."""
        if key in self._remembered and self.is_coherent and self.chance(0.8):
            return self._remembered[key]
        self._remembered[key] = choose()
        return self._remembered[key]

    def partner(self, shape: Shape) -> Shape:
        """Draw a shape that broadcasts with another one."""
        if self.chance(self._sameness):
            return shape
        if self.chance(0.2):
            return ()
        sizes = list(shape[self.rng.randint(0, len(shape)) if self.chance(0.5) else 0 :])
        for place, size in enumerate(sizes):
            if self.chance(0.4):
                sizes[place] = self.size() if size == 1 else 1
        while len(sizes) < MAX_RANK and self.chance(0.15):
            sizes.insert(0, self.size())
        return tuple(sizes)


@dataclasses.dataclass
class Use:
    """One use of an operator; a proposal completes its shapes and attributes.

    Attributes:
      shapes: shapes of the inputs; None where not known.
      is_given: for each input, whether the use has it.
      attributes: known values of attributes, by name.
      lengths: known lengths of attributes whose values are not known, by name.
      elements: known elements of attributes whose values are not known, by name and index.
      num_outputs: smallest number of outputs.
    """

    op: str
    draw: Draw
    shapes: list[Shape | None]
    is_given: Sequence[bool]
    attributes: dict[str, Any]
    lengths: dict[str, int]
    elements: dict[str, dict[int, Any]]
    num_outputs: int = 1

    def propose(self, place: int, shape: Sequence[int]) -> Shape:
        """Give an input a shape unless it has one; return its shape then."""
        if place >= len(self.shapes) or not self.is_given[place]:
            return tuple(shape)
        drawn = self.shapes[place]
        if drawn is None:
            drawn = self.shapes[place] = tuple(shape)
        return drawn

    def choose(self, name: str, choose: Callable[[], Any], alike: bool = True) -> Any:
        """Give an attribute a value unless it has one; return its value then.

        If `alike`, uses of the same operator mostly get the same value.
        """
        if name not in self.attributes:
            key = (self.op, name)
            self.attributes[name] = self.draw.like_before(key, choose) if alike else choose()
        return self.attributes[name]

    def of_rank(self, place: int, rank: int | None = None, least: int = 1) -> Shape:
        """Return the shape of an input; draw one if it is not known."""
        return self.propose(place, self.draw.shape(rank, least))


def any_axis(draw: Draw, rank: int) -> int:
    """Draw an axis of a tensor of this rank, counted from the front.

    Raises:
      ImpossibleError: the rank is 0.
    """
    check(rank > 0)
    return draw.rng.randrange(rank)
