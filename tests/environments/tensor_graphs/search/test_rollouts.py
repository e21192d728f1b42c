"""A policy that is followed, on systems whose optima are known by hand."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from environments.tensor_graphs.search import Budget, Step, follow
from environments.tensor_graphs.search.results import step_of
from tests.environments.tensor_graphs.search.fakes import HILL, FakeMatch, TableState

# From 1 a step further down.
SLOPE = dataclasses.replace(
    HILL, arrows={**HILL.arrows, 1: {"on": 2}}, costs={**HILL.costs, 2: 8.5}
)


class Player:
    """Plays what a function says, or another where chance leads, and looks where it is told to."""

    def __init__(self, play, looks=(), chance=None, descend=lambda start: ()):
        self.looks = looks
        self.descend = descend
        self.learned = []
        self._play_fns = {False: play, True: chance or play}

    def play(self, number, start, *, by_chance=False):
        return self._play_fns[by_chance](number, start)

    def look(self, number, start):
        for match in start.matches:
            if match.xfer in self.looks:
                yield step_of(match), start.apply(match)

    def learn(self, steps, num_good):
        self.learned.append(([step.xfer for step in steps], num_good))


def follow_play(start, play, *arguments):
    return follow(start, Player(play), *arguments)


def go(state, *xfers):
    """Takes one step after another, as far as there are such."""
    for xfer in xfers:
        match = FakeMatch(xfer, (state.graph,))
        if match not in state.matches:
            return
        state = state.apply(match)
        yield step_of(match), state


def play_over_the_hill(number, state):
    """What a policy does that tries the hill in the fifth episode."""
    ways = {0: ("over", "down") if number == 4 else ("down",), 1: ("on",)}
    return go(state, *ways.get(state.graph, ()))


def test_a_policy_is_followed_for_so_many_episodes():
    one, five = (follow_play(SLOPE, play_over_the_hill, number) for number in (1, 5))
    assert (one.best.graph, one.path, one.expansions) == (1, (Step("down", (0,)),), 1)
    assert (five.best.graph, five.best.cost_ms, five.stopped) == (4, 5.0, "exhausted")
    assert five.path == (Step("over", (0,)), Step("down", (3,)))
    assert (five.method, five.expansions_of_best) == ("policy", five.expansions)


def test_the_second_episode_goes_on_from_the_cheapest_graph():
    two = follow_play(SLOPE, play_over_the_hill, 2)
    assert (two.best.graph, two.best.cost_ms) == (2, 8.5)
    assert two.path == (Step("down", (0,)), Step("on", (1,)))


def test_half_of_the_episodes_begin_at_the_cheapest_graph_and_a_quarter_on_the_way_there():
    begun = {}

    def play(number, start):
        begun[number] = start.graph
        return play_over_the_hill(4, start) if start.graph in (0, 1) else ()

    follow_play(SLOPE, play, 48)
    assert {begun[number] for number in range(0, 48, 4)} == {0}
    assert {begun[number] for number in range(1, 48, 2) if number % 8 != 7} == {4}
    assert {begun[number] for number in range(2, 48, 4)} == {0, 3, 4}
    assert not begun.keys() & set(range(7, 48, 8))


def test_in_place_of_every_eighth_episode_steps_are_tried_until_one_gains():
    """Of a star: "a" and "b" save nothing, "c" does, and "d" would save more."""
    costs = {0: 10.0, 1: 11.0, 2: 10.0, 3: 9.0, 4: 8.0}
    star = TableState(0, {0: {"a": 1, "b": 2, "c": 3, "d": 4}}, costs)
    player = Player(lambda number, state: (), ("a", "b", "c", "d"))
    seven, eight = (follow(star, player, number) for number in (7, 8))
    assert (seven.expansions, seven.path) == (0, ())
    assert (eight.expansions, eight.path) == (3, (Step("c", (0,)),))
    assert follow(star, Player(lambda number, state: (), ("a", "b")), 8).path == ()


def test_what_an_episode_undid_may_lead_to_a_cheaper_graph():
    """Each episode goes back from 8.0 to 9.0, from where a step that is known leads to 7.0."""
    arrows = {0: {"on": 1}, 1: {"on": 2, "down": 3}, 2: {"back": 1}}
    valley = TableState(0, arrows, {0: 10.0, 1: 9.0, 2: 8.0, 3: 7.0})

    def play(number, state):
        return go(state, "on", "on") if number == 0 else go(state, "back")

    def descend(start):
        for match in start.matches:
            if match.xfer == "down":
                yield step_of(match), start.apply(match)

    before, after = (  # The only gain was that of the first episode, and 24 had none.
        follow(valley, Player(play, descend=descend), number).best for number in (25, 26)
    )
    assert (before.cost_ms, after.cost_ms) == (8.0, 7.0)


def test_then_it_looks_on_the_way_too_and_goes_on_from_there_by_what_is_known():
    """The way is 0, 1, 2. Who looks at 0 learns of "over", after which "down" leads to 7.0."""
    arrows = {0: {"on": 1, "over": 3}, 1: {"on": 2}, 3: {"down": 4}}
    valleys = TableState(0, arrows, {0: 10.0, 1: 9.0, 2: 8.0, 3: 9.5, 4: 7.0})
    known = {"down"}

    class Observer(Player):
        def look(self, number, start):
            for step, state in super().look(number, start):
                known.add(step.xfer)
                yield step, state

    def descend(start):
        while matches := [match for match in start.matches if match.xfer in known]:
            start = start.apply(matches[0])
            yield step_of(matches[0]), start

    def play(number, state):
        return go(state, "on", "on")

    found = follow(valleys, Observer(play, ("over",), descend=descend), 100)
    assert (found.best.cost_ms, [step.xfer for step in found.path]) == (7.0, ["over", "down"])
    assert known == {"over", "down"}


@pytest.mark.parametrize(("gain_ms", "begins_at"), [(0.001, 24), (0.1, 64)])
def test_that_is_put_off_by_gains_but_not_if_they_are_less_than_a_thousandth(gain_ms, begins_at):
    """There is a gain in every fourth of 64 episodes: six of 24, of which the model costs 10 ms."""
    ended, descended = [], []

    def play(number, start):
        ended.append(number)
        return itertools.islice(play_on(number, start), int(number % 4 == 1))

    def descend(start):
        descended.append(ended[-1])
        return ()

    way = flat([10.0 - gain_ms * number for number in range(40)])
    follow(way, Player(play, descend=descend), 64)
    without_gain = {number for number in descended if number % 4 != 1}
    assert without_gain == {number for number in ended if number >= begins_at and number % 4 != 1}


def test_it_is_told_which_steps_led_to_a_cheaper_graph_than_all_before():
    """The fifth episode meets a graph as cheap as the cheapest, and a cheaper one if it goes on."""
    costs = [10.0, 10.2, 9.0, 9.0, 9.2, 8.9]
    ends = {0: 2, 4: 4}

    def play(number, state):
        return itertools.islice(play_on(number, state), ends.get(number, 0))

    player = Player(play)
    follow(flat(costs), player, 5)
    nothing = ([], 0)
    assert player.learned == [(["on"] * 2, 2), nothing, nothing, nothing, (["on"] * 4, 0)]
    ends[4] = 5
    player = Player(play)
    follow(flat(costs), player, 5)
    assert player.learned[-1] == (["on"] * 5, 5)


def test_from_a_cheaper_graph_steps_are_taken_that_are_known_to_save_something():
    """Of these the first one does, and where it ends the second one begins, which does not."""
    costs = [10.0, 10.2, 9.0, 8.0, 8.1, 7.0]
    begun, descended = [], []

    def play(number, state):
        begun.append(state.graph)
        return itertools.islice(play_on(number, state), 2 if number == 0 else 0)

    def descend(start):
        descended.append(start.graph)
        return itertools.islice(play_on(0, start), 2)

    found = follow(flat(costs), Player(play, descend=descend), 2)
    assert (descended, begun) == ([2], [0, 3])
    assert (found.best.cost_ms, len(found.path), found.expansions) == (8.0, 3, 4)


@pytest.mark.parametrize("chance_gains", [True, False])
def test_whoever_makes_cheaper_graphs_leads_most_episodes(chance_gains):
    """Half of 200 episodes begin where a gain can be made, but those of looking around."""
    way = flat([1000.0 - number for number in range(200)])
    led_by_chance = []

    def play_as(is_chance):
        def play(number, state):
            led_by_chance.append(is_chance)
            return itertools.islice(play_on(number, state), int(is_chance == chance_gains))

        return play

    found = follow(way, Player(play_as(False), chance=play_as(True)), 200)
    assert len(led_by_chance) == 175 and not led_by_chance[0]
    if chance_gains:
        assert 0.75 < sum(led_by_chance) / 175 < 1
    else:
        assert 0 < sum(led_by_chance) / 175 < 0.1
    assert len(found.path) > 50


def test_so_many_steps_are_tried_at_once():
    costs = {0: 10.0, **dict.fromkeys(range(1, 101), 10.0)}
    star = TableState(0, {0: {f"to-{number:03}": number for number in range(1, 101)}}, costs)
    player = Player(lambda number, state: (), [f"to-{number:03}" for number in range(1, 101)])
    assert [follow(star, player, number).expansions for number in (8, 16)] == [64, 128]


def test_of_graphs_that_cost_the_same_the_last_one_is_gone_on_from():
    """Two steps that change no cost, by two episodes, make the third one possible."""
    plain = flat([10.0, 10.0, 10.0, 9.0])

    def play_a_step(number, state):
        return itertools.islice(play_on(number, state), min(number, 1))

    assert follow_play(plain, play_a_step, 3).best.cost_ms == 10.0
    found = follow_play(plain, play_a_step, 6)
    assert (found.best.cost_ms, len(found.path)) == (9.0, 3)


def test_nobody_goes_round_and_round_where_graphs_cost_the_same():
    """Five episodes go round a ring of three graphs, the sixth one takes the way out."""
    arrows = {0: {"on": 1}, 1: {"on": 2}, 2: {"on": 3}, 3: {"on": 1, "out": 4}}
    ring = TableState(0, arrows, {0: 10.0, 1: 9.0, 2: 9.0, 3: 9.0, 4: 8.0})

    def play(number, state):
        return go(state, *["out"] if number == 5 else ["on"] * 6)

    found = follow_play(ring, play, 6)
    assert found.best.graph == 4
    assert [step.location for step in found.path] == [(0,), (1,), (2,), (3,)]


def flat(costs):
    """A way of one step after another, over graphs of these costs."""
    arrows = {number: {"on": number + 1} for number in range(len(costs) - 1)}
    return TableState(0, arrows, dict(enumerate(costs)))


def play_on(number, state):
    while state.matches:
        (match,) = state.matches
        state = state.apply(match)
        yield step_of(match), state


@pytest.mark.parametrize(
    ("costs", "steps"),
    [
        ([10.0] * 30, 8),
        ([10.0] * 6 + [9.0] + [9.4] * 30, 6 + 8),  # counted from the last gain on
        ([10.0, 10.4, 10.6] + [10.0] * 30, 2),  # 10.6 is more than 1.05 times 10
        ([10.0, 9.0, 9.5] + [9.0] * 30, 2),  # 9.5 is more than 1.05 times 9
    ],
)
def test_an_episode_that_goes_nowhere_is_given_up_but_for_the_first(costs, steps):
    one, many = (follow_play(flat(costs), play_on, number) for number in (1, 5))
    assert one.expansions == len(costs) - 1
    fifth = follow_play(
        flat(costs), lambda number, state: play_on(number, state) if number == 4 else (), 5
    )
    assert (fifth.expansions, many.best.cost_ms) == (steps, min(costs))


def test_a_policy_is_followed_as_far_as_the_budget_goes():
    result = follow_play(SLOPE, play_over_the_hill, 2, Budget(expansions=1))
    assert (result.best.graph, result.stopped) == (1, "out of expansions")
