"""Rules and graphs made of texts, and random walks by rules."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Ref, TensorType
from environments.tensor_graphs.operators import building
from environments.tensor_graphs.rewriting.engine import Engine, State
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Variable,
    fold,
    parse,
)
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.language.terms import Bindings, evaluate, make_array

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


def graph_of(*texts: str, dtype: str = "float32", **shapes: Sequence[int | str]) -> Graph:
    """A graph whose outputs are expressions; its inputs have these shapes, or else [2]."""
    edit, done = Graph().edit(), {}

    def tensor(variable: Variable) -> Ref:
        kind = TensorType(dtype, tuple(shapes.get(variable.name, (2,))))
        return edit.add(INPUT, [], (("name", variable.name),), [kind])

    def constant(array: Array) -> Ref:
        return edit.add_constant(make_array(array, Bindings({}, {})))

    def apply(applied: Apply, refs: tuple[Ref | None, ...]) -> Ref:
        values = {name: evaluate(term, Bindings({}, {})) for name, term in applied.attributes}
        return building.add(edit, applied.op, *refs, **values)[applied.output]

    outputs = [fold(parse(text), tensor, constant, apply, done) for text in texts]
    edit.set_outputs(outputs, [f"y{number}" for number in range(len(outputs))])
    return edit.finish()[0]
