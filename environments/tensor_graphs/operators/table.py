"""All operators.

A node is written down in one way only, its operator's canonical form; the modules of the operators
say which inputs and attributes that has. Of all forms it is true that

- all attributes are there, sorted by name, those of ONNX in ONNX's names;
- numbers with a fraction are those that float32 has (ONNX's attributes are of that type);
- lists are tuples; axes are counted from the front;
- lists that ONNX has as inputs are attributes, inputs that are left out at the end are not there.

What cannot be written so is an Opaque node.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.nodes import Attributes, TensorType, attributes_of
from environments.tensor_graphs.operators import (
    elementwise,
    indexing,
    layout,
    normalizations,
    products,
    reductions,
    windows,
)
from environments.tensor_graphs.operators.algebra import FLOATS, Floats
from environments.tensor_graphs.operators.attributes import canonical, hashable
from environments.tensor_graphs.operators.operator import (
    REQUIRED,
    Operator,
    OperatorError,
    num_elements,
)

Types = Sequence[TensorType | None]

OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for module in (elementwise, indexing, layout, normalizations, products, reductions, windows)
    for operator in module.OPERATORS
}

_MOST_CACHED = 1 << 14


def complete(op: str, values: Mapping[str, Any], inputs: Types | None = None) -> Attributes:
    """Attributes as they are written down.

    Args:
      op: one of OPERATORS.
      values: those that are given; the others get their defaults.
      inputs: types of the inputs. With them, axes may be counted from the end, Reshape's shape may
        have 0 and -1, Slice's places may be as in ONNX, and so on.

    Raises:
      OperatorError: an attribute that the operator has not or needs, or one that does not fit.
    """
    given = tuple(sorted((name, hashable(value)) for name, value in values.items()))
    found = _complete(op, given, None if inputs is None else tuple(inputs))
    if isinstance(found, str):
        raise OperatorError(found)
    return found


def infer(op: str, inputs: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    """Types of the outputs.

    Args:
      op: one of OPERATORS.
      inputs: types of the inputs; of None nothing can be computed.
      attributes: as `complete` gives them.

    Raises:
      OperatorError: the types do not fit, or it cannot be told whether they do.
    """
    found = _infer(op, tuple(inputs), attributes)
    if isinstance(found, str):
        raise OperatorError(found)
    return found


def evaluate(
    op: str, arrays: Sequence[np.ndarray], attributes: Attributes, algebra: Floats = FLOATS
) -> tuple[np.ndarray, ...]:
    """Values of the outputs.

    Nothing is checked: types that `infer` takes are expected, and NumPy must have them (of bfloat16
    there are only the bits).

    Args:
      op: one of OPERATORS.
      arrays: values of the inputs.
      attributes: as `complete` gives them.
      algebra: what numbers are.
    """
    results = OPERATORS[op].evaluate_fn(algebra, arrays, dict(attributes))
    return tuple(np.asarray(result) for result in results)


def flops(op: str, inputs: Types, outputs: Types, attributes: Attributes) -> int:
    """Floating-point operations of a node; a size that is not known counts as 1."""
    return OPERATORS[op].flops_fn(inputs, outputs, dict(attributes))  # type: ignore[arg-type]


def bytes_moved(inputs: Types, outputs: Types) -> int:
    """Bytes that a node reads and writes if each element is touched once."""
    return sum(
        num_elements(tensor) * _size_bytes(tensor.dtype)
        for tensor in (*inputs, *outputs)
        if tensor is not None
    )


@functools.lru_cache(maxsize=_MOST_CACHED)
def _complete(
    op: str, given: tuple[tuple[str, Any], ...], inputs: tuple[TensorType | None, ...] | None
) -> Attributes | str:
    """The message where there is an error: that can be kept, too."""
    operator = OPERATORS.get(op)
    if operator is None:
        return f"expected a known operator, found {op}"
    values = dict(operator.attributes)
    for name, _ in given:
        if name not in values:
            return f"{op}: expected attributes {', '.join(values) or 'none'}, found {name}"
    values.update(given)
    missing = [name for name, value in values.items() if value is REQUIRED]
    if missing:
        return f"{op}: expected {', '.join(missing)}"
    if operator.normalize_fn is not None and inputs is not None:
        if not inputs or any(tensor is None or tensor.shape is None for tensor in inputs):
            return f"{op}: expected inputs of known rank"
        shapes = [tensor.shape for tensor in inputs if tensor is not None]
    else:
        shapes = []
    try:
        values = {name: canonical(name, value) for name, value in values.items()}
        if shapes and operator.normalize_fn is not None:
            operator.normalize_fn(values, shapes)
    except ValueError as error:
        return f"{op}: {error}"
    return attributes_of(values)


@functools.lru_cache(maxsize=_MOST_CACHED)
def _infer(
    op: str, inputs: tuple[TensorType | None, ...], attributes: Attributes
) -> tuple[TensorType, ...] | str:
    operator = OPERATORS.get(op)
    if operator is None:
        return f"expected a known operator, found {op}"
    most = operator.max_inputs
    if len(inputs) < operator.min_inputs or (most is not None and len(inputs) > most):
        return f"{op}: expected inputs {', '.join(operator.inputs)}, found {len(inputs)}"
    if any(tensor is None for tensor in inputs):
        return f"{op}: expected tensors as inputs"
    tensors: list[TensorType] = list(inputs)  # type: ignore[arg-type]
    values = dict(attributes)
    try:
        dtypes = operator.dtypes_fn([tensor.dtype for tensor in tensors], values)
        dtypes *= operator.num_outputs_fn(values)
        if any(tensor.shape is None for tensor in tensors):
            return tuple(TensorType(dtype, None) for dtype in dtypes)
        shapes = operator.shapes_fn([tensor.shape for tensor in tensors], values)
    except OperatorError as error:
        return f"{op}: {error}"
    return tuple(TensorType(*pair) for pair in zip(dtypes, shapes, strict=True))


def _size_bytes(dtype: str) -> int:
    if dtype == "bfloat16":
        return 2
    try:
        return np.dtype(dtype).itemsize
    except TypeError:
        return 1
