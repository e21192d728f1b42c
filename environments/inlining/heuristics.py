"""The baselines: LLVM's own heuristic and other policies that are not learned.

A policy, learned or not, is an object with the method `begin`. For one compile of one module,
`begin` returns a `Decider`, which turns feature vectors into decisions. Deciders take several rows
at once, so that the store can follow a recorded compile without compiling (`collection/store.py`).
A decision may depend only on the row's features and on its place in the compile.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from environments.errors import UserError

Decider = Callable[[np.ndarray, int], np.ndarray]
"""(features int64 [N, F], number of the first row's call site) -> decisions int8 [N]."""

DecideRow = Callable[[Sequence[int], int], int]
"""(features of one row, F values; number of its call site) -> decision."""

HEURISTICS = ("default", "always", "never", "random")


class Policy(Protocol):
    """Decides call sites.

    Attributes:
      name: name for tables and messages.
      fingerprint: text that differs between policies that decide differently; part of the key of
        caches.
    """

    name: str
    fingerprint: str

    def begin(self, module_name: str, names: tuple[str, ...]) -> Decider:
        """Return a decider for one compile of a module; `names` are those of the feature vector."""


class Default:
    """LLVM's own decision at -Oz; `collection.tasks.CompilePlainly` gives the sizes of -Oz."""

    name = fingerprint = "default"

    def begin(self, module_name: str, names: tuple[str, ...]) -> Decider:
        """See `Policy`."""
        return _Column(int(feature_columns(names, ("inlining_default",))[0]))


class _Column:
    def __init__(self, column: int) -> None:
        self._column = column

    def __call__(self, features: np.ndarray, _: int) -> np.ndarray:
        return features[:, self._column].astype(np.int8)

    def decide_row(self, row: Sequence[int], _: int) -> int:
        """Return the decision for a single row."""
        return row[self._column]


class Constant:
    """The same decision everywhere: `always` or `never`."""

    def __init__(self, decision: int) -> None:
        self.name = self.fingerprint = "always" if decision else "never"
        self._decision = decision

    def begin(self, module_name: str, names: tuple[str, ...]) -> Decider:
        """See `Policy`."""
        return lambda features, _: np.full(len(features), self._decision, np.int8)


class Random:
    """A fair coin for each call site; the same in every compile of a module with this seed."""

    def __init__(self, seed: int = 0) -> None:
        self.name = "random"
        self.fingerprint = f"random-{seed}"
        self._seed = seed

    def begin(self, module_name: str, names: tuple[str, ...]) -> Decider:
        """See `Policy`."""
        digest = hashlib.sha256(f"{self._seed} {module_name}".encode()).digest()
        entropy = int.from_bytes(digest[:8], "little")

        def decide(features: np.ndarray, first: int) -> np.ndarray:
            flips = np.random.default_rng(entropy).integers(0, 2, first + len(features))
            return flips[first:].astype(np.int8)

        return decide


class CostBelow:
    """Inlines call sites whose cost estimate is below a threshold; LLVM's threshold at -Oz is 5."""

    def __init__(self, threshold: int) -> None:
        self.name = self.fingerprint = f"cost<{threshold}"
        self._threshold = threshold

    def begin(self, module_name: str, names: tuple[str, ...]) -> Decider:
        """See `Policy`."""
        column = feature_columns(names, ("cost_estimate",))[0]
        return lambda features, _: (features[:, column] < self._threshold).astype(np.int8)


def make_heuristic(name: str, seed: int = 0) -> Policy:
    """Make a baseline.

    Args:
      name: one of `HEURISTICS`, or `cost<N`.
      seed: seed of `random`.

    Raises:
      UserError: there is no baseline with that name.
    """
    if name == "default":
        return Default()
    if name in ("always", "never"):
        return Constant(int(name == "always"))
    if name == "random":
        return Random(seed)
    if match := re.fullmatch(r"cost<(-?\d+)", name):
        return CostBelow(int(match[1]))
    raise UserError(
        f"policy: expected a policy directory or one of {', '.join(HEURISTICS)}, cost<N; "
        f"found {name!r}"
    )


def row_by_row(decide: Decider) -> DecideRow:
    """Return a decider for single rows, as a compile needs: the decider's own if it has one."""
    own: DecideRow | None = getattr(decide, "decide_row", None)
    if own is not None:
        return own
    return lambda row, step: int(decide(np.array([row], np.int64), step)[0])


def feature_columns(names: tuple[str, ...], needed: Sequence[str]) -> np.ndarray:
    """Return the places of the `needed` features in a feature vector, int64 [len(needed)].

    Raises:
      UserError: the compiler does not offer one of the wanted features.
    """
    missing = [name for name in needed if name not in names]
    if missing:
        raise UserError(
            f"features: expected {', '.join(missing)}, found a compiler that offers only "
            f"{', '.join(names)}; use the compiler that the policy was trained with"
        )
    return np.array([names.index(name) for name in needed], np.int64)
