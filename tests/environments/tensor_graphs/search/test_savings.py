"""What was seen to save something in one layer, done in the others."""

from __future__ import annotations

import dataclasses
import math

from environments.tensor_graphs.graph.nodes import TensorType
from environments.tensor_graphs.search.neighbourhoods import NodeSignatures
from environments.tensor_graphs.search.savings import Savings
from tests.environments.tensor_graphs.search.fakes import TYPE, branches, ops_of, start_of

RULES = {
    "exp_alone": ("(Exp (Sqrt ?x))", "(Exp ?x)"),
    "tanh_alone": ("(Neg (Tanh ?x))", "(Tanh ?x)"),
}


@dataclasses.dataclass
class Costs:
    """What operators cost; an Exp with a high number may cost more, which no signature tells."""

    dear_from: float = math.inf

    def node_cost_ms(self, graph, number):
        if graph.nodes[number].op == "Exp":
            return 9.0 if number >= self.dear_from else 2.0
        return {"Sqrt": 2.0, "Tanh": 1.0, "Neg": 1.0}.get(graph.nodes[number].op, 0.0)


def started(*chains, types=(), costs=None):
    return start_of(branches(*chains, types=types), RULES, costs or Costs())


LAYER = "Relu", "Sqrt", "Exp", "Relu"


def test_what_was_done_in_one_layer_is_known_of_all_that_look_like_it():
    start = started(LAYER * 3)
    savings = Savings()
    first, *others = start.matches
    assert not savings.is_known(NodeSignatures(start.graph), first)
    assert list(savings.descend(start)) == []
    after = savings.apply(start, first)
    assert after.graph == start.apply(first).graph
    signatures = NodeSignatures(start.graph)
    assert all(savings.is_known(signatures, match) for match in others)
    matches, states = zip(*savings.descend(after), strict=True)
    assert [match.rule for match in matches] == ["exp_alone"] * 2
    assert [state.cost_ms for state in states] == [8.0, 6.0]
    assert ops_of(states[-1].graph) == ["Relu", "Exp", "Relu"] * 3


def test_tensors_of_other_types_do_not_look_alike():
    start = started(*[LAYER] * 3, types=[TYPE, TensorType("float32", (3, 2)), TYPE])
    savings = Savings()
    after = savings.apply(start, start.matches[0])
    assert [state.cost_ms for _, state in savings.descend(after)] == [after.cost_ms - 2]


BOTH = "Relu", "Tanh", "Neg", "Relu", "Sqrt", "Exp", "Relu"


def test_a_step_that_turns_out_to_save_nothing_is_undone_and_no_more_expected_to():
    """What saves most comes first; there the new Exp costs 9 where both of before cost 4."""
    start = started(BOTH, LAYER, costs=Costs(dear_from=13))
    assert max(start.graph.nodes) < 13
    both, savings = started(BOTH), Savings()
    for match in both.matches:
        savings.apply(both, match)
    matches, states = zip(*savings.descend(start), strict=True)
    assert [match.rule for match in matches] == ["exp_alone", "tanh_alone"]
    assert [state.cost_ms for state in states] == [10.0 + 5.0, 10.0 - 1.0]
    assert ops_of(states[-1].graph).count("Sqrt") == 2
    assert list(savings.descend(states[-1])) == []
