"""Propose graphs whose images stay in blocks: all rules of `rules.library.blocked` at once.

One such step rarely pays, since the image is turned into rows and back somewhere else. All of
them together may. The estimate cannot tell, so the graph is one more candidate to measure. Searches
do without these rules: they would only try and measure more for nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from environments.tensor_graphs.rules import library
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.search.results import Visited

_RULES = tuple(rule.name for rule in library.rules_of("blocked"))


def divided(rules: Sequence[Rule]) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
    """Return the rules for searches, and those that are applied all at once."""
    searched = tuple(rule for rule in rules if rule.name not in _RULES)
    return searched, tuple(rule for rule in rules if rule.name in _RULES)


def blocked(visited: Visited) -> Visited:
    """Apply the rules at all places where they match, those that replace most nodes first.

    Rules that its engine does not have are left out. If none matches, the state stays the same.
    """
    for rule in _RULES:
        while True:
            match = next((place for place in visited.state.matches if place.rule == rule), None)
            if match is None:
                break
            visited = Visited(visited.state.apply(match), visited, match)
    return visited
