"""Each operator has one canonical form."""

from __future__ import annotations

import numpy as np
import pytest

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Attributes, Ref, TensorType
from environments.tensor_graphs.operators import layout, table
from environments.tensor_graphs.operators.building import add
from environments.tensor_graphs.operators.operator import OperatorError
from tests.environments.tensor_graphs.operators.cases import ALL, Case, types_of

WHOLE = layout.WHOLE


def floats(*shape: int | str) -> TensorType:
    return TensorType("float32", shape)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_completing_twice_changes_nothing(case: Case):
    types = types_of(case.arrays())
    attributes = table.complete(case.op, case.attributes, types)
    assert table.complete(case.op, dict(attributes), types) == attributes
    assert table.complete(case.op, dict(attributes)) == attributes


@pytest.mark.parametrize(
    ("op", "shape", "spelling", "canonical"),
    [
        ("Conv", (1, 3, 8, 8), {}, {"strides": [1, 1], "group": np.int64(1), "pads": (0,) * 4}),
        ("LeakyRelu", (3,), {}, {"alpha": 0.01}),
        ("Elu", (3,), {"alpha": 1}, {"alpha": np.float32(1)}),
        ("LeakyRelu", (3,), {"alpha": 0.1}, {"alpha": float(np.float32(0.1))}),
        ("Softmax", (2, 3), {"axis": -1}, {"axis": 1}),
        ("ReduceMean", (2, 3), {"axes": (-1, 0)}, {"axes": [0, 1], "keepdims": True}),
        ("Reshape", (2, 3, 4), {"shape": (0, -1)}, {"shape": (2, 12)}),
        ("Reshape", ("N", 3, 4), {"shape": (-1, 4)}, {"shape": ("3*N", 4)}),
        ("Reshape", ("N", "S", 4), {"shape": (0, 0, 2, 2)}, {"shape": ("N", "S", 2, 2)}),
        ("Expand", (3, 1), {"shape": (2, 1, 4)}, {"shape": (2, 3, 4)}),
        ("Slice", (5,), {"starts": (-9,), "ends": (-1,)}, {"starts": (0,), "ends": (4,)}),
        ("Slice", (5,), {"starts": (0,), "ends": (4,), "steps": (2,)},
         {"starts": (0,), "ends": (3,), "axes": (0,), "steps": (2,)}),
        ("Slice", (5, 2), {"starts": (0, 1), "ends": (WHOLE, 2)},
         {"starts": (1,), "ends": (2,), "axes": (-1,)}),
        ("Slice", ("N",), {"starts": (1,), "ends": (2**31 - 1,)},
         {"starts": (1,), "ends": (WHOLE,)}),
        ("Shape", (2, 3), {}, {"start": -2, "end": 2}),
    ],
)  # fmt: skip
def test_one_form(op, shape, spelling, canonical):
    types = [floats(*shape)]
    assert table.complete(op, spelling, types) == table.complete(op, canonical, types)


def test_slices_are_those_of_python():
    rng = np.random.default_rng(0)
    forms: dict[Attributes, list[int]] = {}
    for _ in range(300):
        size, step = int(rng.integers(0, 7)), int(rng.integers(1, 4))
        start, end = (int(place) for place in rng.integers(-9, 10, 2))
        x = np.arange(size)
        bounds = {"starts": (start,), "ends": (end,), "axes": (0,), "steps": (step,)}
        attributes = table.complete("Slice", bounds, [TensorType("int64", (size,))])
        (y,) = table.evaluate("Slice", [x], attributes)
        assert y.tolist() == x[start:end:step].tolist()
        assert table.infer("Slice", [TensorType("int64", (size,))], attributes)[0].shape == (
            len(y),
        )
        assert forms.setdefault((*attributes, ("size", size)), y.tolist()) == y.tolist()


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("Conv", {"stride": 1}, "Conv: expected attributes dilations"),
        ("Relu", {"axis": 1}, "Relu: expected attributes none, found axis"),
        ("Softmax", {}, "Softmax: expected axis"),
        ("Softmax", {"axis": 3}, "Softmax: expected an axis in -3 … 2, found 3"),
        ("Nonsense", {}, "expected a known operator, found Nonsense"),
        ("Reshape", {"shape": (5, -1)}, "Reshape: 24 cannot be divided by 5"),
    ],
)
def test_attributes_that_do_not_fit(op, attributes, message):
    with pytest.raises(OperatorError) as raised:
        table.complete(op, attributes, [floats(2, 3, 4)])
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("op", "shape", "attributes", "expected"),
    [
        ("Flatten", (2, 3, 4), {}, (2, 12)),
        ("Flatten", ("N", 3, 4), {"axis": -1}, ("3*N", 4)),
        ("Flatten", (2, 3), {"axis": 0}, (1, 6)),
        ("Squeeze", (1, 3, 1), {"axes": (-1,)}, (1, 3)),
        ("Squeeze", (1, 3, 1), {}, (3,)),
        ("Unsqueeze", ("N", 3), {"axes": (0, -1)}, (1, "N", 3, 1)),
        ("Unsqueeze", (), {"axes": (0, 1)}, (1, 1)),
    ],
)
def test_reshapes_of_other_names(op, shape, attributes, expected):
    edit = Graph().edit()
    x = edit.add(INPUT, (), (("name", "x"),), [floats(*shape)])
    (y,) = add(edit, op, x, **attributes)
    assert edit.node(y.node).op == "Reshape"
    assert edit.type_of(y) == floats(*expected)


@pytest.mark.parametrize(
    ("shape", "target", "request_"),
    [
        ((2, 3), (3, 2), (3, 2)),
        (("N", 3, 4), ("N", 12), (0, 12)),
        (("N", 3, 4), ("3*N", 4), (-1, 4)),
        (("N", "S", 4), ("N*S", 4), (-1, 4)),
        (("N", "S", 4), ("N", "S", 2, 2), (0, 0, 2, 2)),
        (("N", "S"), ("N", 1, "S"), (0, 1, -1)),
        (("N", "S", "T"), (1, "N", "S", "T"), None),
    ],
)
def test_the_shape_argument_of_reshape(shape, target, request_):
    assert layout.reshape_request(shape, target) == request_


def test_outputs_of_a_split():
    edit = Graph().edit()
    x = edit.add(INPUT, (), (("name", "x"),), [floats("N", 5)])
    first, second = add(edit, "Split", x, axis=-1, split=[2, 3])
    assert (first, second) == (Ref(first.node, 0), Ref(first.node, 1))
    assert edit.type_of(second) == floats("N", 3)
    with pytest.raises(OperatorError, match="^Flatten: expected one input of known rank"):
        add(edit, "Flatten", x, x)
