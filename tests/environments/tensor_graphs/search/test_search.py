"""Searches on systems whose optima are known by hand."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import subprocess
import sys

import pytest

from environments.errors import UserError
from environments.tensor_graphs.search import METHODS, Budget, Step, follow, replay, search
from environments.tensor_graphs.search.results import Visited, step_of
from tests.environments.tensor_graphs.search.fakes import (
    FakeMatch,
    TableState,
    ToyState,
    branches,
    chain,
    fuse,
    ops_of,
    same_twice,
    swap,
)

#       down       up            down
#  0 ───────▶ 1          3 ──────────▶ 4
#  10         9   over  10.2           5
#  └───────────────────▶ ┘
HILL = TableState(
    0,
    {0: {"down": 1, "over": 3}, 3: {"down": 4}},
    {0: 10.0, 1: 9.0, 3: 10.2, 4: 5.0},
)
RULES = {
    "neg_neg": same_twice("Neg", 0),
    "relu_relu": same_twice("Relu", 1),
    "neg_relu": swap("Neg", "Relu"),
    "relu_neg": swap("Relu", "Neg"),
    "fuse": fuse("Tanh", "Relu", "Fast"),
}
#  Neg(Relu(Neg(x))): one Neg must pass the Relu, which saves nothing, before both go.
LAYER = ("Neg", "Relu", "Neg")


def test_greedy_stays_on_its_side_of_the_hill():
    result = search(HILL, "greedy")
    assert (result.best.graph, result.path) == (1, (Step("down", (0,)),))
    assert (result.expansions, result.stopped) == (2, "exhausted")
    assert result.gain == pytest.approx(0.1)


def test_taso_goes_over_a_hill_of_alpha():
    """10.2 < 1.05 × 10 when the arrow over the hill is looked at before the one down."""
    over_first = dataclasses.replace(HILL, arrows={0: {"over": 3, "down": 1}, 3: {"down": 4}})
    result = search(over_first, "taso")
    assert result.path == (Step("over", (0,)), Step("down", (3,)))
    assert (result.best.cost_ms, result.expansions) == (5.0, 3)
    # As Algorithm 1 is printed: with a best of 9 known, 10.2 is too much.
    assert search(HILL, "taso").best.cost_ms == 9.0
    assert search(over_first, "taso", alpha=1.01).best.cost_ms == 9.0


def test_taso_does_not_meet_a_graph_twice():
    circle = TableState(
        0, {0: {"a": 1, "b": 2}, 1: {"c": 0}, 2: {"d": 1}}, {0: 1.0, 1: 1.0, 2: 1.0}
    )
    result = search(circle, "taso")
    assert (result.expansions, result.stopped) == (2, "exhausted")


def test_taso_ends_after_its_budget_of_graphs():
    start = ToyState(chain(*LAYER * 3), RULES)
    few, many = (search(start, "taso", max_dequeued=number) for number in (1, 50))
    assert few.expansions == len(start.matches) < many.expansions


def test_beam_keeps_what_greedy_drops():
    assert search(HILL, "beam", width=2).best.cost_ms == 5.0
    assert search(HILL, "beam", width=1).best.cost_ms == 9.0


# The same, and from 1 a step further down.
SLOPE = dataclasses.replace(
    HILL, arrows={**HILL.arrows, 1: {"on": 2}}, costs={**HILL.costs, 2: 8.5}
)


class Player:
    """Plays what a function says, or another where chance leads, and looks where it is told to."""

    def __init__(self, play, looks=(), chance=None):
        self.looks = looks
        self._play_fns = {False: play, True: chance or play}

    def play(self, number, start, *, by_chance=False):
        return self._play_fns[by_chance](number, start)

    def look(self, number, start):
        for match in start.matches:
            if match.xfer in self.looks:
                yield step_of(match), start.apply(match)


def follow_play(start, play, *arguments):
    return follow(start, Player(play), *arguments)


def play_over_the_hill(number, state):
    """What a policy does that tries the hill in the fifth episode."""
    ways = {0: ("over", "down") if number == 4 else ("down",), 1: ("on",)}
    for xfer in ways.get(state.graph, ()):
        step = Step(xfer, (state.graph,))
        state = state.apply(FakeMatch(*step))
        yield step, state


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

    follow_play(SLOPE, play, 40)
    assert {begun[number] for number in range(0, 40, 4)} == {0}
    assert {begun[number] for number in range(1, 40, 2) if number % 8 != 7} == {4}
    assert {begun[number] for number in range(2, 40, 4)} == {0, 3, 4}
    assert not begun.keys() & set(range(7, 40, 8))


def test_in_place_of_every_eighth_episode_steps_are_tried_until_one_gains():
    """Of a star: "a" and "b" save nothing, "c" does, and "d" would save more."""
    costs = {0: 10.0, 1: 11.0, 2: 10.0, 3: 9.0, 4: 8.0}
    star = TableState(0, {0: {"a": 1, "b": 2, "c": 3, "d": 4}}, costs)
    player = Player(lambda number, state: (), ("a", "b", "c", "d"))
    seven, eight = (follow(star, player, number) for number in (7, 8))
    assert (seven.expansions, seven.path) == (0, ())
    assert (eight.expansions, eight.path) == (3, (Step("c", (0,)),))
    assert follow(star, Player(lambda number, state: (), ("a", "b")), 8).path == ()


def test_after_so_many_episodes_without_a_gain_all_begins_anew():
    """What was found is kept. The last gain is that of the second episode."""
    begun = {}

    def play(number, start):
        begun[number] = start.graph
        return play_over_the_hill(0, start) if number < 60 else ()

    found = follow_play(SLOPE, play, 100)
    assert (found.best.graph, found.best.cost_ms) == (2, 8.5)
    at_cheapest = {number: begun[number] for number in range(1, 100, 2) if number in begun}
    assert {graph for number, graph in at_cheapest.items() if 1 < number <= 49} == {2}
    assert at_cheapest[51] == 1 and {at_cheapest[number] for number in (61, 97, 99)} == {2}


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


@pytest.mark.parametrize("method", ["taso", "beam", "regions"])
def test_a_step_that_saves_nothing_is_taken_for_what_it_makes_possible(method):
    start = ToyState(chain(*LAYER), RULES)
    assert search(start, "greedy").best.cost_ms == start.cost_ms
    result = search(start, method)
    assert ops_of(result.best.graph) == ["Relu"] and result.stopped == "exhausted"


def test_regions_takes_two_steps_that_save_nothing():
    """One Neg has to pass both Relu, or each of them one."""
    start = ToyState(chain("Neg", "Relu", "Relu", "Neg"), {**RULES, "relu_relu": lambda _: ()})
    result = search(start, "regions")
    assert ops_of(result.best.graph) == ["Relu", "Relu"]


def test_regions_asks_once_for_all_layers():
    """TASO meets every subset of the layers' steps; here another layer costs its three steps.

    Then it asks whether to begin otherwise: with either Neg first, or the Tanh as it is; everywhere
    at once, and then layer by layer.
    """
    best, all_ = {}, {}
    for layers in (2, 4, 10):
        start = ToyState(branches(*[(*LAYER, "Tanh")] * layers), RULES)
        result = search(start, "regions")
        assert ops_of(result.best.graph) == ["Fast"] * layers
        best[layers], all_[layers] = result.expansions_of_best, result.expansions
    assert best[2] <= 12 and best[4] == best[2] + 2 * 3 and best[10] == best[2] + 8 * 3
    assert all_[2] <= 60 and all_[4] == all_[2] + 2 * 15 and all_[10] == all_[2] + 8 * 15
    eight = ToyState(branches(*[(*LAYER, "Tanh")] * 8), RULES)
    assert search(eight, "taso", Budget(expansions=10 * best[10])).stopped != "exhausted"


@pytest.mark.parametrize("layers", [1, 5])
def test_regions_leaves_a_way_that_saves_something_at_once(layers):
    """Tanh(Neg(Relu(x))) costs 13. What is at hand makes 11 of it, and is the end:

        Neg(Relu(x)) -> Add(x)                              Tanh(Add(x)): 8 + 3

    Who lets Tanh pass first, which saves nothing, comes to 3:

        Tanh(Neg(x)) -> Neg(Tanh(x)), Tanh(Relu(x)) -> Fast(x)      Neg(Fast(x)): 1 + 2
    """
    rules = {
        "at_hand": fuse("Neg", "Relu", "Add"),
        "pass": swap("Tanh", "Neg"),
        "fuse": RULES["fuse"],
    }
    start = ToyState(branches(*[("Relu", "Neg", "Tanh")] * layers), rules)
    assert search(start, "greedy").best.cost_ms == 11 * layers
    result = search(start, "regions")
    assert result.best.cost_ms == 3 * layers
    assert {step.xfer for step in result.path} == {"pass", "fuse"}


def test_regions_leaves_such_a_way_only_where_it_pays():
    """As above in one layer; five others lose by it, together more than the one gains.

    Exp(Tanh(Neg(Relu(x)))) -> Fast(Add(x)): 5,    or -> Exp(Neg(Fast(x))): 7
    """
    rules = {
        "at_hand": fuse("Neg", "Relu", "Add"),
        "at_hand_too": fuse("Exp", "Tanh", "Fast"),
        "pass": swap("Tanh", "Neg"),
        "fuse": RULES["fuse"],
    }
    gains, loses = ("Relu", "Neg", "Tanh"), ("Relu", "Neg", "Tanh", "Exp")
    start = ToyState(branches(*[loses] * 2, gains, *[loses] * 3), rules)
    assert search(start, "regions").best.cost_ms == 3 + 5 * 5


@pytest.mark.parametrize("method", METHODS)
def test_every_path_can_be_gone_again(method):
    start = ToyState(chain(*LAYER * 3, "Tanh"), RULES)
    result = search(start, method, Budget(expansions=300))
    again = replay(Visited(start), result.path)
    assert again.state.graph == result.best.graph
    assert result.expansions <= 300
    costs = [one.cost_ms for one in result.candidates]
    assert costs == sorted(set(costs)) and costs[0] == result.best.cost_ms


def test_budgets():
    start = ToyState(chain(*LAYER * 3), RULES)
    result = search(start, "taso", Budget(expansions=5))
    assert (result.expansions, result.stopped) == (5, "out of expansions")
    assert search(start, "taso", Budget(seconds=0)).stopped == "out of time"


def test_ctrl_c_returns_the_best_so_far():
    class Interrupted(ToyState):
        applied = 0

        def apply(self, match):
            Interrupted.applied += 1
            if Interrupted.applied == 30:
                raise KeyboardInterrupt
            return super().apply(match)

    result = search(Interrupted(chain(*LAYER * 3, "Tanh"), RULES), "taso")
    assert result.stopped == "interrupted" and result.best.cost_ms < result.start_cost_ms


def test_progress_is_told():
    told = []
    start = ToyState(chain(*LAYER), RULES)
    result = search(start, "taso", on_progress=told.append)
    assert told[-1].best_cost_ms == result.best.cost_ms
    assert told[-1].expansions == result.expansions


def test_a_search_goes_on_where_another_had_come_to(tmp_path):
    file = tmp_path / "search.json"
    start = ToyState(chain(*LAYER * 3, "Tanh"), RULES)
    half = search(start, "regions", Budget(expansions=8), resume_file=file)
    assert half.stopped == "out of expansions"
    again = search(start, "regions", resume_file=file)
    assert again.best.cost_ms == search(start, "regions").best.cost_ms
    assert again.path[: len(half.path)] == half.path
    assert again.expansions > half.expansions and again.expansions_of_best <= again.expansions
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize(
    "spoil, expected",
    [
        (lambda text: "{", "expected a search to resume"),
        (lambda text: "[]", "expected a search to resume"),
        (lambda text: json.dumps({**json.loads(text), "start": "00"}), "of another"),
        (lambda text: text.replace("neg_relu", "other"), "no match of other"),
    ],
)
def test_a_file_that_is_not_of_this_search(tmp_path, spoil, expected):
    file = tmp_path / "search.json"
    start = ToyState(chain(*LAYER), RULES)
    search(start, "regions", resume_file=file)
    file.write_text(spoil(file.read_text()))
    with pytest.raises(UserError, match=expected):
        search(start, "regions", resume_file=file)


def test_an_unknown_method_is_named():
    with pytest.raises(UserError, match="expected one of regions, greedy"):
        search(HILL, "magic")


def test_the_result_is_the_same_in_every_process():
    program = (
        "from tests.environments.tensor_graphs.search.test_search import *\n"
        "start = ToyState(chain(*LAYER * 4, 'Tanh'), RULES)\n"
        "for method in METHODS:\n"
        "    result = search(start, method, Budget(expansions=200))\n"
        "    print(method, result.path, result.expansions, hash(result.best.graph))\n"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.pathsep.join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(told) == 1
