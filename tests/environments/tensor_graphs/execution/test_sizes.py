"""Open sizes have the file's names, and costs and inputs take the same numbers for them."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from environments.errors import UsageError, UserError
from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.costs.objectives import graph_cost
from environments.tensor_graphs.execution.choosing import MOST_POINTS, choose
from environments.tensor_graphs.execution.inputs import NoInputsError, random_inputs
from environments.tensor_graphs.execution.sizes import OpenSizes, Sizes, together


def relus(**shapes: list[int | str]) -> onnx.ModelProto:
    """A Relu of each input; a shape may have names, and -1 for a size that is not known."""
    infos = [helper.make_tensor_value_info(x, TensorProto.FLOAT, s) for x, s in shapes.items()]
    nodes = [helper.make_node("Relu", [x], [f"{x}_out"]) for x in shapes]
    outputs = [
        helper.make_tensor_value_info(f"{x}_out", TensorProto.FLOAT, [None] * len(s))
        for x, s in shapes.items()
    ]
    graph = helper.make_graph(nodes, "relus", infos, outputs)
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def open_sizes(**shapes: list[int | str]) -> OpenSizes:
    return OpenSizes(onnx_io.read(relus(**shapes)))


def names(sizes: OpenSizes) -> list[str]:
    return [one.name for one in sizes.all]


@pytest.mark.parametrize(
    "shape, expected",
    [
        (["batch", 3], ["batch"]),
        (["p2o.DynamicDimension.0", "unk__214"], ["p2o.DynamicDimension.0", "unk__214"]),
        (["?", 3], ["?"]),
        (["?", 3, "?", "w"], ["x[0]", "x[2]", "w"]),  # these two need not be equal
        ([-1, 3, ""], ["x[0]", "x[2]"]),
        ([2, 3], []),
    ],
)
def test_names_are_those_of_the_file(shape, expected):
    assert names(open_sizes(x=shape)) == expected


def test_all_numbers_come_from_one_object():
    sizes = open_sizes(x=["batch", 3, "p2o.1"], y=["batch", "?"])
    found = sizes.at({"batch": 2, "p2o.1": 48, "y[1]": 5, "?": 5})
    assert found.to_json() == {"batch": 2, "p2o.1": 48, "?": 5}
    assert found.shapes == (("x", (2, 3, 48)), ("y", (2, 5)))
    assert str(found) == "batch=2, p2o.1=48, ?=5"
    with pytest.raises(ValueError, match=r"open sizes p2o\.1, \?"):
        sizes.at({"batch": 2})


def test_a_size_that_is_a_sum_of_others_follows_from_them():
    sizes = open_sizes(x=["past", 4], y=["new", 4], mask=["past + new"], z=["2*n"])
    assert [one.name for one in sizes.free] == ["past", "new", "2*n"]  # no size is called n
    found = sizes.at({"past": 3, "new": 2, "2*n": 8})
    assert dict(found.shapes) == {"x": (3, 4), "y": (2, 4), "mask": (5,), "z": (8,)}
    assert sizes.at({"past": 3, "new": 2, "past + new": 7, "2*n": 8}).shape("mask") == (7,)


SHAPES = st.lists(
    st.lists(
        st.sampled_from([3, -1, "", "?", "batch", "unk__214", "p2o.DynamicDimension.0", "size_0"]),
        min_size=1,
        max_size=4,
    ),
    min_size=1,
    max_size=3,
)


@given(SHAPES, st.data())
def test_costs_and_inputs_have_the_same_sizes(shapes, data):
    """This failed where names were replaced: costs knew size_3, inputs the file's name."""
    model = relus(**{f"x{number}": shape for number, shape in enumerate(shapes)})
    graph = onnx_io.read(model)
    sizes = OpenSizes(graph)
    numbers = {one.name: data.draw(st.integers(1, 9), one.name) for one in sizes.all}
    found = sizes.at(numbers)
    inputs = random_inputs(model, sizes=found)
    for number in graph.inputs:
        name, (kind,) = graph.nodes[number].attribute("name"), graph.nodes[number].types
        assert inputs[name].shape == tuple(map(found.value, kind.shape))
    for one in sizes.all:
        for name, axis in one.places:
            assert inputs[name].shape[axis] == numbers[one.name]
    assert sizes.of_arrays(inputs) == found


def test_inputs_are_never_drawn_at_sizes_that_nobody_chose():
    with pytest.raises(ValueError, match="'x' leaves a size open"):
        random_inputs(relus(x=["n", 3]))
    with pytest.raises(ValueError, match="'x' leaves a size open"):
        random_inputs(relus(x=[-1, 3]))


def test_the_analytic_cost_is_that_of_the_sizes():
    """Relu of [N, 1000] reads and writes 8000·N bytes, at 15 million a ms, and starts in 2 µs."""
    graph = onnx_io.read(relus(x=["N.x", 1000]))
    for n in (1, 300):
        objective = AnalyticObjective(sizes=OpenSizes(graph).at({"N.x": n}))
        assert graph_cost(objective, graph) == pytest.approx(0.002 + 8000 * n / 1.5e7)


def test_inputs_must_agree_where_the_file_says_so():
    sizes = open_sizes(x=["n", 3], y=["n"])
    one = {"x": np.zeros((2, 3)), "y": np.zeros(2)}
    assert sizes.of_arrays(one).to_json() == {"n": 2}
    with pytest.raises(UserError, match=r"n: expected one size .*, found x\[0\] is 2, y\[0\] is 4"):
        sizes.of_arrays({**one, "y": np.zeros(4)})


def test_models_with_other_numbers_do_not_go_together():
    one, other = (Sizes(symbols=(("n", size), (name, 1))) for name, size in (("a", 2), ("b", 3)))
    assert dict(together([one, Sizes(symbols=(("b", 1),))]).symbols) == {"n": 2, "a": 1, "b": 1}
    with pytest.raises(UserError, match="found 3 and 2"):
        together([one, other])


def chosen(sizes, given=None, accept=lambda _: True, **others):
    """Choose sizes for a model that runs where `accept` says so; return the points as dicts."""

    def why_not(point):
        return "" if accept(point.to_json()) else "no"

    return choose(sizes, given or {}, why_not, "m", **others)


def points(choice):
    return [one.to_json() for one in choice.points]


def test_a_batch_is_1_and_others_are_usual_sizes_with_half_and_double():
    choice = chosen(open_sizes(x=["?", 3, "h", "w"]))
    assert points(choice) == [
        {"?": 1, "h": 256, "w": 256},
        {"?": 1, "h": 128, "w": 128},
        {"?": 2, "h": 512, "w": 512},
    ]
    assert choice.hint == "--dimension '?=1' --dimension h=256 --dimension w=256"


def test_sizes_that_work_are_found_by_trying():
    """A height of up to 48, as in a text recogniser; half of it does not run."""
    choice = chosen(
        open_sizes(x=["N", 3, "h", "w"]), accept=lambda at: at["h"] == 48 and at["N"] == 1
    )
    assert points(choice) == [
        {"N": 1, "h": 48, "w": 256},
        {"N": 1, "h": 48, "w": 128},
        {"N": 1, "h": 48, "w": 512},
    ]
    audio = chosen(open_sizes(x=["batch", "sequence"]), accept=lambda at: at["sequence"] == 576)
    assert points(audio) == [{"batch": 1, "sequence": 576}, {"batch": 2, "sequence": 576}]


def test_the_sizes_of_weights_are_tried_too():
    sizes = open_sizes(x=["n", "features"])
    choice = chosen(sizes, accept=lambda at: at["features"] == 771, hints=[771])
    assert points(choice)[0] == {"n": 1, "features": 771}


def test_given_sizes_are_combined_and_nothing_is_added_to_them():
    choice = chosen(open_sizes(x=["n", "w"]), {"w": (8, 4), "x[0]": (2, 1)})
    first, *others = [(one["n"], one["w"]) for one in points(choice)]
    assert first == (2, 8) and set(others) == {(2, 4), (1, 8), (1, 4)}
    assert (choice.chosen, choice.hint) == ((), "")


def test_given_sizes_are_completed():
    choice = chosen(open_sizes(x=["n", "w"]), {"w": (8, 4)})
    assert points(choice)[:2] == [{"n": 1, "w": 8}, {"n": 1, "w": 4}]
    assert choice.hint == "--dimension n=1"


def test_a_name_that_says_nothing_stands_for_all_sizes_that_have_it():
    sizes = open_sizes(x=["?", 3, "?"])
    assert points(chosen(sizes, {"?": (7,)})) == [{"x[0]": 7, "x[2]": 7}]
    assert points(chosen(sizes, {"?": (7,), "x[0]": (2,)})) == [{"x[0]": 2, "x[2]": 7}]


def test_sizes_of_the_users_inputs():
    sizes = open_sizes(x=["n", 3])
    own = [sizes.at({"n": size}) for size in (5, 6, 5)]
    assert points(chosen(sizes, own=own)) == [{"n": 5}, {"n": 6}]
    assert points(chosen(sizes, {"n": (8,)}, own=own)) == [{"n": 8}, {"n": 5}, {"n": 6}]


def test_sizes_that_cannot_be_used():
    sizes = open_sizes(x=["n", "w"])
    with pytest.raises(UserError, match="--dimension m: .* inputs of m leave open; found n, w"):
        chosen(sizes, {"m": (8,)})
    with pytest.raises(UserError, match=r"m does not run at n=1, w=8 \(no\)"):
        chosen(sizes, {"n": (1,), "w": (8,)}, accept=lambda at: at["w"] != 8)
    with pytest.raises(UserError, match=r"m does not run at n=1, w=8 \(no\)"):
        chosen(sizes, {"n": (1,), "w": (4, 8)}, accept=lambda at: at["w"] != 8)
    with pytest.raises(NoInputsError, match="found none by trying .*--dimension n=SIZE w=SIZE"):
        chosen(sizes, accept=lambda _: False)
    with pytest.raises(UsageError, match=f"up to {MOST_POINTS} combinations of sizes, found 16"):
        chosen(sizes, {"n": (1, 2, 3, 4), "w": (1, 2, 3, 4)})


def test_unusual_sizes():
    """0 and 1, each alone and all together; and each place of a name alone, beside the others."""
    sizes = open_sizes(x=["n", "m"], z=["n"])
    found = [dict(one.shapes) for one in sizes.edges(sizes.at({"n": 4, "m": 5}))]
    assert found[:6] == [
        {"x": (1, 5), "z": (1,)},
        {"x": (4, 1), "z": (4,)},
        {"x": (1, 1), "z": (1,)},
        {"x": (0, 5), "z": (0,)},
        {"x": (4, 0), "z": (4,)},
        {"x": (0, 0), "z": (0,)},
    ]
    varied = [(shapes["x"], shapes["z"]) for shapes in found[6:]]
    assert varied == [((1, 5), (4,)), ((6, 5), (4,)), ((4, 5), (1,)), ((4, 5), (6,))]
