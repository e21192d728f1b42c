"""What can be wrong with ONNX models, and with arrays for their inputs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tools.studies.bad_inputs.damage import (
    PERHAPS,
    Damage,
    arrays_file,
    damages,
    files,
    flips,
    wrong_arrays,
)

_WRONG: dict[type, tuple[Any, ...]] = {
    int: (-1, 99, (1 << 31) - 1),
    str: ("", "nothing", "a", "y", "a\0b"),
    bytes: (b"", bytes(40), bytes(80)),
    float: (float("nan"), float("inf")),
}
# Sizes of the first weights, whose bytes stay.
_SIZES = ((1 << 62,), (1 << 62, 1 << 62), (-4, 3), (-4, -3), (3, 4), ())
_OUT = "../../../../../../"
_EXTERNAL: tuple[dict[str, str], ...] = (
    *({"location": place} for place in ("missing.bin", f"{_OUT}etc/passwd", ".", "/etc/passwd")),
    *({"location": place} for place in (f"{_OUT}{_OUT}dev/zero", "a\0b")),
    {"offset": "0"},
    *({"location": "model.onnx", "offset": place} for place in ("here", "-8", "100000")),
    *({"location": "model.onnx", "length": length} for length in (str(1 << 60), "-48")),
)
# Last nodes: the operator, its inputs ("c" is an array that comes along), attributes, that array.
_Node = tuple[str, list[str], dict[str, Any], Any]
_NODES: tuple[_Node, ...] = (
    ("Conv", ["a", "w"], {}, None),
    ("Conv", ["a", "w"], {"strides": [-1]}, None),
    ("Reshape", ["a", "c"], {}, [-1, -1]),
    ("Reshape", ["w", "c"], {}, [1 << 62, 3]),
    ("Softmax", ["a"], {"axis": 7}, None),
    ("Softmax", ["a"], {"axis": "one"}, None),
    ("Softmax", ["a"], {"colour": 1}, None),
    ("Transpose", ["a"], {"perm": [0, 0]}, None),
    ("Transpose", ["a"], {"perm": [2, 1, 0]}, None),
    ("Concat", [], {"axis": 0}, None),
    ("Concat", ["a", "a"], {}, None),
    ("Cast", ["a"], {"to": 77}, None),
    ("MatMul", ["w", "w"], {}, None),
    ("Mod", ["c", "c"], {}, [0]),
    ("Pad", ["a", "c"], {}, [1]),
    ("Slice", ["w", "c", "c", "c", "c"], {}, [0]),
)
# A copy of these is right: that no inputs are known on which a model runs is no error.
_RUNNING: tuple[_Node, ...] = (
    ("Reshape", ["w", "c"], {}, [5, 3]),
    ("Expand", ["b", "c"], {}, [1 << 62, 3]),
    ("ConstantOfShape", ["c"], {}, [1 << 62, 3]),
    ("ConstantOfShape", ["c"], {}, [1 << 40, 3]),
    ("Gather", ["w", "c"], {}, [99]),
    ("Pad", ["w", "c"], {}, [-9, 0, 0, 0]),
    ("Einsum", ["a", "w"], {"equation": "ij,j k->>"}, None),
)


def right() -> onnx.ModelProto:
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


MODEL = right().SerializeToString()


def models(seed: int) -> list[Damage]:
    """Return what can be wrong with an ONNX model."""
    return [
        *files(MODEL),
        *damages(_with_other_fields(), PERHAPS),
        *damages(_with_other_weights()),
        *damages(_with_last_node(*node) for node in _NODES),
        *damages((_with_last_node(*node) for node in _RUNNING), PERHAPS),
        *damages([_with_deep_bodies()]),
        *flips(MODEL, seed, 20),
    ]


def _with_other_fields() -> Iterator[tuple[str, bytes]]:
    """Yield models in which one field has a wrong value, or is missing; some do not matter."""
    for path in _fields(right()):
        name, *outer, field = ".".join(map(str, path)), *path
        model, inside = _opened(outer)
        value = inside[field] if isinstance(field, int) else getattr(inside, field)
        if not isinstance(field, int):
            inside.ClearField(field)
            yield f"{name} is missing", model.SerializeToString()
        for wrong in _WRONG.get(type(value), ()):
            model, inside = _opened(outer)
            if isinstance(field, int):
                inside[field] = wrong
            else:
                setattr(inside, field, wrong)
            yield f"{name} is {wrong!r}", model.SerializeToString()


def _opened(path: list[Any]) -> tuple[onnx.ModelProto, Any]:
    """Return a new right model, and what lies in it at a path."""
    model = inside = right()
    for part in path:
        inside = inside[part] if isinstance(part, int) else getattr(inside, part)
    return model, inside


def _fields(message: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of the fields of a protobuf message that are set, with those inside."""
    for descriptor, value in message.ListFields():
        here = (*path, descriptor.name)
        yield here
        is_repeated = descriptor.label == descriptor.LABEL_REPEATED
        parts = enumerate(value) if is_repeated else [(None, value)]
        for index, part in parts:
            at = (*here, index) if is_repeated else here
            if hasattr(part, "ListFields"):
                yield from _fields(part, at)
            elif is_repeated:
                yield at


def _with_other_weights() -> Iterator[tuple[str, bytes]]:
    for sizes in _SIZES:
        model = right()
        model.graph.initializer[0].dims[:] = sizes
        yield f"weights of the shape {sizes}", model.SerializeToString()
    for entries in _EXTERNAL:
        model = right()
        weights = model.graph.initializer[0]
        weights.ClearField("raw_data")
        weights.data_location = TensorProto.EXTERNAL
        for key, value in entries.items():
            weights.external_data.add(key=key, value=value)
        yield f"weights elsewhere: {entries}", model.SerializeToString()


def _with_last_node(
    operator: str, names: list[str], attributes: dict[str, Any], array: Any
) -> tuple[str, bytes]:
    model = right()
    if array is not None:
        model.graph.initializer.append(numpy_helper.from_array(np.array(array), "c"))
    model.graph.node[2].CopyFrom(helper.make_node(operator, names, ["y"], **attributes))
    return f"{operator}({', '.join(names)}) {attributes} {array}", model.SerializeToString()


def _with_deep_bodies() -> tuple[str, bytes]:
    model = right()
    body = helper.make_graph([helper.make_node("Relu", ["no"], ["z"])], "body", [], [])
    for _ in range(20):
        node = helper.make_node("If", ["nothing"], ["z"], then_branch=body)
        body = helper.make_graph([node], "body", [], [])
    model.graph.node[2].CopyFrom(helper.make_node("If", ["nothing"], ["y"], then_branch=body))
    return "bodies 20 deep, without a condition", model.SerializeToString()


def inputs(seed: int) -> list[Damage]:
    """Return what can be wrong with a file of arrays for the inputs of the right model."""
    x = {"x": np.ones((2, 4), np.float32)}
    more = {
        "one too many": arrays_file({**x, "z": x["x"]}),
        "doubles": arrays_file({"x": np.ones((2, 4))}),
    }
    # An archive may have bytes in front.
    archives = [damage for damage in files(arrays_file(x)) if "in front" not in damage.what]
    return [*archives, *damages(wrong_arrays(x)), *damages(more)]
