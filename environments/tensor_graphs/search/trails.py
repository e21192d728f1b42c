"""What a visited state tells: signatures, what changed on its trail, which rules lost matches."""

from __future__ import annotations

import collections
from typing import Any

from environments.tensor_graphs.search.neighbourhoods import NodeSignatures, around, changed
from environments.tensor_graphs.search.results import Visited


def signatures_in(visited: Visited) -> NodeSignatures:
    """Return the signatures of a state's nodes."""
    graph: Any = visited.state.graph
    return NodeSignatures(graph)


def rules_that_lost_matches(visited: Visited) -> dict[str, Visited]:
    """Return rules with fewer matches than earlier on the trail, and where they last had most."""
    peaks: dict[str, tuple[int, Visited]] = {}
    counts: collections.Counter[str] = collections.Counter()
    for earlier in visited.trail:
        counts = collections.Counter(match.rule for match in earlier.state.matches)
        for rule, count in counts.items():
            if rule not in peaks or count >= peaks[rule][0]:
                peaks[rule] = count, earlier
    return {rule: where for rule, (count, where) in peaks.items() if count > counts[rule]}


def changed_since(origin: Visited, here: Visited) -> tuple[set[int], set[int]]:
    """Return the nodes that are new since a state of the trail, and those that are gone."""
    before: Any = origin.state.graph
    after: Any = here.state.graph
    return changed(before, after, [visited.state.change for visited in here.since(origin)])


def region_of(origin: Visited, here: Visited) -> set[int]:
    """Return what the steps from `origin` to `here` have changed, and the nodes around it."""
    graph: Any = here.state.graph
    new, _ = changed_since(origin, here)
    return around(graph, new)
