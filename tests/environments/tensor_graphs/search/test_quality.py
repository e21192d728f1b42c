"""Our search with the shipped rules, compared with TASO's search and with the optimum."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper, numpy_helper

from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.bound.exact import bound
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.search import Budget, search
from tests.environments.tensor_graphs.small_models import convolutions, model_of


def weight(name, *shape):
    array = np.random.default_rng(len(name)).normal(size=shape).astype(np.float32)
    return numpy_helper.from_array(array, name)


def fire():
    """SqueezeNet's module: two convolutions of one input, then Concat."""
    nodes = [
        helper.make_node("Conv", ["x", "squeeze"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Conv", ["r", "small"], ["e1"]),
        helper.make_node("Relu", ["e1"], ["r1"]),
        helper.make_node("Conv", ["r", "large"], ["e3"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["e3"], ["r3"]),
        helper.make_node("Concat", ["r1", "r3"], ["y"], axis=1),
    ]
    weights = [
        weight("squeeze", 16, 64, 1, 1),
        weight("small", 64, 16, 1, 1),
        weight("large", 64, 16, 3, 3),
    ]
    return model_of(nodes, weights, {"x": [1, 64, 20, 20]}, {"y": [1, 128, 20, 20]})


def projections():
    """Query, key and value of one input."""
    nodes, weights = [], []
    for name in "qkv":
        weights += [weight(f"w{name}", 64, 64), weight(f"b{name}", 64)]
        nodes += [
            helper.make_node("MatMul", ["x", f"w{name}"], [f"m{name}"]),
            helper.make_node("Add", [f"m{name}", f"b{name}"], [f"a{name}"]),
            helper.make_node("Relu", [f"a{name}"], [name]),
        ]
    return model_of(nodes, weights, {"x": [1, 32, 64]}, {name: [1, 32, 64] for name in "qkv"})


def start_of(model):
    return Engine(rule_files.load(), AnalyticObjective()).start(onnx_io.read(model))


@pytest.mark.parametrize("make", [convolutions, fire, projections])
def test_it_is_within_two_percent_of_the_best_graph_there_is(make):
    start = start_of(make())
    optimal = bound(start.graph, rule_files.load(), AnalyticObjective())
    assert optimal.is_proved and optimal.cost_ms == pytest.approx(optimal.bound_ms)
    found = search(start, "regions", Budget(expansions=500)).best.cost_ms
    assert optimal.bound_ms * (1 - 1e-9) <= found <= 1.02 * optimal.bound_ms


@pytest.mark.parametrize("expansions", [600, pytest.param(1500, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["bert-tiny", "repvgg-a0", "squeezenet-1.1"])
def test_it_needs_a_tenth_of_the_expansions_that_taso_needs(name, expansions):
    """Both have the same rules and costs; TASO ends at its budget or when its queue is empty."""
    start = start_of(models.make(name))
    taso = search(start, "taso", Budget(expansions=expansions))
    ours = search(start, "regions", Budget(expansions=taso.expansions // 10))
    assert ours.best.cost_ms <= taso.best.cost_ms * (1 + 1e-9)
