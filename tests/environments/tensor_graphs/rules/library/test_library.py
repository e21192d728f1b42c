"""Rules that people know, on graphs and models that have what they are for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np
import onnx
import pytest

from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.rewriting.engine import Engine, State
from environments.tensor_graphs.rules.library import all_rules, rules_of
from tests.environments.tensor_graphs.onnx_io.running import (
    only,
    operators,
    random_inputs,
    run,
    with_weights,
)
from tests.environments.tensor_graphs.rules.making import NoCosts

ENGINE = Engine(all_rules(), NoCosts())

TWO_DIMENSIONAL = (
    "divided_masked_attention",
    "linear_is_gemm_of_rows",
    "reshaped_twice",
    "reshaped_not_at_all",
    "gelu_chain_of_reshaped",
    "layer_norm_chain_of_reshaped",
    "add_of_two_reshaped",
    "add_of_reshaped",
)
ONE_BRANCH = (
    "batch_norm_into_conv",
    "conv_beside_pixels_with_bias",
    "conv_beside_normalized_image",
)
SCALED_SWISH = (
    "product_with_cut_sum",
    "mul_into_conv_with_bias",
    "add_into_conv_with_bias",
    "scaled_hard_swish_of_conv",
)
INTO_UPSAMPLING = tuple(rule.name for rule in rules_of("folding") if "conv_transpose" in rule.name)


def apply_all(state: State, names: Sequence[str]) -> State:
    """Applies the first of these rules that matches, until none does."""
    while True:
        matches = {match.rule: match for match in reversed(state.matches)}
        name = next((option for option in names if option in matches), None)
        if name is None:
            return state
        state = state.apply(matches[name])


def assert_same_outputs(model, graph: Graph) -> None:
    drawn = random_inputs(model)
    inputs = {name: x % 2 if x.dtype == np.int64 else x for name, x in drawn.items()}
    outputs = (run(each, inputs) for each in (model, onnx_io.write(graph)))
    for before, after in zip(*outputs, strict=True):
        assert np.abs(before - after).max() <= 1e-4 * np.abs(before).max()


def test_branches_of_repvgg_become_one():
    model = models.make("repvgg-a0")
    graph = onnx_io.read(model)
    before = Counter(operators(graph))
    assert (before["BatchNormalization"], before["Conv"]) == (61, 44)
    state = apply_all(ENGINE.start(graph), ONE_BRANCH)
    assert Counter(operators(state.graph)) == {
        "Conv": 22,
        "Relu": 22,
        "GlobalAveragePool": 1,
        "Reshape": 1,
        "Gemm": 1,
    }
    assert_same_outputs(model, state.graph)


def test_what_runs_between_matrices_of_a_transformer_has_two_axes():
    model = models.make("bert-tiny")
    state = apply_all(ENGINE.start(onnx_io.read(model)), TWO_DIMENSIONAL)
    graph = state.graph
    counts = Counter(operators(graph))
    # Queries, keys, values and what is mixed of them, twice; words at first and at last.
    assert counts["Gemm"] == 13
    assert counts["MatMul"] == 4
    ranks = Counter(
        (node.op, len(node.types[0].shape))
        for node in graph.nodes.values()
        if node.op in ("ReduceMean", "Softmax")
    )
    assert ranks == {("ReduceMean", 2): 8, ("ReduceMean", 3): 2, ("Softmax", 3): 2}
    assert_same_outputs(model, graph)


def weights(**shapes: Sequence[int]) -> dict[str, np.ndarray]:
    """Positive numbers in these shapes."""
    rng = np.random.default_rng(0)
    return {name: rng.uniform(0.5, 2, shape).astype("f") for name, shape in shapes.items()}


def exported_block() -> onnx.ModelProto:
    """A convolution with scale, shift and HardSwish, as exporters for mobile phones spell it.

    A second convolution of each channel alone follows, whose padding keeps the last shift outside.
    """
    text = """<ir_version: 8, opset_import: ["" : 12]>
    block (float[1,4,6,6] x, float[4,4,1,1] w, float[4] b, float[4,1,3,3] v, float[4] a)
        => (float[1,4,6,6] y)
    <float[1] s = {0.5}, float[1] t = {0.25}, float[1] three = {3.0}, float zero = {0.0},
     float six = {6.0}, float[1] r = {3.0}, float[1] u = {0.75}>
    {
      c = Conv(x, w, b)
      scaled = Mul(c, s)
      shifted = Add(scaled, t)
      more = Add(shifted, three)
      cut = Clip(more, zero, six)
      product = Mul(shifted, cut)
      swish = Div(product, six)
      swish_scaled = Mul(swish, r)
      swish_shifted = Add(swish_scaled, u)
      y = Conv <group = 4, pads = [1, 1, 1, 1]> (swish_shifted, v, a)
    }"""
    return with_weights(text, **weights(w=(4, 4, 1, 1), b=(4,), v=(4, 1, 3, 3), a=(4,)))


def test_scaled_hard_swish_moves_into_the_convolution_before_it():
    model = exported_block()
    state = apply_all(ENGINE.start(onnx_io.read(model)), SCALED_SWISH)
    # What is left: c' = Conv, then c' · HardSigmoid(c') + 0.75, then Conv.
    assert Counter(operators(state.graph)) == {"Conv": 2, "HardSigmoid": 1, "Mul": 1, "Add": 1}
    node = only(state.graph, "HardSigmoid")
    # The convolution's result is three times as large now: x / 6 is c' / 18.
    assert node.attribute("alpha") == pytest.approx(1 / 18)
    assert node.attribute("beta") == pytest.approx(0.5)
    assert_same_outputs(model, state.graph)


@pytest.mark.parametrize(
    ("group", "left"),
    [
        (1, {"ConvTranspose": 1}),
        # Another layout of the weight: the channels of a group lie apart.
        (2, {"ConvTranspose": 1, "BatchNormalization": 1, "Mul": 1, "Add": 1}),
    ],
)
def test_what_follows_an_upsampling_is_folded_into_it(group, left):
    model = with_weights(
        f"""g (float[1,4,5,6] x, float[4,{6 // group},3,3] w, float[6] s, float[6] b, float[6] m,
               float[6] v, float[1,6,1,1] c) => (float[1,6,10,12] y) {{
            u = ConvTranspose <group = {group}, strides = [2, 2], output_padding = [1, 1],
                pads = [1, 1, 1, 1]> (x, w)
            n = BatchNormalization (u, s, b, m, v)
            p = Mul (n, c) y = Add (p, c) }}""",
        **weights(w=(4, 6 // group, 3, 3), c=(1, 6, 1, 1), **dict.fromkeys("sbmv", (6,))),
    )
    folded = apply_all(ENGINE.start(onnx_io.read(model)), INTO_UPSAMPLING).graph
    assert Counter(operators(folded)) == left
    assert_same_outputs(model, folded)
