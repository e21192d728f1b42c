"""Every operator: its canonical form, its types, and values as onnxruntime computes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from environments.tensor_graphs.execution.backends import backend
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Attributes, Ref, TensorType
from environments.tensor_graphs.onnx_io import write
from environments.tensor_graphs.onnx_io.header import make_header
from environments.tensor_graphs.operators import layout, table
from environments.tensor_graphs.operators.operator import OperatorError
from tests.environments.tensor_graphs.operators.cases import ALL, Case, types_of
from tests.environments.tensor_graphs.operators.test_dimensions import VALUES, value

WHOLE = layout.WHOLE
OPSET = 21


def floats(*shape: int | str) -> TensorType:
    return TensorType("float32", shape)


def inferred(op: str, *types: TensorType, **attributes: object) -> tuple[TensorType, ...]:
    return table.infer(op, types, table.complete(op, attributes, types))


def run(op: str, arrays: Sequence[np.ndarray], attributes: Attributes) -> list[np.ndarray]:
    """Compute a node's outputs by onnxruntime, as an independent implementation of its meaning."""
    edit, types = Graph(make_header(OPSET)).edit(), types_of(arrays)
    inputs = [edit.add(INPUT, [], (("name", f"x{k}"),), [kind]) for k, kind in enumerate(types)]
    outputs = table.infer(op, types, attributes)
    number = edit.add(op, inputs, attributes, outputs).node
    names = [f"y{k}" for k in range(len(outputs))]
    edit.set_outputs([Ref(number, k) for k in range(len(outputs))], names)
    model = write(edit.finish()[0])
    feeds = {f"x{k}": array for k, array in enumerate(arrays)}
    return list(backend("onnxruntime-disable").open(model).run(feeds).values())


def test_there_is_a_case_of_every_operator():
    assert {case.op for case in ALL} == set(table.OPERATORS)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_values_and_types_are_onnx(case: Case):
    arrays = case.arrays()
    types = types_of(arrays)
    attributes = table.complete(case.op, case.attributes, types)
    assert table.complete(case.op, dict(attributes), types) == attributes
    assert table.complete(case.op, dict(attributes)) == attributes
    outputs = table.infer(case.op, types, attributes)
    values = table.evaluate(case.op, arrays, attributes)
    assert types_of(values) == outputs
    expected = run(case.op, arrays, attributes)
    for mine, theirs in zip(values, expected, strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        np.testing.assert_allclose(mine, theirs, rtol=2e-5, atol=2e-5)
    assert table.flops(case.op, types, outputs, attributes) >= 0
    assert table.bytes_moved(types, outputs) > 0
    unknown = [tensor._replace(shape=None) for tensor in types]
    kinds = table.infer(case.op, unknown, attributes)
    assert kinds == tuple(tensor._replace(shape=None) for tensor in outputs)


def changed(rng: np.random.Generator, value: object) -> object:
    """Draw another value of the same kind."""
    if isinstance(value, tuple):
        return tuple(changed(rng, item) if rng.random() < 0.4 else item for item in value)
    if isinstance(value, bool | int):
        return int(rng.integers(-2, 5))
    return value


def mutated(rng: np.random.Generator, case: Case) -> Case:
    """Change some sizes and attributes of a case."""
    inputs = []
    for spec in case.inputs:
        kind, shape = spec if spec and isinstance(spec[0], str) else ("float32", spec)
        shape = tuple(int(rng.integers(1, 6)) if rng.random() < 0.15 else n for n in shape)
        inputs.append((kind, shape))
    values = {**table.OPERATORS[case.op].attributes, **case.attributes}
    attributes = {
        name: changed(rng, value) if rng.random() < 0.4 else value for name, value in values.items()
    }
    return Case(case.op, tuple(inputs), attributes)


def random_nodes(op: str, seed: int, count: int) -> Iterator[tuple[Case, list, Attributes, tuple]]:
    """Yield nodes with random attributes that the operator takes, and their arrays and types."""
    rng = np.random.default_rng(seed)
    cases = [case for case in ALL if case.op == op]
    for trial in range(count):
        case = mutated(rng, cases[trial % len(cases)])
        arrays = case.arrays(trial)
        try:
            attributes = table.complete(op, case.attributes, types_of(arrays))
            yield case, arrays, attributes, table.infer(op, types_of(arrays), attributes)
        except OperatorError as error:
            assert str(error).startswith(f"{op}: ")
            assert "\n" not in str(error)


ODD = ["Conv", "ConvTranspose", "MaxPool", "AveragePool", "Slice", "Pad", "Gemm", "Split"]


@pytest.mark.parametrize("op", sorted(table.OPERATORS))
def test_random_nodes(op):
    """They are refused in one line, or have the inferred type and, of ODD, onnxruntime's values."""
    num_run = 0
    for case, arrays, attributes, expected in random_nodes(op, sum(map(ord, op)), 60):
        if op == "Gather" and arrays[0].shape[dict(attributes)["axis"]] < 3:
            continue
        outputs = table.evaluate(op, arrays, attributes)
        assert types_of(list(outputs)) == expected, case
        if op in ODD and num_run < 15:
            num_run += 1
            for pair in zip(outputs, run(op, arrays, attributes), strict=True):
                np.testing.assert_allclose(*pair, rtol=2e-5, atol=2e-5, err_msg=str(case))
    assert op not in ODD or num_run > 5


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
        types = [TensorType("int64", (size,))]
        attributes = table.complete("Slice", bounds, types)
        (y,) = table.evaluate("Slice", [x], attributes)
        assert y.tolist() == x[start:end:step].tolist()
        (kind,) = table.infer("Slice", types, attributes)
        assert kind.shape == (len(y),)
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
    ("op", "shapes", "attributes", "expected"),
    [
        ("Add", [("N", 1), ("N", "S")], {}, ("N", "S")),
        ("Add", [("N",), (4,)], {}, (4,)),
        ("MatMul", [("N", 2, "S", 4), ("N", 2, 4, "S")], {}, ("N", 2, "S", "S")),
        ("Conv", [(1, 3, "H", "W"), (4, 3, 3, 3)], {"pads": (1,) * 4, "strides": (2, 2)},
         (1, 4, "((H+1)//2)", "((W+1)//2)")),
        ("ConvTranspose", [("N", 3, "H", 4), (3, 2, 2, 2)], {"strides": (2, 2)},
         ("N", 2, "2*H", 8)),
        ("MaxPool", [("N", 3, "H", 8)], {"kernel_shape": (2, 2), "strides": (2, 2)},
         ("N", 3, "((H)//2)", 4)),
        ("Concat", [("N", 3), ("N", 3)], {"axis": 0}, ("2*N", 3)),
        ("Slice", [("N", "S")], {"starts": (1,), "ends": (2**63 - 1,), "axes": (1,)},
         ("N", "S-1")),
        ("Gather", [(9, 4), ("N", "S")], {}, ("N", "S", 4)),
        ("DepthToSpace", [("N", 8, "H", 2)], {"blocksize": 2}, ("N", 2, "2*H", 4)),
    ],
)  # fmt: skip
def test_unknown_sizes(op, shapes, attributes, expected):
    types = [floats(*shape) for shape in shapes]
    if op == "Gather":
        types[1] = types[1]._replace(dtype="int64")
    (kind,) = inferred(op, *types, **attributes)
    assert [str(size) for size in kind.shape] == [str(size).strip() for size in expected]


@pytest.mark.parametrize("case", ALL, ids=str)
def test_a_size_that_gets_a_name_gives_the_same_types(case: Case, monkeypatch):
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
    monkeypatch.setitem(VALUES, "N", types[0].shape[0])
    shapes = [tuple(value(size) for size in kind.shape) for kind in kinds]
    assert shapes == [kind.shape for kind in expected]


X, INTEGERS, TRUTH = floats(2, 3, 4), TensorType("int64", (4,)), TensorType("bool", (4,))


@pytest.mark.parametrize(
    ("op", "types", "attributes"),
    [
        ("Add", [X], {}),
        ("Add", [X, X, X], {}),
        ("Add", [X, INTEGERS], {}),
        ("Add", [floats("N"), floats("S")], {}),
        ("Add", [X, None], {}),
        ("Exp", [INTEGERS], {}),
        ("Where", [X, X, X], {}),
        ("Not", [X], {}),
        ("MatMul", [X, floats()], {}),
        ("Gemm", [floats(2, 3), floats(3, 4), floats(2, 2, 4)], {}),
        ("Gemm", [floats(2, 3), floats(3, 4)], {"beta": 2.0}),
        ("Conv", [floats(1, 3, 4, 4), floats(2, 3, 3, 3), floats(3)], {}),
        ("Conv", [floats(1, 3, 4), floats(2, 3, 3)], {}),
        ("Conv", [floats(1, 3, 4, 4), floats("N", 3, 3, 3)], {}),
        ("BatchNormalization", [floats(1, 3, 4), *[floats(4)] * 4], {}),
        ("BatchNormalization", [floats(4), *[floats(4)] * 4], {}),
        ("LayerNormalization", [X, floats(3)], {"axis": -1}),
        ("Reshape", [floats("A", "B", "C", "D")], {"shape": ("A*B", "C*D")}),
        ("Concat", [X, floats(2, 3)], {"axis": 0}),
        ("Slice", [floats("N")], {"starts": (0,), "ends": (3,)}),
        ("Slice", [X], {"starts": (0,), "ends": (3,), "steps": (-1,)}),
        ("Expand", [floats(1)], {"shape": ("N",)}),
        ("Gather", [X, X], {}),
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
