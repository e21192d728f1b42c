"""Rules and graphs made of texts."""

from __future__ import annotations

from collections.abc import Sequence

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Ref, TensorType
from environments.tensor_graphs.operators import building
from environments.tensor_graphs.rules.language.expressions import Array, Expression, Variable, parse
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


def graph_of(*texts: str, dtype: str = "float32", **shapes: Sequence[int | str]) -> Graph:
    """A graph whose outputs are expressions; its inputs have these shapes, or else [2]."""
    edit, bindings = Graph().edit(), Bindings({}, {})

    def add(expression: Expression | None) -> Ref | None:
        if expression is None:
            return None
        if isinstance(expression, Variable):
            kind = TensorType(dtype, tuple(shapes.get(expression.name, (2,))))
            return edit.add(INPUT, [], (("name", expression.name),), [kind])
        if isinstance(expression, Array):
            return edit.add_constant(make_array(expression, bindings))
        refs = [add(operand) for operand in expression.inputs]
        values = {name: evaluate(term, bindings) for name, term in expression.attributes}
        return building.add(edit, expression.op, *refs, **values)[expression.output]

    outputs = [add(parse(text)) for text in texts]
    edit.set_outputs(outputs, [f"y{number}" for number in range(len(outputs))])
    return edit.finish()[0]
