"""Rules written by people; for generated ones see `generation`.

Each module in NAMES defines one family of rules. Those of `contrib` are used on request alone.
"""

from __future__ import annotations

import functools
import importlib
import itertools

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


CONTRIB = "contrib"
"""The family whose operators onnxruntime alone has; its rules are used only on request."""


@functools.lru_cache(maxsize=2)
def all_rules(contrib: bool = False) -> tuple[Rule, ...]:
    """Return the rules of all families, with or without CONTRIB, without verifying them."""
    return tuple(rule for name in (*NAMES, *[CONTRIB] * contrib) for rule in rules_of(name))


def rules_of(name: str) -> tuple[Rule, ...]:
    """Return the rules of one family, by its name, in the order of their definition."""
    values = vars(importlib.import_module(f"{__name__}.{name}")).values()
    members = itertools.chain(
        *(value if isinstance(value, tuple) else (value,) for value in values)
    )
    return tuple(member for member in members if isinstance(member, Rule))
