"""The table of all operators, and functions that infer types and compute values with it.

Each operator has one canonical form, so equal computations are equal nodes. The module in which an
operator is defined says which inputs and attributes its form has. In all forms

- all attributes are given, sorted by name, and have ONNX's names;
- floating-point attributes are rounded to float32, ONNX's type for them;
- lists are tuples, and axes are counted from the front;
- lists that ONNX passes as inputs are attributes, and inputs that are left out at the end are
  missing.

A node that cannot be written in this form is an Opaque node.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import Attributes, TensorType, attributes_of
from environments.tensor_graphs.operators import (
    contrib,
    elementwise,
    indexing,
    layout,
    normalizations,
    numbers,
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

_MODULES = (
    elementwise,
    indexing,
    layout,
    normalizations,
    products,
    reductions,
    windows,
    contrib,
)

OPERATORS: Mapping[str, Operator] = {
    operator.name: operator for module in _MODULES for operator in module.OPERATORS
}

numbers.check(OPERATORS)

_MOST_CACHED = 1 << 14


def complete(op: str, values: Mapping[str, Any], inputs: Types | None = None) -> Attributes:
    """Complete the attributes of a node and bring them into their canonical form.

    Args:
      op: one of OPERATORS.
      values: some attributes by name; the others get their defaults.
      inputs: types of the inputs. If they are given, `values` may be as in ONNX: axes counted from
        the end, 0 and -1 in Reshape's shape, negative starts and ends of Slice, and so on.

    Raises:
      OperatorError: an attribute is unknown, missing, or not valid.
    """
    settings = tuple(sorted((name, hashable(value)) for name, value in values.items()))
    completed = _complete(op, settings, None if inputs is None else tuple(inputs))
    if isinstance(completed, str):
        raise OperatorError(completed)
    return completed


def infer(op: str, inputs: Types, attributes: Attributes) -> tuple[TensorType, ...]:
    """Infer the types of a node's outputs.

    The attributes are those that `complete` returns. None among the inputs stands for a value that
    is not a tensor, and is refused.

    Raises:
      OperatorError: the operator does not take these inputs, or unknown sizes decide whether it
        does.
    """
    types = _infer(op, tuple(inputs), attributes)
    if isinstance(types, str):
        raise OperatorError(types)
    return types


def evaluate(
    op: str, arrays: Sequence[np.ndarray], attributes: Attributes, algebra: Floats = FLOATS
) -> tuple[np.ndarray, ...]:
    """Compute the values of a node's outputs.

    The inputs are not checked. Their types must be ones that `infer` accepts and that NumPy can
    compute with (not bfloat16).
    """
    results = OPERATORS[op].evaluate_fn(algebra, *arrays, **dict(attributes))
    return tuple(map(np.asarray, results if isinstance(results, list) else [results]))


def flops(op: str, inputs: Types, outputs: Types, attributes: Attributes) -> int:
    """Count the floating-point operations of a node; unknown sizes count as 1."""
    count = OPERATORS[op].flops
    if callable(count):
        return count(inputs, outputs[0], dict(attributes))
    return count * sum(map(num_elements, outputs))


def bytes_moved(inputs: Types, outputs: Types) -> int:
    """Count the bytes that a node reads and writes if it touches each element once."""
    return sum(
        num_elements(tensor) * _size_bytes(tensor.dtype)
        for tensor in (*inputs, *outputs)
        if tensor is not None
    )


@functools.lru_cache(maxsize=_MOST_CACHED)
def _complete(
    op: str, settings: tuple[tuple[str, Any], ...], inputs: tuple[TensorType | None, ...] | None
) -> Attributes | str:
    """Complete attributes; errors are returned as messages, so that they are cached too."""
    operator = OPERATORS.get(op)
    if operator is None:
        return f"expected a known operator, found {op}"
    values = dict(operator.attributes)
    for name, _ in settings:
        if name not in values:
            return f"{op}: expected attributes {', '.join(values) or 'none'}, found {name}"
    values.update(settings)
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
        dtype = operator.dtype_fn(*[tensor.dtype for tensor in tensors], **values)
        if any(tensor.shape is None for tensor in tensors):
            return (TensorType(dtype, None),) * operator.num_outputs_fn(values)
        shapes = operator.shape_fn(*[tensor.shape for tensor in tensors], **values)
    except OperatorError as error:
        return f"{op}: {error}"
    return tuple(
        TensorType(dtype, shape) for shape in (shapes if isinstance(shapes, list) else [shapes])
    )


def _size_bytes(dtype: str) -> int:
    if dtype == "bfloat16":
        return 2
    try:
        return np.dtype(dtype).itemsize
    except TypeError:
        return 1
