"""Models are compared on inputs from which a wrong one can be told."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from environments.errors import UserError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.execution import equivalence
from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.execution.differences import compare_outputs
from environments.tensor_graphs.execution.inputs import NoInputsError
from environments.tensor_graphs.execution.precise import Precise
from environments.tensor_graphs.execution.sizes import OpenSizes
from environments.tensor_graphs.execution.trials import Trial, make_trials, silent_outputs
from tests.environments.tensor_graphs.small_models import model_of


def number(value, name):
    return numpy_helper.from_array(np.float32(value), name)


def trials_of(model, sizes=({"n": 4},), own=()):
    known = OpenSizes(onnx_io.read(model))
    points = [known.at(one) for one in sizes]
    return make_trials(model, backend().open(model), points, [own(known)] if own else [])


def relu_of(*nodes, weights=()):
    return model_of(nodes, weights, {"x": ["n"]}, {"y": ["n"]})


def test_random_numbers_at_each_of_the_sizes():
    model = relu_of(helper.make_node("Relu", ["x"], ["y"]))
    found = trials_of(model, [{"n": 4}, {"n": 2}, {"n": 8}])
    assert [one.inputs["x"].shape for one in found.first] == [(4,)] * 3
    assert [one.inputs["x"].shape for one in found.measured] == [(4,), (2,), (8,)]
    assert [one.sizes.to_json() for one in found.measured] == [{"n": 4}, {"n": 2}, {"n": 8}]
    assert found.note == ""


def test_constant_outputs_are_answered_by_other_inputs():
    """relu(x - 20) is 0 for normal numbers and those from 0 to 1, but not for those up to 255."""
    nodes = [
        helper.make_node("Sub", ["x", "twenty"], ["d"]),
        helper.make_node("Relu", ["d"], ["y"]),
    ]
    found = trials_of(relu_of(*nodes, weights=[number(20, "twenty")]))
    assert all(one.inputs["x"].max() > 20 for one in found.first)
    assert "numbers from 0 to 255, since on normal numbers output 'y' is constant" in found.note


def test_outputs_that_are_not_finite_are_answered_too():
    """The logarithm of a negative number is NaN."""
    found = trials_of(relu_of(helper.make_node("Log", ["x"], ["y"])))
    assert all(one.inputs["x"].min() > 0 for one in found.first)
    assert "output 'y' is not finite" in found.note


def test_what_tells_nothing_on_any_inputs_is_said():
    nodes = [helper.make_node("Sub", ["x", "x"], ["y"])]
    found = trials_of(relu_of(*nodes))
    assert "output 'y' is constant on all random inputs that were tried" in found.note


def test_the_users_inputs_are_the_ones_to_measure():
    model = relu_of(helper.make_node("Relu", ["x"], ["y"]))
    x = np.arange(2, dtype=np.float32)
    found = trials_of(
        model, [{"n": 4}, {"n": 2}], own=lambda known: Trial(known.at({"n": 2}), {"x": x})
    )
    assert found.measured[1].inputs["x"] is x
    found = trials_of(model, [{"n": 2}], own=lambda known: Trial(known.at({"n": 2}), {"x": x}))
    assert len(found.first) == 4 and found.measured[0].inputs["x"] is x


def test_texts_need_the_users_inputs():
    info = [helper.make_tensor_value_info(n, TensorProto.STRING, [2]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])], "g", *([i] for i in info)
    )
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(NoInputsError, match="give inputs with --inputs"):
        trials_of(model, [{}])
    x = np.array(["a", "b"], object)
    found = trials_of(model, [{}], own=lambda known: Trial(known.at({}), {"x": x}))
    assert [one.inputs["x"] is x for one in found.first] == [True]


def test_silent_outputs():
    one, other = np.array([1.0, 2.0]), np.array([1.0, 3.0])
    assert silent_outputs([{"y": one}, {"y": other}]) == {}
    assert silent_outputs([{"y": one}, {"y": one}]) == {"y": "constant"}
    assert silent_outputs([{"y": one}, {"y": one * np.inf}]) == {"y": "not finite"}
    assert silent_outputs([{"y": one[:1]}, {"y": one}]) == {}
    assert silent_outputs([{"y": [one]}, {"y": [one]}]) == {}  # sequences are not looked into


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_quantised_numbers_may_differ_by_a_unit(dtype):
    x = np.array([0, 5, 100], dtype)
    (one,) = compare_outputs({"y": x}, {"y": x + np.array([0, 1, 0], dtype)})
    assert one.is_equal and one.relative_error == pytest.approx(1 / 255)
    (two,) = compare_outputs({"y": x}, {"y": x + np.array([0, 2, 0], dtype)})
    assert not two.is_equal and two.relative_error == pytest.approx(2 / 255)


def test_the_larger_difference_of_two_checks_counts():
    x = np.array([1.0, 2.0], np.float32)
    exact, off = (
        equivalence.Equivalence(tuple(compare_outputs({"y": x}, {"y": x + d})), 1)
        for d in (0.0, 1.0)
    )
    for pair in ((exact, off), (off, exact)):
        found = equivalence.joined(*pair)
        assert not found.is_equal and found.num_trials == 2
        assert found.max_relative_error == pytest.approx(0.5)  # 1, of at most 2


def shifted_there_and_back(by: float):
    """(x + by) - by, which rounds x to the distance of numbers around `by`."""
    nodes = [
        helper.make_node("Add", ["x", "by"], ["s"]),
        helper.make_node("Sub", ["s", "by"], ["y"]),
    ]
    return relu_of(*nodes, weights=[number(by, "by")])


def scaled(by: float):
    return relu_of(helper.make_node("Mul", ["x", "by"], ["y"]), weights=[number(by, "by")])


def test_outputs_that_are_rounding_are_answered_by_other_inputs():
    """Around 1e5, numbers are 1 / 128 apart: much for x of 1, little for x of 255.

    Only one number in some 100,000 is so near the middle between two that its last digit counts.
    """
    found = trials_of(shifted_there_and_back(1e5), [{"n": 1_000_000}])
    assert "numbers from 0 to 255, since on normal numbers output 'y' is rounding" in found.note


def test_as_much_error_is_allowed_as_the_models_own_rounding_makes():
    """Around ten thousand, numbers are 1 / 1024 apart; 10 times that is still below 1%."""
    x = {"x": np.random.default_rng(0).standard_normal(100_000).astype(np.float32)}
    found = equivalence.check(shifted_there_and_back(1e4), scaled(1.0), [x])
    assert 1e-4 < found.max_relative_error < 1e-3 and found.is_equal
    assert not equivalence.check(shifted_there_and_back(1e4), scaled(1.01), [x]).is_equal
    # The other way round, the model is exact, and the difference is an error.
    assert not equivalence.check(scaled(1.0), shifted_there_and_back(1e4), [x]).is_equal


def test_outputs_are_as_exact_as_what_they_are_computed_in():
    x = {"x": np.ones(3, np.float32)}
    for error, computed_in, expected in (
        (1e-3, "", False),
        (1e-3, "float16", True),
        (5e-2, "float16", False),
    ):
        found = equivalence.check(scaled(1.0), scaled(1 + error), [x], computed_in=computed_in)
        assert found.is_equal == expected
    nodes = [helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
             helper.make_node("Cast", ["h"], ["y"], to=TensorProto.FLOAT)]  # fmt: skip
    assert equivalence.least_exact_type(onnx_io.read(relu_of(*nodes))) == "float16"
    assert equivalence.least_exact_type(onnx_io.read(scaled(2.0))) == "float32"


def parsed(text):
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> {text}')


def special_of(text, **sizes):
    model = parsed(text)
    graph = onnx_io.read(model)
    known = OpenSizes(graph)
    point, precise = known.at(sizes), Precise(graph)
    program = backend().open(model)
    return make_trials(model, program, [point], precise=precise, edges=known.edges(point))


def test_special_inputs_are_those_on_which_the_model_runs():
    """At n = 0 there is no first row to take; near 100, and with large integers, there is."""
    text = """g (float[n] x, int64[n] i) => (float[n] y) <float far = {100}, int64 zero = {0}>
        { c = Sub(x, far) f = Gather(i, zero) g = Cast <to = 1> (f) y = Mul(c, g) }"""
    found = special_of(text, n=3)
    shapes = {(one.inputs["x"].shape, one.inputs["i"].shape) for one in found.special}
    assert ((1,), (1,)) in shapes and ((0,), (0,)) not in shapes
    assert sum(np.abs(one.inputs["x"] - 100).max() < 10 for one in found.special) == 2
    assert max(np.abs(one.inputs["i"]).max() for one in found.special) > 2**40
    assert found.compared == (*found.special, *found.first) and found.unseen == ()


def test_an_output_without_a_finite_number_is_unseen():
    text = """g (float[2] x) => (float[2] y, float[2] z) <float minus = {-1}>
        { a = Sqrt(minus) y = Mul(x, a) z = Sqrt(x) }"""
    assert special_of(text).unseen == ("y",)


def test_onnxruntimes_layout_of_images_without_elements():
    """It keeps channels in blocks, and fails where it adds two of no image at all."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[n,16,h,4] x, float[n,16,i,4] z) => (float[n,16,h,4] y)
        { a = Conv(x, w) b = Conv(z, w) c = Add(a, b) y = Conv(c, w) }"""
    model = onnx.parser.parse_model(text)
    kernel = np.ones((16, 16, 1, 1), np.float32)
    model.graph.initializer.append(numpy_helper.from_array(kernel, "w"))
    full, below = backend("onnxruntime"), backend("onnxruntime-extended")
    first = below.open(model)
    none, image = (
        dict.fromkeys("xz", np.ones((number, 16, 4, 4), np.float32)) for number in (0, 1)
    )
    with pytest.raises(UserError):
        equivalence.check(first, model, [none], on=full)
    assert equivalence.check(first, model, [none], on=full, below=below).is_limited
    assert not equivalence.check(first, model, [image], on=full, below=below).is_limited
