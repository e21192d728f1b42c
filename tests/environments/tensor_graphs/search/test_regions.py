"""Our search, alone and led by a guide, on systems whose optima are known, and beside TASO's."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.bound.exact import bound
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.graph.nodes import TensorType
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.search import Budget, search
from tests.environments.tensor_graphs.search.fakes import (
    LAYER,
    RULES,
    TYPE,
    Guide,
    branches,
    chain,
    fuse,
    ops_of,
    start_of,
    swap,
)
from tests.environments.tensor_graphs.small_models import convolutions, written

GUIDED_LAYER = (*LAYER, "Tanh")
PASSING = {"pass": swap("Tanh", "Neg"), "fuse": RULES["fuse"]}
GUIDED_RULES = {name: RULES[name] for name in ("neg_neg", "neg_relu", "relu_neg", "fuse")}


def test_what_only_removes_is_taken_before_anything_else_is_tried():
    """Three pairs that go, each of another type, and three places for a step that saves more."""
    types = [TYPE] * 3 + [TensorType("float32", (2, size)) for size in (4, 5, 6)]
    pairs, places = [("Neg", "Neg")] * 3, [("Relu", "Tanh")] * 3
    start = start_of(branches(*places, *pairs, types=types))
    result = search(start, "regions", Budget(expansions=3))
    assert ops_of(result.best.graph) == ["Relu", "Tanh"] * 3
    assert ops_of(search(start, "regions").best.graph) == ["Abs"] * 3


def test_regions_searches_one_layer_and_repeats_its_steps_in_the_others():
    """TASO meets every subset of the layers' steps; here each more layer costs its three steps.

    After that the search tries rules first that have lost matches, in all layers at once and then
    layer by layer.
    """
    best, all_ = {}, {}
    for layers in (2, 4, 10):
        start = start_of(branches(*[GUIDED_LAYER] * layers))
        result = search(start, "regions")
        assert ops_of(result.best.graph) == ["Abs"] * layers
        best[layers], all_[layers] = result.expansions_of_best, result.expansions
    assert best[4] == best[2] + 2 * 3 and best[10] == best[2] + 8 * 3
    assert all_[10] - all_[4] == 3 * (all_[4] - all_[2])
    eight = start_of(branches(*[GUIDED_LAYER] * 8))
    assert search(eight, "taso", Budget(expansions=10 * best[10])).stopped != "exhausted"


@pytest.mark.parametrize("layers", [1, 5])
def test_regions_goes_back_where_a_saving_at_once_prevents_a_larger_one(layers):
    """Tanh(Neg(Relu(x))) costs 13. The step that saves at once leads to 11 and no further:

        Neg(Relu(x)) -> Sqrt(x)                            Tanh(Sqrt(x)): 8 + 3

    Letting Tanh pass first, which saves nothing, leads to 3:

        Tanh(Neg(x)) -> Neg(Tanh(x)), Tanh(Relu(x)) -> Abs(x)      Neg(Abs(x)): 1 + 2
    """
    rules = {**PASSING, "at_hand": fuse("Neg", "Relu", "Sqrt")}
    start = start_of(branches(*[("Relu", "Neg", "Tanh")] * layers), rules)
    assert search(start, "greedy").best.cost_ms == 11 * layers
    result = search(start, "regions")
    assert result.best.cost_ms == 3 * layers
    assert {step.rule for step in result.path} == {"pass", "fuse"}


def test_regions_goes_back_in_single_layers_where_only_they_gain():
    """As above in one layer; in five others that loses, together more than the one gains.

    Exp(Tanh(Neg(Relu(x)))) -> Abs(Sqrt(x)): 5,    or -> Exp(Neg(Abs(x))): 7
    """
    at_hand = {"at_hand": fuse("Neg", "Relu", "Sqrt"), "at_hand_too": fuse("Exp", "Tanh", "Abs")}
    rules = {**PASSING, **at_hand}
    gains, loses = ("Relu", "Neg", "Tanh"), ("Relu", "Neg", "Tanh", "Exp")
    start = start_of(branches(*[loses] * 2, gains, *[loses] * 3), rules)
    assert search(start, "regions").best.cost_ms == 3 + 5 * 5


def test_a_guide_that_knows_the_way_saves_most_expansions():
    """Each of four layers needs three steps: a Neg passes the Relu, both Neg go, Tanh is fused.

    In a fifth one operators can change places, which leads nowhere.
    """
    rules = {"exp_relu": swap("Exp", "Relu"), "relu_exp": swap("Relu", "Exp"), **GUIDED_RULES}
    start = start_of(branches(*[GUIDED_LAYER] * 4, ("Exp", "Relu") * 3), rules)
    guide = Guide("fuse", "neg_neg", "relu_neg")
    alone, led = search(start, "regions"), search(start, "regions", guide=guide)
    assert led.best.cost_ms == alone.best.cost_ms and ops_of(led.best.graph).count("Abs") == 4
    assert (led.expansions_of_best, len(led.path)) == (4 * 3, 4 * 3)
    assert alone.expansions_of_best > 3 * led.expansions_of_best
    # It plays again where descending leads: here nothing saves anything at once.
    assert [state.graph for state in guide.begun] == [start.graph, start.graph]


@pytest.mark.parametrize("layers", [1, 3])
def test_a_guide_of_nonsense_does_not_spoil_the_result(layers):
    start = start_of(branches(*[GUIDED_LAYER] * layers), GUIDED_RULES)
    alone, led = search(start, "regions"), search(start, "regions", guide=Guide())
    assert led.stopped == "exhausted" and led.best.cost_ms == alone.best.cost_ms
    again = search(start, "regions", guide=Guide())
    assert (again.path, again.expansions) == (led.path, led.expansions)


def test_a_search_that_was_led_into_a_trap_begins_anew_without_the_guide():
    """Tanh(Neg(Relu(x))) costs 13. Two pairs of steps, each of which begins with one for nothing:

    pass   Neg(Tanh(Relu(x))), fuse   Neg(Abs(x)): 3
    turn   Tanh(Relu(Neg(x))), down   Tanh(Exp(x)): 12, from where nothing leads on
    """
    turning = {"turn": swap("Neg", "Relu"), "down": fuse("Relu", "Neg", "Exp")}
    rules = {**PASSING, **turning}
    start = start_of(chain("Relu", "Neg", "Tanh"), rules)
    led, alone = (search(start, "regions", guide=guide) for guide in (Guide("down", "turn"), None))
    assert led.best.cost_ms == alone.best.cost_ms == 3
    assert [candidate.cost_ms for candidate in led.candidates] == [3, 12]
    assert led.expansions > alone.expansions


def test_descending_is_preferred_to_an_episode_that_saved_less():
    """The guide fuses one of two pairs and stops; descending fuses both."""
    start = start_of(branches(("Relu", "Tanh"), ("Relu", "Tanh")), {"fuse": RULES["fuse"]})

    class Once(Guide):
        def play(self, number, start):
            return super().play(number, start) if not self.begun else ()

    result = search(start, "regions", Budget(expansions=3), guide=Once(num_steps=1))
    assert ops_of(result.best.graph) == ["Abs", "Abs"]
    # One step of the guide; its saving is known from it when descending begins.
    assert (result.expansions_of_best, len(result.path)) == (3, 2)


def projections():
    """Query, key and value of one input."""
    random = np.random.default_rng(0)
    nodes = [f"m{n} = MatMul(x, w{n}) a{n} = Add(m{n}, b{n}) {n} = Relu(a{n})" for n in "qkv"]
    shapes = {f"{name}{n}": shape for n in "qkv" for name, shape in (("w", (64, 64)), ("b", (64,)))}
    weights = {name: random.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    outputs = {name: [1, 32, 64] for name in "qkv"}
    return written(" ".join(nodes), weights, {"x": [1, 32, 64]}, outputs)


def started(model):
    return Engine(rule_files.load(), AnalyticObjective()).start(onnx_io.read(model))


@pytest.mark.parametrize("make", [convolutions, projections])
def test_it_is_within_two_percent_of_the_best_graph_there_is(make):
    start = started(make())
    optimal = bound(start.graph, rule_files.load(), AnalyticObjective())
    assert optimal.is_proved
    cost_ms = search(start, "regions", Budget(expansions=500)).best.cost_ms
    assert optimal.bound_ms * (1 - 1e-9) <= cost_ms <= 1.02 * optimal.bound_ms


@pytest.mark.parametrize(
    "name, expansions",
    [
        ("bert-tiny", 300),
        ("squeezenet-1.1", 600),
        pytest.param("bert-tiny", 1500, marks=pytest.mark.slow),
        pytest.param("repvgg-a0", 1500, marks=pytest.mark.slow),
    ],
)
def test_it_needs_a_tenth_of_the_expansions_that_taso_needs(name, expansions):
    """Both have the same rules and costs; TASO ends at its budget or when its queue is empty."""
    start = started(models.make(name))
    taso = search(start, "taso", Budget(expansions=expansions))
    ours = search(start, "regions", Budget(expansions=taso.expansions // 10))
    assert ours.best.cost_ms <= taso.best.cost_ms * (1 + 1e-9)
