"""Rules written by people; for generated ones see `generation`.

Each module in NAMES defines one family of rules: `blocked`, `branches`, `folding`, `merging`,
`products`, `elementwise`, `layout`, `images`, `recognition` and `transformers`.
"""

from __future__ import annotations

import functools
import importlib

from environments.tensor_graphs.rules.language.notation import rules_in
from environments.tensor_graphs.rules.language.rule import Rule

NAMES = (
    "blocked",
    "branches",
    "elementwise",
    "folding",
    "images",
    "layout",
    "merging",
    "products",
    "recognition",
    "transformers",
)


@functools.lru_cache(maxsize=1)
def all_rules() -> tuple[Rule, ...]:
    """Return the rules of all families, without verifying them."""
    return tuple(rule for name in NAMES for rule in rules_of(name))


def rules_of(name: str) -> tuple[Rule, ...]:
    """Return the rules of one family, by its name."""
    return rules_in(importlib.import_module(f"{__name__}.{name}"))
