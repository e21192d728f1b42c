"""Make inputs for models: random ones, or a user's own from an .npz file."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from environments import files
from environments.errors import UserError
from environments.tensor_graphs.execution.sizes import NONE_OPEN, Sizes
from environments.tensor_graphs.onnx_io import scopes

# Operators whose outputs contain the same numbers as their first input.
_CARRIERS = frozenset(
    {"Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Split", "Squeeze",
     "Tile", "Transpose", "Unsqueeze"}
)  # fmt: skip
_NUM_KINDS = 2
_SCALES = (1.0, 0.1, 3.0)
_COMPARING = frozenset({"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_MOST_COMPARED = 16
_NO_INTEGERS = (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16, onnx.TensorProto.DOUBLE)
_SHARE_OF_ENDS = 0.25
_DRAWS: Mapping[str, Callable[[np.random.Generator, tuple[int, ...], float], np.ndarray]] = {
    "normal numbers": lambda random, shape, scale: scale * random.standard_normal(shape),
    "numbers from 0 to 1": lambda random, shape, scale: random.random(shape),
    "numbers from 0 to 255": lambda random, shape, scale: 255 * random.random(shape),
    "numbers near 0": lambda random, shape, scale: 1e-3 * scale * random.standard_normal(shape),
    "large numbers": lambda random, shape, scale: 30 * scale * random.standard_normal(shape),
    "zeros and ones": lambda random, shape, scale: random.integers(2, size=shape),
}
KINDS = tuple(_DRAWS)
"""What random floating-point inputs consist of; usually the first."""


class NoInputsError(UserError):
    """No inputs are known on which a model runs; the user may give some."""


def random_inputs(
    model: onnx.ModelProto, seed: int = 0, sizes: Sizes = NONE_OPEN, kind: str = KINDS[0]
) -> dict[str, np.ndarray]:
    """Draw random inputs that a model can be run on.

    Floating-point numbers are normally distributed; their standard deviation depends on the seed.
    Integers that index a tensor are within its bounds. Those that are compared with constants, as a
    sampling rate that chooses a branch, are one of these. Others are 0 or 1, as in a mask.

    The model's weights are not read. `kind` is one of KINDS.

    Raises:
      UserError: an input does not fit into memory.
      NoInputsError: an input has no shape, or a type for which no random numbers can be drawn.
      ValueError: the model leaves a size open that `sizes` does not have.
    """
    random = np.random.default_rng([seed, 1])
    weights = {weight.name for weight in model.graph.initializer}
    bounds, compared = _known_integers(model)
    inputs = {}
    for value in model.graph.input:
        if value.name not in weights:
            dtype, shape = _type(value, sizes)
            is_image = dtype == np.uint8 and kind == KINDS[2]
            bound = bounds.get(value.name, 256 if is_image else _NUM_KINDS)
            try:
                if dtype.kind == "f":
                    drawn = _DRAWS[kind](random, shape, _SCALES[seed % len(_SCALES)])
                elif dtype.kind in "iu" and value.name in compared:
                    choice = np.roll(compared[value.name], -seed)
                    drawn = random.choice(choice, shape) if shape else choice[0]
                elif dtype.kind in "iub":
                    drawn = random.integers(2 if dtype.kind == "b" else bound, size=shape)
                else:
                    raise NoInputsError(f"no random numbers of type {dtype}; give inputs")
                # Without axes it is a number so far, which onnxruntime does not take.
                inputs[value.name] = np.asarray(drawn, dtype)
            except (MemoryError, ValueError) as error:  # NumPy bounds sizes, too.
                raise UserError(f"input {value.name!r} of {list(shape)}: {error}") from None
    return inputs


def whole_range_inputs(
    model: onnx.ModelProto, seed: int = 0, sizes: Sizes = NONE_OPEN
) -> dict[str, np.ndarray]:
    """Draw random inputs whose integers span the range of their type, where they index nothing.

    A quarter of them are the greatest and the least; the others have any number of bits. Arguments
    and errors are those of `random_inputs`.
    """
    random = np.random.default_rng([seed, 2])
    inputs, (bounds, compared) = random_inputs(model, seed, sizes), _known_integers(model)
    for name, array in inputs.items():
        if array.dtype.kind in "iu" and name not in bounds and name not in compared:
            info = np.iinfo(array.dtype)
            full = random.integers(info.min, info.max, array.shape, array.dtype, endpoint=True)
            drawn = full >> random.integers(0, info.bits, array.shape).astype(array.dtype)
            ends = random.choice(np.array([info.min, info.max], array.dtype), array.shape)
            is_end = random.random(array.shape) < _SHARE_OF_ENDS
            inputs[name] = np.asarray(np.where(is_end, ends, drawn), array.dtype)
    return inputs


def inputs_near(
    anchors: Mapping[str, np.ndarray],
    scale: float,
    model: onnx.ModelProto,
    seed: int = 0,
    sizes: Sizes = NONE_OPEN,
) -> dict[str, np.ndarray]:
    """Draw random inputs near given numbers; other arguments and errors as of `random_inputs`.

    `anchors` has these numbers by name of the input, float64, NaN where there is none; `scale` is
    the standard deviation of the distance from them.
    """
    random = np.random.default_rng([seed, 3])
    inputs = random_inputs(model, seed, sizes)
    for name, anchor in anchors.items():
        array = inputs.get(name)
        if array is None or array.shape != anchor.shape or array.dtype.kind not in "fiu":
            continue
        near = anchor + scale * random.standard_normal(anchor.shape)
        if array.dtype.kind in "iu":
            info = np.iinfo(array.dtype)
            near = np.clip(np.rint(near), float(info.min), np.nextafter(float(info.max), 0))
        with np.errstate(all="ignore"):
            inputs[name] = np.asarray(
                np.where(np.isnan(anchor), array, np.nan_to_num(near).astype(array.dtype))
            )
    return inputs


def load_inputs(path: pathlib.Path, model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Load a user's own inputs from an .npz file: an array for each input of the model, by name.

    Raises:
      UserError: the file is no .npz file, or does not fit the model.
    """
    try:
        arrays = files.read_arrays(path)
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: expected a .npz file of the model's inputs: {error}") from error
    weights = {weight.name for weight in model.graph.initializer}
    expected = {value.name: value for value in model.graph.input}
    for name in expected.keys() - weights - arrays.keys():
        raise UserError(f"{path}: input {name!r} is missing; found {', '.join(arrays) or 'none'}")
    for name, array in arrays.items():
        if name not in expected:
            raise UserError(f"{path}: the model has no input {name!r}, but {', '.join(expected)}")
        _check(path, expected[name], array)
    return arrays


def _check(path: pathlib.Path, value: onnx.ValueInfoProto, array: np.ndarray) -> None:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type"):
        raise UserError(f"{path}: input {value.name!r} is no tensor; an .npz file cannot hold it")
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    declared = [size.dim_value if _is_fixed(size) else "?" for size in tensor.shape.dim]
    fits = not tensor.HasField("shape") or (
        len(declared) == array.ndim
        and all(size in (actual, "?") for size, actual in zip(declared, array.shape, strict=True))
    )
    if array.dtype != dtype or not fits:
        raise UserError(
            f"{path}: input {value.name!r} is {array.dtype}{list(array.shape)}; "
            f"the model expects {dtype}{declared}"
        )


def _is_fixed(size: onnx.TensorShapeProto.Dimension) -> bool:
    """Return whether a file gives a size; a negative one stands for an open one."""
    return size.HasField("dim_value") and size.dim_value >= 0


def _type(value: onnx.ValueInfoProto, sizes: Sizes) -> tuple[np.dtype[Any], tuple[int, ...]]:
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        raise NoInputsError(f"input {value.name!r} is no tensor of known rank; give inputs")
    shape = sizes.shape(value.name)
    if shape is None:
        if not all(map(_is_fixed, tensor.shape.dim)):
            raise ValueError(f"input {value.name!r} leaves a size open")
        shape = tuple(size.dim_value for size in tensor.shape.dim)
    return helper.tensor_dtype_to_np_dtype(tensor.elem_type), shape


def _known_integers(model: onnx.ModelProto) -> tuple[dict[str, int], dict[str, list[int]]]:
    """Return `_bounds` and `_compared`, or nothing if the model has no integers as inputs."""
    types = (value.type.tensor_type.elem_type for value in model.graph.input)
    if all(kind in _NO_INTEGERS for kind in types):
        return {}, {}
    return _bounds(model), _compared(model)


def _bounds(model: onnx.ModelProto) -> dict[str, int]:
    """Return the smallest size that each value indexes, by the value's name."""
    sizes = {name: tuple(tensor.dims) for name, tensor in _constants(model).items()}
    for value in (*model.graph.value_info, *model.graph.input):
        dimensions = value.type.tensor_type.shape.dim
        sizes.setdefault(value.name, tuple(size.dim_value for size in dimensions))
    bounds: dict[str, int] = {}
    for node in reversed(model.graph.node):
        if node.op_type in ("Gather", "GatherElements") and node.input[0] in sizes:
            axes = (attribute.i for attribute in node.attribute if attribute.name == "axis")
            axis = next(axes, 0)
            shape = sizes[node.input[0]]
            if -len(shape) <= axis < len(shape) and shape[axis] > 0:
                _lower(bounds, node.input[1], shape[axis])
        elif node.op_type in _CARRIERS and node.input:
            for output in node.output:
                if output in bounds:
                    _lower(bounds, node.input[0], bounds[output])
    return bounds


def _compared(model: onnx.ModelProto) -> dict[str, list[int]]:
    """Return the integers that each value is compared with, by the value's name."""
    constants = _constants(model)
    integers: dict[str, list[int]] = {}
    for node in reversed([*_nodes(model.graph)]):
        if node.op_type in _COMPARING:
            for name, constant in (node.input, reversed(node.input)):
                if constant in constants and name not in constants:
                    integers.setdefault(name, []).extend(_integers(constants[constant]))
        elif node.op_type in _CARRIERS and node.input:
            for output in node.output:
                integers.setdefault(node.input[0], []).extend(integers.get(output, ()))
    return {name: [*dict.fromkeys(numbers)] for name, numbers in integers.items() if numbers}


def _constants(model: onnx.ModelProto) -> dict[str, onnx.TensorProto]:
    """Return the weights of a model, and what its Constant nodes hold, by name."""
    constants = {weight.name: weight for weight in model.graph.initializer}
    for node in _nodes(model.graph):
        if node.op_type == "Constant":
            tensors = (attribute.t for attribute in node.attribute if attribute.HasField("t"))
            constants.update((node.output[0], tensor) for tensor in tensors)
    return constants


def _nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """Yield the nodes of a graph; those of bodies come after the node that has them."""
    for node in graph.node:
        yield node
        for body in scopes.subgraphs(node):
            yield from _nodes(body)


def _integers(tensor: onnx.TensorProto) -> list[int]:
    """Return the elements of a small tensor of integers; nothing for any other."""
    is_small = math.prod(tensor.dims) <= _MOST_COMPARED
    if not is_small or tensor.data_location == onnx.TensorProto.EXTERNAL:
        return []
    array = numpy_helper.to_array(tensor)
    return array.reshape(-1).tolist() if array.dtype.kind in "iu" else []


def _lower(bounds: dict[str, int], name: str, bound: int) -> None:
    bounds[name] = min(bound, bounds.get(name, bound))
