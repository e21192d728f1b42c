"""What can be wrong with ONNX models, and with files of arrays."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.studies.bad_inputs.damage import PERHAPS, Damage, any_file, contents, flips

_WRONG: Mapping[type, tuple[Any, ...]] = {
    int: (-1, 99, (1 << 31) - 1),
    str: ("", "nothing", "a", "y", "a\0b"),
    bytes: (b"", bytes(40), bytes(80)),
    float: (float("nan"), float("inf")),
}
# Sizes of the first weights, whose bytes stay.
_SIZES = ((1 << 62,), (1 << 62, 1 << 62), (-4, 3), (-4, -3), (3, 4), ())
_EXTERNAL: tuple[dict[str, str], ...] = (
    *({"location": place} for place in ("missing.bin", "../../../../../../etc/passwd", ".")),
    *({"location": place} for place in ("/etc/passwd", "../../../../../../../../dev/zero", "a\0b")),
    {"offset": "0"},
    *({"location": "model.onnx", "offset": place} for place in ("here", "-8", "100000")),
    *({"location": "model.onnx", "length": length} for length in (str(1 << 60), "-48")),
)
# Last nodes: the operator, its inputs ("c" is an array that comes along), attributes.
_NODES: dict[str, tuple[str, list[str], dict[str, Any], Any]] = {
    "a convolution of another rank": ("Conv", ["a", "w"], {}, None),
    "a convolution of negative strides": ("Conv", ["a", "w"], {"strides": [-1]}, None),
    "a reshape to two open sizes": ("Reshape", ["a", "c"], {}, [-1, -1]),
    "a reshape to 2^62 numbers": ("Reshape", ["w", "c"], {}, [1 << 62, 3]),
    "an axis that is not there": ("Softmax", ["a"], {"axis": 7}, None),
    "a permutation that is none": ("Transpose", ["a"], {"perm": [0, 0]}, None),
    "a permutation of another rank": ("Transpose", ["a"], {"perm": [2, 1, 0]}, None),
    "a concatenation of nothing": ("Concat", [], {"axis": 0}, None),
    "a concatenation without an axis": ("Concat", ["a", "a"], {}, None),
    "a cast to no type": ("Cast", ["a"], {"to": 77}, None),
    "a product of shapes that do not fit": ("MatMul", ["w", "w"], {}, None),
    "an attribute of another type": ("Softmax", ["a"], {"axis": "one"}, None),
    "an attribute that is not known": ("Softmax", ["a"], {"colour": 1}, None),
    "a division of integers by zero": ("Mod", ["c", "c"], {}, [0]),
    "padding of too few sizes": ("Pad", ["a", "c"], {}, [1]),
    "a slice with a step of zero": ("Slice", ["w", "c", "c", "c", "c"], {}, [0]),
}
# A copy of these is right: that no inputs are known on which a model runs is no error.
_RUNNING: dict[str, tuple[str, list[str], dict[str, Any], Any]] = {
    "a reshape to too many numbers": ("Reshape", ["w", "c"], {}, [5, 3]),
    "an expansion to 2^62 numbers": ("Expand", ["b", "c"], {}, [1 << 62, 3]),
    "a constant of 2^62 numbers": ("ConstantOfShape", ["c"], {}, [1 << 62, 3]),
    "a constant of 2^40 numbers": ("ConstantOfShape", ["c"], {}, [1 << 40, 3]),
    "a gather out of bounds": ("Gather", ["w", "c"], {}, [99]),
    "negative padding beyond the size": ("Pad", ["w", "c"], {}, [-9, 0, 0, 0]),
    "an equation that is none": ("Einsum", ["a", "w"], {"equation": "ij,j k->>"}, None),
}


def good() -> onnx.ModelProto:
    """Return relu(x w + b), with x [n, 4]."""
    weights = {"w": np.ones((4, 3), np.float32), "b": np.ones(3, np.float32)}
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["m"], "first"),
            helper.make_node("Add", ["m", "b"], ["a"]),
            helper.make_node("Relu", ["a"], ["y"]),
        ],
        "good",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    opset = helper.make_opsetid("", 17)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def models(seed: int) -> list[Damage]:
    """Return what can be wrong with an ONNX model."""
    right = good().SerializeToString()
    return [
        *any_file(right, seed),
        *contents(_with_other_fields(), PERHAPS),
        *contents(_with_other_weights()),
        *contents(_with_other_nodes(_NODES)),
        *contents(_with_other_nodes(_RUNNING), PERHAPS),
        *flips(right, seed, 20),
    ]


def _with_other_fields() -> Iterator[tuple[str, bytes]]:
    """Yield models in which one field has a wrong value, or is missing; some do not matter."""
    for path in _fields(good()):
        name = ".".join(map(str, path))
        model, field = good(), path[-1]
        inside = _inside(model, path)
        value = inside[field] if isinstance(field, int) else getattr(inside, field)
        if not isinstance(field, int):
            inside.ClearField(field)
            yield f"{name} is missing", model.SerializeToString()
        for wrong in _WRONG.get(type(value), ()):
            model = good()
            inside = _inside(model, path)
            if isinstance(field, int):
                inside[field] = wrong
            else:
                setattr(inside, field, wrong)
            yield f"{name} is {wrong!r}", model.SerializeToString()


def _inside(message: Any, path: tuple[Any, ...]) -> Any:
    for part in path[:-1]:
        message = message[part] if isinstance(part, int) else getattr(message, part)
    return message


def _fields(message: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of the fields of a protobuf message that are set, with those inside."""
    for descriptor, value in message.ListFields():
        here = (*path, descriptor.name)
        yield here
        repeated = isinstance(value, str | bytes | int | float) or hasattr(value, "ListFields")
        for index, part in () if repeated else enumerate(value):
            if hasattr(part, "ListFields"):
                yield from _fields(part, (*here, index))
            else:
                yield (*here, index)
        if hasattr(value, "ListFields"):
            yield from _fields(value, here)


def _with_other_weights() -> Iterator[tuple[str, bytes]]:
    for sizes in _SIZES:
        model = good()
        model.graph.initializer[0].dims[:] = sizes
        yield f"weights of the shape {sizes}", model.SerializeToString()
    for entries in _EXTERNAL:
        model = good()
        weights = model.graph.initializer[0]
        weights.ClearField("raw_data")
        weights.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            weights.external_data.add(key=key, value=value)
        yield f"weights elsewhere: {entries}", model.SerializeToString()


def _with_other_nodes(nodes: Mapping[str, Any]) -> Iterator[tuple[str, bytes]]:
    for what, (operator, names, attributes, array) in nodes.items():
        model = good()
        if array is not None:
            model.graph.initializer.append(numpy_helper.from_array(np.array(array), "c"))
        model.graph.node[2].CopyFrom(helper.make_node(operator, names, ["y"], **attributes))
        yield what, model.SerializeToString()
    model = good()
    body = helper.make_graph([helper.make_node("Relu", ["no"], ["z"])], "body", [], [])
    for _ in range(20):
        node = helper.make_node("If", ["nothing"], ["z"], then_branch=body)
        body = helper.make_graph([node], "body", [], [])
    model.graph.node[2].CopyFrom(helper.make_node("If", ["nothing"], ["y"], then_branch=body))
    yield f"bodies 20 deep, without a condition, {len(nodes)}", model.SerializeToString()


def packed(arrays: Mapping[str, Any]) -> bytes:
    """Return the bytes of an .npz file."""
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def forged(arrays: Mapping[str, np.ndarray]) -> Iterator[tuple[str, bytes]]:
    """Yield files of arrays of which one is missing, or of another shape or type."""
    for name, array in arrays.items():
        wrong = {
            "of another shape": np.zeros((*array.shape, 2), array.dtype),
            "longer": np.zeros([size + 1 for size in array.shape] or [2], array.dtype),
            "of no dimension": array.dtype.type(0),
            "of text": np.full(array.shape, "a"),
            "of complex numbers": array.astype(np.complex64),
            "of objects": np.full(array.shape, None, object),
            "of dates": np.zeros(array.shape, "datetime64[s]"),
            "of records": np.zeros(array.shape, [("a", "f4")]),
        }
        rest = {
            rest_name: rest_array for rest_name, rest_array in arrays.items() if rest_name != name
        }
        yield f"without {name}", packed(rest)
        for what, bad in wrong.items():
            yield f"{name} {what}", packed({**rest, name: bad})
        for shape in ((1 << 60,), (-2, 4), "__import__('os')"):
            yield f"{name} declared as {shape}", _declared(name, shape)


def _declared(name: str, shape: Any) -> bytes:
    """Return an .npz file whose array declares a shape and holds 32 bytes."""
    text = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    header = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(f"{name}.npy", header + bytes(32))
    return buffer.getvalue()


def inputs(seed: int) -> list[Damage]:
    """Return what can be wrong with a file of arrays for the inputs of the good model."""
    x = {"x": np.ones((2, 4), np.float32)}
    more = {"one too many": packed({**x, "z": x["x"]}), "doubles": packed({"x": np.ones((2, 4))})}
    # An archive may have bytes in front.
    files = any_file(packed(x), seed, without=("with bytes in front",))
    return [*files, *contents(forged(x)), *contents(more.items())]
