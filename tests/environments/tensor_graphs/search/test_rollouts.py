"""A search led by a player, on systems whose optima are known by hand."""

from __future__ import annotations

import collections
import dataclasses

import pytest

from environments.tensor_graphs.search import Budget, Step, follow
from environments.tensor_graphs.search.record import BudgetSpent, Record
from environments.tensor_graphs.search.rollouts import likeliest
from tests.environments.tensor_graphs.search.fakes import HILL, FakeMatch, Guide, TableState

# From 1 a step further down.
SLOPE = dataclasses.replace(
    HILL, arrows={**HILL.arrows, 1: {"on": 2}}, costs={**HILL.costs, 2: 8.5}
)


class Player:
    """Plays by one function, probes the given rules, and descends by another function."""

    def __init__(self, play, probed=(), descend=lambda start: ()):
        self.play = play
        self.probed = probed
        self.descend = descend

    def probe(self, number, start):
        for match in start.matches:
            if match.rule in self.probed:
                yield match, start.apply(match)


def follow_play(start, play, *arguments):
    return follow(start, Player(play), *arguments)


def flat(costs):
    """A chain of graphs with these costs, each one step from the one before."""
    arrows = {number: {"on": number + 1} for number in range(len(costs) - 1)}
    return TableState(0, arrows, dict(enumerate(costs)))


def go(state, *rules):
    """Apply these rules one after another, as long as each has a match."""
    for rule in rules:
        match = FakeMatch(rule, (state.graph,))
        if match not in state.matches:
            return
        state = state.apply(match)
        yield match, state


def play_over_the_hill(number, state):
    """Play like a policy that tries the hill in the fifth episode."""
    rules = {0: ("over", "down") if number == 4 else ("down",), 1: ("on",)}
    return go(state, *rules.get(state.graph, ()))


def test_a_player_plays_the_given_number_of_episodes():
    """The second one goes on from the cheapest graph."""
    single, two, five = (follow_play(SLOPE, play_over_the_hill, number) for number in (1, 2, 5))
    assert (single.best.graph, single.path, single.expansions) == (1, (Step("down", (0,)),), 1)
    assert (two.best.graph, two.best.cost_ms) == (2, 8.5)
    assert two.path == (Step("down", (0,)), Step("on", (1,)))
    assert (five.best.graph, five.best.cost_ms, five.stopped) == (4, 5.0, "exhausted")
    assert five.path == (Step("over", (0,)), Step("down", (3,)))
    assert (five.method, five.expansions_of_best) == ("policy", five.expansions)
    ended = follow_play(SLOPE, play_over_the_hill, 2, Budget(expansions=1))
    assert (ended.best.graph, ended.stopped) == (1, "out of expansions")


def test_episodes_begin_at_the_model_and_on_the_trail_and_mostly_at_the_cheapest_graph():
    begun = []

    def play(number, start):
        begun.append(start.graph)
        return play_over_the_hill(4, start) if start.graph in (0, 1) else ()

    follow_play(SLOPE, play, 48)
    assert begun[0] == 0 and set(begun) == {0, 3, 4}
    assert collections.Counter(begun).most_common(1)[0][0] == 4


def test_some_episodes_are_replaced_by_probing_until_a_step_gains():
    """On a star, "a" and "b" save nothing, "c" does, and "d" would save more."""
    costs = {0: 10.0, 1: 11.0, 2: 10.0, 3: 9.0, 4: 8.0}
    star = TableState(0, {0: {"a": 1, "b": 2, "c": 3, "d": 4}}, costs)
    player = Player(lambda number, state: (), ("a", "b", "c", "d"))
    result = follow(star, player, 16)
    assert (result.expansions, result.path) == (3, (Step("c", (0,)),))
    assert follow(star, Player(lambda number, state: (), ("a", "b")), 16).path == ()


def test_what_an_episode_undid_may_lead_to_a_cheaper_graph():
    """Each episode goes back from 8.0 to 9.0, from where a step that is known leads to 7.0."""
    arrows = {0: {"on": 1}, 1: {"on": 2, "down": 3}, 2: {"back": 1}}
    valley = TableState(0, arrows, {0: 10.0, 1: 9.0, 2: 8.0, 3: 7.0})

    def play(number, state):
        return go(state, "on", "on") if number == 0 else go(state, "back")

    def descend(start):
        for match in start.matches:
            if match.rule == "down":
                yield match, start.apply(match)

    alone, descending = (
        follow(valley, Player(play, descend=fn), 100).best for fn in (lambda start: (), descend)
    )
    assert (alone.cost_ms, descending.cost_ms) == (8.0, 7.0)


def test_after_many_episodes_without_gain_it_probes_on_the_trail_and_descends_from_there():
    """The trail is 0, 1, 2. Probing at 0 finds "over", after which "down" leads to 7.0."""
    arrows = {0: {"on": 1, "over": 3}, 1: {"on": 2}, 3: {"down": 4}}
    valleys = TableState(0, arrows, {0: 10.0, 1: 9.0, 2: 8.0, 3: 9.5, 4: 7.0})
    rules = {"down"}

    class Observer(Player):
        def probe(self, number, start):
            for match, state in super().probe(number, start):
                rules.add(match.rule)
                yield match, state

    def descend(start):
        while matches := [match for match in start.matches if match.rule in rules]:
            start = start.apply(matches[0])
            yield matches[0], start

    def play(number, state):
        return go(state, "on", "on")

    result = follow(valleys, Observer(play, ("over",), descend=descend), 100)
    assert (result.best.cost_ms, [step.rule for step in result.path]) == (7.0, ["over", "down"])
    assert rules == {"over", "down"}


def test_from_a_new_cheapest_graph_the_player_descends():
    """Its first step saves something; the second one begins where the first ends and does not."""
    costs = [10.0, 10.2, 9.0, 8.0, 8.1, 7.0]
    begun, descended = [], []

    def play(number, state):
        begun.append(state.graph)
        return go(state, *["on"] * (2 if number == 0 else 0))

    def descend(start):
        descended.append(start.graph)
        return go(start, "on", "on")

    result = follow(flat(costs), Player(play, descend=descend), 2)
    assert (descended, begun) == ([2], [0, 3])
    assert (result.best.cost_ms, len(result.path), result.expansions) == (8.0, 3, 4)


def test_ties_go_to_the_graph_found_last():
    """Two episodes take a step each that changes no cost; these make the third one possible."""
    plain = flat([10.0, 10.0, 10.0, 9.0])
    three, six = (
        follow_play(plain, lambda number, state: go(state, *["on"] * min(number, 1)), episodes)
        for episodes in (3, 6)
    )
    assert three.best.cost_ms == 10.0
    assert (six.best.cost_ms, len(six.path)) == (9.0, 3)


def test_an_equal_graph_that_is_on_the_trail_already_does_not_win_a_tie():
    """Five episodes go round a ring of three graphs, the sixth one takes the way out."""
    arrows = {0: {"on": 1}, 1: {"on": 2}, 2: {"on": 3}, 3: {"on": 1, "out": 4}}
    ring = TableState(0, arrows, {0: 10.0, 1: 9.0, 2: 9.0, 3: 9.0, 4: 8.0})

    def play(number, state):
        return go(state, *["out"] if number == 5 else ["on"] * 6)

    result = follow_play(ring, play, 6)
    assert result.best.graph == 4
    assert [step.location for step in result.path] == [(0,), (1,), (2,), (3,)]


def test_a_hopeless_episode_is_given_up_unless_it_is_the_first():
    """Hopeless are many steps without a gain, and a graph that costs a lot more."""

    def num_steps(episode, costs):
        def play(number, state):
            return go(state, *["on"] * 99) if number == episode else ()

        return follow_play(flat(costs), play, episode + 1).expansions

    plateau, mountain, late_gain = [10.0] * 40, [10.0] + [30.0] * 39, [10.0] * 5 + [9.0] * 35
    assert {num_steps(0, costs) for costs in (plateau, mountain, late_gain)} == {39}
    given_up = [num_steps(4, costs) for costs in (mountain, plateau, late_gain)]
    assert given_up == sorted(set(given_up)) and given_up[-1] < 39


def costs_met(costs, num_steps=100, budget=None):
    """The costs that a guide's likeliest steps meet on a chain of graphs with these costs."""
    record = Record("fake", flat(costs), budget or Budget())
    steps = likeliest(record, Guide("on", num_steps=num_steps), record.start, patience=20)
    return [after.cost_ms for _, after in steps]


def test_likeliest_steps_end_where_they_are_hopeless_or_the_budget_is_spent():
    assert costs_met([10.0] * 40) == [10.0] * 20
    assert costs_met([10.0] * 5 + [9.0] * 35) == [10.0] * 4 + [9.0] * 21
    assert costs_met([10.0, 9.0, 9.4, 9.5, 1.0]) == [9.0, 9.4, 9.5]
    # Episodes of two steps; the third one begins where the second one ended, and gains nothing.
    costs = [9.9, 9.8, 9.8, 9.7, 9.7, 9.7, 9.6]
    assert costs_met([10.0, *costs], num_steps=2) == costs[:6]
    with pytest.raises(BudgetSpent, match="out of expansions"):
        costs_met([10.0 - number for number in range(9)], budget=Budget(expansions=4))
