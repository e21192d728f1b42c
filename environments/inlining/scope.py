"""The call sites at which a policy may depart from LLVM's own decision."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from environments.inlining.compilers.compilation import DEFAULT_FEATURE


@dataclasses.dataclass(frozen=True)
class Scope:
    """The call sites of a scope feature that LLVM by itself would not inline.

    What LLVM inlines at -Oz makes the caller smaller, by its estimate; to refuse it seldom pays,
    and LLVM names the functions of such a site only after its decision.

    Attributes:
      places: positions in a row of features of the scope feature and of LLVM's own decision; None
        if all call sites are in the scope, also those that LLVM inlines.
    """

    places: tuple[int, int] | None

    @classmethod
    def of(cls, scope_feature: str, names: Sequence[str]) -> Scope:
        """Return the scope of a feature among `names`; "" for all call sites."""
        if not scope_feature:
            return cls(None)
        return cls((names.index(scope_feature), names.index(DEFAULT_FEATURE)))

    def holds(self, features: np.ndarray) -> np.ndarray:
        """Return for each of T rows, int64 [T, F], whether its call site is in the scope."""
        if self.places is None:
            return np.ones(len(features), bool)
        place, default_place = self.places
        inside: np.ndarray = features[:, place] == 1
        return inside & (features[:, default_place] == 0)

    def default_outside(self, row: Sequence[int]) -> int | None:
        """Return LLVM's own decision if the row's call site is out of the scope, else None."""
        if self.places is None:
            return None
        place, default_place = self.places
        default = row[default_place]
        return default if default or row[place] != 1 else None
