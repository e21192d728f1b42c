"""What saved something in one layer, done in the others."""

from __future__ import annotations

import pytest

from environments.tensor_graphs import models, onnx_io, rules
from environments.tensor_graphs.analytic import AnalyticObjective
from environments.tensor_graphs.engine import Engine
from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.nodes import INPUT, TensorType
from environments.tensor_graphs.notation import op, rule
from environments.tensor_graphs.operators import building
from environments.tensor_graphs.search import Visited, replay
from environments.tensor_graphs.search.repeats import attempts
from environments.tensor_graphs.search.results import step_of
from tests.environments.tensor_graphs.search.fakes import ops_of


@rule
def exp_last(x):
    return op.Relu(op.Exp(x)), op.Exp(op.Relu(x))


@rule
def exp_once(x):
    """Of no truth, as the other one is; the search need not know."""
    return op.Exp(op.Exp(x)), op.Exp(x)


class OneEach:
    """What an operator costs."""

    def node_cost_ms(self, graph, number):
        return 0.0 if graph.nodes[number].op == INPUT else 1.0


# "exp_last" makes Exp of Exp of it, of which "exp_once" makes one.
LAYER = "Exp", "Relu", "Exp", "Tanh"
CHEAPER = "Relu", "Exp", "Tanh"


def start_of(*chains, shapes=None):
    """Chains of operators, each on an input of its own."""
    edit = Graph().edit()
    outputs = []
    for number, ops in enumerate(chains):
        kind = TensorType("float32", shapes[number] if shapes else (2, 3))
        ref = edit.add(INPUT, [], (("name", f"x{number}"),), [kind])
        for name in ops:
            (ref,) = building.add(edit, name, ref)
        outputs.append(ref)
    edit.set_outputs(outputs, [f"y{number}" for number in range(len(chains))])
    return Visited(Engine([exp_last, exp_once], OneEach()).start(edit.finish()[0]))


def went(start, *xfers, place=0):
    """The states after the first one: each time the match of that number, if there are more."""
    way = [start]
    for xfer in xfers:
        matches = [match for match in way[-1].state.matches if match.xfer == xfer]
        match = matches[min(place, len(matches) - 1)]
        way.append(Visited(way[-1].state.apply(match), way[-1], step_of(match)))
    return way[1:]


def repeated(way):
    """Names of the steps of all attempts, and the state that they end at."""
    found, state = [], way[-1].state
    for attempt in attempts(way, state):
        found.append([step.xfer for step, _ in attempt])
        state = min(state, attempt[-1][1], key=lambda one: one.cost_ms)
    return found, state


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_chain_of_steps_is_repeated_in_all_layers(place):
    way = went(start_of(LAYER * 3), "exp_last", "exp_once", place=place)
    found, end = repeated(way)
    assert found == [["exp_last", "exp_once"]] * 2
    assert ops_of(end.graph) == list(CHEAPER * 3) and end.cost_ms == 9.0


def test_steps_that_saved_nothing_are_not_repeated():
    start = start_of(LAYER * 3)
    assert repeated(went(start, "exp_last"))[0] == []
    way = went(start, "exp_last", "exp_once")
    way += went(way[-1], "exp_last")
    assert repeated(way)[0] == [["exp_last", "exp_once"]]


def test_only_tensors_of_the_same_types_are_alike():
    start = start_of(LAYER, LAYER, LAYER, shapes=[(2, 3), (3, 2), (2, 3)])
    found, end = repeated(went(start, "exp_last", "exp_once"))
    assert found == [["exp_last", "exp_once"]] and end.cost_ms == 3 + 4 + 3


def test_a_chain_that_cannot_go_on_is_left_and_the_next_place_is_tried():
    """In the second layer there is no Exp above, in the third there is."""
    start = start_of((*LAYER, "Exp", "Relu", "Tanh", *LAYER))
    found, end = repeated(went(start, "exp_last", "exp_once"))
    assert found == [["exp_last"], ["exp_last", "exp_once"]]
    assert ops_of(end.graph) == [*CHEAPER, "Exp", "Relu", "Tanh", *CHEAPER]


def test_what_saves_most_in_a_layer_of_bert_saves_as_much_in_each():
    graph = onnx_io.read(models.make("bert-mini"))
    start = Visited(Engine(rules.load(), AnalyticObjective()).start(graph))
    step = min(
        (Visited(start.state.apply(match), start, step_of(match)) for match in start.state.matches),
        key=lambda one: one.cost_ms,
    )
    found, state = list(attempts([step], step.state)), step.state
    path = [step.step]
    for attempt in found:
        if attempt[-1][1].cost_ms < state.cost_ms:
            path += [one for one, _ in attempt]
            state = attempt[-1][1]
    saved = start.cost_ms - step.cost_ms
    assert start.cost_ms - state.cost_ms == pytest.approx(len(path) * saved)
    assert len(path) % 4 == 0
    assert replay(start, path).state.graph == state.graph
