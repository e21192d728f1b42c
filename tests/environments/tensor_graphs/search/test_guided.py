"""Our search led by a guide, on systems whose optima are known by hand."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.search import Budget, search
from environments.tensor_graphs.search.episodes import likeliest, patience_with
from environments.tensor_graphs.search.record import BudgetSpent, Record
from tests.environments.tensor_graphs.search.fakes import (
    TableState,
    ToyState,
    branches,
    chain,
    fuse,
    ops_of,
    same_twice,
    swap,
)

LAYER = ("Neg", "Relu", "Neg", "Tanh")
RULES = {
    "neg_neg": same_twice("Neg", 0),
    "neg_relu": swap("Neg", "Relu"),
    "relu_neg": swap("Relu", "Neg"),
    "fuse": fuse("Tanh", "Relu", "Fast"),
}


class Guide:
    """Takes, of the first rule that matches, the first match; or the last match of all."""

    def __init__(self, *rules, num_steps=100):
        self.rules = rules
        self.num_steps = num_steps
        self.begun = []

    def play(self, number, start):
        assert number == 0
        self.begun.append(start)
        here = start
        for _ in range(self.num_steps):
            if not here.matches:
                return
            known = [one for one in here.matches if one.rule in self.rules]
            match = min(known, key=lambda one: self.rules.index(one.rule), default=here.matches[-1])
            here = here.apply(match)
            yield match, here


def test_a_guide_that_knows_the_way_saves_most_expansions():
    """Each of four layers needs three steps: a Neg passes the Relu, both Neg go, Tanh is fused.

    In a fifth one operators can change places, which leads nowhere.
    """
    rules = {"exp_relu": swap("Exp", "Relu"), "relu_exp": swap("Relu", "Exp"), **RULES}
    start = ToyState(branches(*[LAYER] * 4, ("Exp", "Relu") * 3), rules)
    guide = Guide("fuse", "neg_neg", "relu_neg")
    alone, led = search(start, "regions"), search(start, "regions", guide=guide)
    assert led.best.cost_ms == alone.best.cost_ms and ops_of(led.best.graph).count("Fast") == 4
    assert (led.expansions_of_best, len(led.path)) == (4 * 3, 4 * 3)
    assert alone.expansions_of_best > 3 * led.expansions_of_best
    # It plays again where descending leads: here nothing saves anything at once.
    assert [one.graph for one in guide.begun] == [start.graph, start.graph]


@pytest.mark.parametrize("layers", [1, 3])
def test_a_guide_of_nonsense_does_not_spoil_the_result(layers):
    start = ToyState(branches(*[LAYER] * layers), RULES)
    alone, led = search(start, "regions"), search(start, "regions", guide=Guide())
    assert led.stopped == "exhausted" and led.best.cost_ms == alone.best.cost_ms
    again = search(start, "regions", guide=Guide())
    assert (again.path, again.expansions) == (led.path, led.expansions)


def test_a_search_that_was_led_into_a_trap_begins_anew_without_the_guide():
    """Tanh(Neg(Relu(x))) costs 13. Two pairs of steps, each of which begins with one for nothing:

    pass   Neg(Tanh(Relu(x))), fuse   Neg(Fast(x)): 3
    turn   Tanh(Relu(Neg(x))), down   Tanh(Exp(x)): 12, from where nothing leads on
    """
    rules = {
        "pass": swap("Tanh", "Neg"),
        "fuse": RULES["fuse"],
        "turn": swap("Neg", "Relu"),
        "down": fuse("Relu", "Neg", "Exp"),
    }
    start, rounds = ToyState(chain("Relu", "Neg", "Tanh"), rules), ((4, 1),)
    led, alone = (
        search(start, "regions", rounds=rounds, guide=guide)
        for guide in (Guide("down", "turn"), None)
    )
    assert led.best.cost_ms == alone.best.cost_ms == 3
    assert [one.cost_ms for one in led.candidates] == [3, 12]
    assert led.expansions > alone.expansions


def test_descending_is_preferred_to_an_episode_that_saved_less():
    """The guide fuses one of two pairs and stops; descending fuses both."""
    start = ToyState(branches(("Relu", "Tanh"), ("Relu", "Tanh")), {"fuse": RULES["fuse"]})

    class Once(Guide):
        def play(self, number, start):
            return super().play(number, start) if not self.begun else ()

    found = search(start, "regions", Budget(expansions=3), guide=Once(num_steps=1))
    assert ops_of(found.best.graph) == ["Fast", "Fast"]
    # One step of the guide; its saving is known from it when descending begins.
    assert (found.expansions_of_best, len(found.path)) == (3, 2)


def costs_met(costs, num_steps=100, budget=None):
    """Return the costs that a guide meets on a chain of graphs with these costs."""
    arrows = {number: {"on": number + 1} for number in range(len(costs) - 1)}
    record = Record("fake", TableState(0, arrows, dict(enumerate(costs))), budget or Budget())
    steps = likeliest(record, Guide("on", num_steps=num_steps), record.start, patience=20)
    return [after.cost_ms for _, after in steps]


def test_an_episode_is_given_up_when_it_is_hopeless():
    assert costs_met([10.0] * 40) == [10.0] * 20
    assert costs_met([10.0] * 5 + [9.0] * 35) == [10.0] * 4 + [9.0] * 21
    assert costs_met([10.0, 9.0, 9.4, 9.5, 1.0]) == [9.0, 9.4, 9.5]


def test_an_episode_that_ends_with_gains_goes_on():
    """Episodes of two steps; the third one begins where the second one ended, and gains nothing."""
    assert costs_met([10.0, 9.9, 9.8, 9.8, 9.7, 9.7, 9.7, 9.6], num_steps=2) == [
        *(9.9, 9.8),
        *(9.8, 9.7),
        *(9.7, 9.7),
    ]


def test_steps_of_an_episode_are_expansions():
    with pytest.raises(BudgetSpent, match="out of expansions"):
        costs_met([10.0 - number for number in range(9)], budget=Budget(expansions=4))


def test_larger_graphs_need_more_patience():
    """240 operators and an input: a sixth of them is more than the least patience, 20."""
    assert patience_with(chain(*["Relu"] * 240)) == 40 and patience_with(chain("Relu")) == 20
