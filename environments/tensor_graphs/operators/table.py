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
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import (
    Attribute,
    Attributes,
    Dimension,
    TensorType,
    attributes_of,
)
from environments.tensor_graphs.operators import (
    contrib,
    elementwise,
    layout,
    normalizations,
    products,
    reductions,
    windows,
)
from environments.tensor_graphs.operators.algebra import FLOATS, Floats
from environments.tensor_graphs.operators.operator import (
    REQUIRED,
    Operator,
    OperatorError,
    num_elements,
)

Types = Sequence[TensorType | None]

OPERATORS: Mapping[str, Operator] = {
    operator.name: operator
    for operator in (
        *elementwise.OPERATORS,
        *layout.OPERATORS,
        *normalizations.OPERATORS,
        *products.OPERATORS,
        *reductions.OPERATORS,
        *windows.OPERATORS,
        *contrib.OPERATORS,
    )
}

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
    settings = tuple(sorted((name, _hashable(value)) for name, value in values.items()))
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
        values = {name: _KINDS[name](name, value) for name, value in values.items()}
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


def _hashable(value: Any) -> Any:
    """Convert lists and NumPy's types to tuples and Python's types."""
    if isinstance(value, list | tuple):
        return tuple([_hashable(item) for item in value])
    if isinstance(value, np.ndarray | np.generic):
        return _hashable(value.tolist())
    return value


def _number(name: str, value: Any) -> float:
    """Round a number to float32, and turn -0 into 0."""
    if not isinstance(value, int | float) or math.isnan(value):
        raise ValueError(f"expected a number as {name}, found {value!r}")
    with np.errstate(over="ignore"):
        return float(np.float32(value)) + 0.0


def _integer(name: str, value: Any, smallest: int | None = None) -> int:
    if not isinstance(value, int | float) or value != value // 1:
        raise ValueError(f"expected an integer as {name}, found {value!r}")
    if smallest is not None and value < smallest:
        raise ValueError(f"expected {smallest} or more as {name}, found {value!r}")
    return int(value)


def _count(name: str, value: Any) -> int:
    return _integer(name, value, smallest=1)


def _switch(name: str, value: Any) -> int:
    return int(_integer(name, value) != 0)


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"expected a text as {name}, found {value!r}")
    return value


def _size(name: str, value: Any) -> Dimension:
    return value if isinstance(value, str) else _integer(name, value, -1)


def _list_of(kind: Callable[[str, Any], Any]) -> Callable[[str, Any], tuple[Any, ...]]:
    def canonical_list(name: str, value: Any) -> tuple[Any, ...]:
        if not isinstance(value, tuple):
            raise ValueError(f"expected a list as {name}, found {value!r}")
        return tuple([kind(name, item) for item in value])

    return canonical_list


_KINDS: Mapping[str, Callable[[str, Any], Attribute]] = {
    name: kind
    for names, kind in (
        ("scale alpha beta epsilon gamma max min value", _number),
        ("axis end start", _integer),
        ("num_heads blocksize group", _count),
        ("ceil_mode count_include_pad keepdims transA transB", _switch),
        ("approximate mode to", _text),
        ("axes ends pads perm split starts output_padding", _list_of(_integer)),
        ("dilations kernel_shape repeats steps strides", _list_of(_count)),
        ("shape", _list_of(_size)),
    )
    for name in names.split()
}
"""What brings an attribute's value into its canonical form; raises ValueError for another kind."""
