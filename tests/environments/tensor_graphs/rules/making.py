"""Rules made of texts, and random walks by rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.rewriting.engine import Engine, State
from environments.tensor_graphs.rules.language.rule import Rule

FLOATS = '(in (dtype ?x) (list "float32" "float64"))'


def make(
    source: str | Sequence[str], target: str | Sequence[str], *conditions: str, **fields: object
) -> Rule:
    """A rule; each of its sides is one expression or several."""
    sides = {"source": source, "target": target}
    texts = {name: [side] if isinstance(side, str) else list(side) for name, side in sides.items()}
    return Rule.from_dict({"name": "rule", **texts, "conditions": list(conditions), **fields})


class NoCosts:
    """An objective: everything costs nothing."""

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        return 0.0


def walk(rules: Sequence[Rule] | Engine, graph: Graph, seed: int) -> tuple[State, int]:
    """The state after up to eight random steps, and how many there were."""
    engine = rules if isinstance(rules, Engine) else Engine(rules, NoCosts())
    state, numbers = engine.start(graph), np.random.default_rng(seed)
    for count in range(8):
        if not state.matches:
            return state, count
        state = state.apply(state.matches[numbers.integers(len(state.matches))])
    return state, 8
