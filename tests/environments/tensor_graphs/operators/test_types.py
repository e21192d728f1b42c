"""Inferred types: unknown sizes, unknown ranks, and inputs that do not fit."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.graph.nodes import TensorType
from environments.tensor_graphs.operators import table
from environments.tensor_graphs.operators.operator import OperatorError
from tests.environments.tensor_graphs.operators.cases import ALL, Case, types_of
from tests.environments.tensor_graphs.operators.test_dimensions import VALUES, value


def floats(*shape: int | str) -> TensorType:
    return TensorType("float32", shape)


def inferred(op: str, *types: TensorType, **attributes: object) -> tuple[TensorType, ...]:
    return table.infer(op, types, table.complete(op, attributes, types))


@pytest.mark.parametrize(
    ("op", "shapes", "attributes", "expected"),
    [
        ("Add", [("N", 3), (3,)], {}, ("N", 3)),
        ("Add", [("N", 1), ("N", "S")], {}, ("N", "S")),
        ("Add", [("N",), (4,)], {}, (4,)),
        ("MatMul", [("N", "S", 4), (4, 5)], {}, ("N", "S", 5)),
        ("MatMul", [("N", 2, "S", 4), ("N", 2, 4, "S")], {}, ("N", 2, "S", "S")),
        ("Gemm", [("N", 4), (4, 5), (5,)], {}, ("N", 5)),
        ("Conv", [("N", 3, "H", 7), (4, 3, 3, 3)], {"pads": (1,) * 4}, ("N", 4, "H", 7)),
        ("Conv", [(1, 3, "H", "W"), (4, 3, 3, 3)], {"pads": (1,) * 4, "strides": (2, 2)},
         (1, 4, "((H+1)//2)", "((W+1)//2)")),
        ("ConvTranspose", [("N", 3, "H", 4), (3, 2, 2, 2)], {"strides": (2, 2)},
         ("N", 2, "2*H", 8)),
        ("MaxPool", [("N", 3, "H", 8)], {"kernel_shape": (2, 2), "strides": (2, 2)},
         ("N", 3, "((H)//2)", 4)),
        ("Concat", [("N", 3), ("N", 4)], {"axis": 1}, ("N", 7)),
        ("Concat", [("N", 3), ("N", 3)], {"axis": 0}, ("2*N", 3)),
        ("Slice", [("N", "S")], {"starts": (1,), "ends": (2**63 - 1,), "axes": (1,)},
         ("N", "S-1")),
        ("Pad", [("N", 3)], {"pads": (1, 0, 1, 2)}, ("N+2", 5)),
        ("Tile", [("N", 3)], {"repeats": (2, 2)}, ("2*N", 6)),
        ("Gather", [(9, 4), ("N", "S")], {}, ("N", "S", 4)),
        ("Expand", [("N", 1)], {"shape": ("N", 5)}, ("N", 5)),
        ("DepthToSpace", [("N", 8, "H", 2)], {"blocksize": 2}, ("N", 2, "2*H", 4)),
        ("ReduceMean", [("N", "S")], {"axes": (1,), "keepdims": 0}, ("N",)),
    ],
)  # fmt: skip
def test_unknown_sizes(op, shapes, attributes, expected):
    types = [floats(*shape) for shape in shapes]
    if op == "Gather":
        types[1] = types[1]._replace(dtype="int64")
    (kind,) = inferred(op, *types, **attributes)
    assert [str(size) for size in kind.shape] == [str(size).strip() for size in expected]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_size_that_gets_a_name_gives_the_same_types(case: Case):
    """Name the first axis of the first input; its value put for the name gives the known type."""
    types = types_of(case.arrays())
    attributes = table.complete(case.op, case.attributes, types)
    expected = table.infer(case.op, types, attributes)
    if not types[0].shape:
        return
    named = []
    for tensor in types:
        shape = tensor.shape
        is_first = len(shape) == len(types[0].shape) and shape[0] == types[0].shape[0]
        named.append(tensor._replace(shape=("N", *shape[1:])) if is_first else tensor)
    try:
        kinds = inferred(case.op, *named, **case.attributes)
    except OperatorError:
        return
    before = VALUES["N"]
    VALUES["N"] = types[0].shape[0]
    try:
        for mine, theirs in zip(kinds, expected, strict=True):
            assert tuple(value(size) for size in mine.shape) == theirs.shape
    finally:
        VALUES["N"] = before


@pytest.mark.parametrize("case", ALL, ids=str)
def test_unknown_ranks(case: Case):
    types = types_of(case.arrays())
    attributes = table.complete(case.op, case.attributes, types)
    expected = table.infer(case.op, types, attributes)
    unknown = [tensor._replace(shape=None) for tensor in types]
    kinds = table.infer(case.op, unknown, attributes)
    assert kinds == tuple(TensorType(tensor.dtype, None) for tensor in expected)


X, INTEGERS, TRUTH = floats(2, 3, 4), TensorType("int64", (4,)), TensorType("bool", (4,))


@pytest.mark.parametrize(
    ("op", "types", "attributes"),
    [
        ("Add", [X], {}),
        ("Add", [X, X, X], {}),
        ("Add", [X, INTEGERS], {}),
        ("Add", [X, floats(3)], {}),
        ("Add", [floats("N"), floats("S")], {}),
        ("Add", [X, None], {}),
        ("Exp", [INTEGERS], {}),
        ("Where", [X, X, X], {}),
        ("Not", [X], {}),
        ("MatMul", [X, X], {}),
        ("MatMul", [X, floats()], {}),
        ("Gemm", [floats(2, 3), floats(3, 4), floats(2, 2, 4)], {}),
        ("Gemm", [floats(2, 3), floats(3, 4)], {"beta": 2.0}),
        ("Gemm", [floats(2, 3), floats(4, 3)], {}),
        ("Conv", [floats(1, 3, 4, 4), floats(2, 2, 3, 3)], {}),
        ("Conv", [floats(1, 3, 4, 4), floats(2, 3, 5, 5)], {}),
        ("Conv", [floats(1, 3, 4, 4), floats(2, 3, 3, 3), floats(3)], {}),
        ("Conv", [floats(1, 3, 4), floats(2, 3, 3)], {}),
        ("Conv", [floats(1, 3, 4, 4), floats("N", 3, 3, 3)], {}),
        ("ConvTranspose", [floats(1, 3, 4, 4), floats(2, 3, 3, 3)], {}),
        ("MaxPool", [floats(1, 3, 4, 4)], {"kernel_shape": (2, 2), "pads": (2, 0, 0, 0)}),
        ("MaxPool", [floats(1, 3, 4, 4)], {"kernel_shape": (2,)}),
        ("BatchNormalization", [floats(1, 3, 4), *[floats(4)] * 4], {}),
        ("LayerNormalization", [X, floats(3)], {"axis": -1}),
        ("Softmax", [X], {"axis": 3}),
        ("Transpose", [X], {"perm": (0, 1)}),
        ("Transpose", [X], {"perm": (0, 1, 1)}),
        ("Reshape", [X], {"shape": (5, 5)}),
        ("Reshape", [floats("A", "B", "C", "D")], {"shape": ("A*B", "C*D")}),
        ("Concat", [X, floats(2, 3)], {"axis": 0}),
        ("Concat", [X, floats(3, 3, 4)], {"axis": 1}),
        ("Split", [X], {"axis": 1, "split": (1, 1)}),
        ("Slice", [floats("N")], {"starts": (0,), "ends": (3,)}),
        ("Slice", [X], {"starts": (0,), "ends": (3,), "steps": (-1,)}),
        ("Pad", [X], {"pads": (1, 1)}),
        ("Pad", [X], {"pads": (0, 0, 0, -1, 0, 0)}),
        ("Expand", [X], {"shape": (2, 2, 4)}),
        ("Expand", [floats(1)], {"shape": ("N",)}),
        ("Tile", [X], {"repeats": (2,)}),
        ("Gather", [X, X], {}),
        ("DepthToSpace", [floats(1, 3, 2, 2)], {"blocksize": 2}),
        ("SpaceToDepth", [floats(1, 3, 3, 2)], {"blocksize": 2}),
        ("ReduceMean", [X], {"axes": (3,)}),
    ],
)
def test_inputs_that_do_not_fit(op, types, attributes):
    with pytest.raises(OperatorError) as raised:
        table.infer(op, types, table.complete(op, attributes, None if None in types else types))
    assert str(raised.value).startswith(f"{op}: ")
    assert "\n" not in str(raised.value)


def test_flops_and_bytes():
    x, w = floats(1, 3, 8, 8), floats(4, 3, 3, 3)
    attributes = table.complete("Conv", {"pads": (1, 1, 1, 1)})
    outputs = table.infer("Conv", [x, w], attributes)
    assert table.flops("Conv", [x, w], outputs, attributes) == 2 * 4 * 64 * 27
    assert table.bytes_moved([x, w], outputs) == 4 * (3 * 64 + 4 * 27 + 4 * 64)
    a, b = floats("N", 5), floats(5, 7)
    attributes = table.complete("Gemm", {})
    outputs = table.infer("Gemm", [a, b], attributes)
    assert table.flops("Gemm", [a, b], outputs, attributes) == 2 * 7 * 5


@pytest.mark.parametrize("case", ALL, ids=str)
def test_every_operator_has_flops(case: Case):
    types = types_of(case.arrays())
    attributes = table.complete(case.op, case.attributes, types)
    outputs = table.infer(case.op, types, attributes)
    assert table.flops(case.op, types, outputs, attributes) >= 0
    assert table.bytes_moved(types, outputs) > 0
