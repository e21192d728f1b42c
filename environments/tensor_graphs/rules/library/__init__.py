"""Rules that people know, written down. Others are found: see `generation`.

`branches`, `folding`, `merging`, `products`, `elementwise`, `layout`, `images`, `recognition` and
`transformers` have them.
"""

from __future__ import annotations

import functools
import importlib

from environments.tensor_graphs.rules.language.notation import rules_in
from environments.tensor_graphs.rules.language.rule import Rule

NAMES = (
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
    """The rules of all families; they are not verified here."""
    return tuple(one for name in NAMES for one in rules_of(name))


def rules_of(name: str) -> tuple[Rule, ...]:
    """The rules of one family, by its name."""
    return rules_in(importlib.import_module(f"{__name__}.{name}"))
