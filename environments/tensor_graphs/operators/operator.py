"""The definition of an operator, and functions that definitions share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from environments.tensor_graphs.graph.nodes import Dimension, TensorType

Shape = tuple[Dimension, ...]
Values = dict[str, Any]
"""Values of attributes by name."""

FLOAT_TYPES = frozenset({"float16", "bfloat16", "float32", "float64"})


class OperatorError(ValueError):
    """An operator does not take the given inputs or attributes; the message is one line."""


REQUIRED: Any = object()
"""Stands for the default of an attribute that has none."""


def same_dtype(*dtypes: str, **_: Any) -> str:
    """Return the element type of the outputs, which all inputs must have; else OperatorError."""
    first = dtypes[0]
    for dtype in dtypes:
        if dtype != first:
            raise OperatorError(f"expected inputs of one type, found {first} and {dtype}")
    return first


def float_dtype(*dtypes: str, **_: Any) -> str:
    """Return the floating-point type that all inputs must have; else OperatorError."""
    if dtypes[0] not in FLOAT_TYPES:
        raise OperatorError(f"expected floating-point numbers, found {dtypes[0]}")
    return same_dtype(*dtypes)


class Operator:
    """An operator in its canonical form.

    Its functions get what belongs to the inputs one by one, and the attributes by name.

    Args:
      name: ONNX's name.
      inputs: names of the inputs, side by side; "b?" may be left out, "*x" stands for one or more.
      shape_fn: maps the inputs' shapes, all of known rank, to the output's shape, or to a list of
        those of several outputs; raises OperatorError if they do not fit.
      evaluate_fn: maps an algebra and the inputs' arrays to the output's array, or to a list of
        those of several outputs.
      flops: floating-point operations for each element of the output; a multiplication and an
        addition are two. Or a function that maps the inputs' types, the output's type and the
        attributes to the number of all operations.
      dtype_fn: maps the inputs' element types to that of the outputs; raises OperatorError if they
        do not fit.
      normalize_fn: changes attributes in place to their canonical values, given the inputs' shapes.
        By default, `axis` is counted from the front.
      num_outputs_fn: maps the attributes to the number of outputs.
      commutative: whether the first two inputs may be exchanged.
      **attributes: defaults of all attributes; REQUIRED for those without.
    """

    def __init__(
        self,
        name: str,
        inputs: str,
        shape_fn: Callable[..., Any],
        evaluate_fn: Callable[..., Any],
        flops: int | Callable[[Sequence[Any], Any, Values], int] = 0,
        *,
        dtype_fn: Callable[..., str] = same_dtype,
        normalize_fn: Callable[[Values, Sequence[Any]], None] | None = None,
        num_outputs_fn: Callable[[Values], int] = lambda attributes: 1,
        commutative: bool = False,
        **attributes: Any,
    ) -> None:
        self.name = name
        self.inputs = tuple(inputs.split())
        self.shape_fn, self.evaluate_fn, self.dtype_fn = shape_fn, evaluate_fn, dtype_fn
        self.flops = flops
        if normalize_fn is None and "axis" in attributes:
            normalize_fn = _normalize_axis
        self.normalize_fn, self.num_outputs_fn = normalize_fn, num_outputs_fn
        self.commutative = commutative
        self.attributes = attributes

    @property
    def min_inputs(self) -> int:
        """The smallest number of inputs."""
        return sum(not name.endswith("?") for name in self.inputs)

    @property
    def max_inputs(self) -> int | None:
        """The largest number of inputs; None if there is no limit."""
        return None if self.inputs[-1].startswith("*") else len(self.inputs)


def num_elements(tensor: TensorType | None) -> int:
    """Count a tensor's elements; unknown sizes count as 1, and a tensor of unknown rank has 0."""
    if tensor is None or tensor.shape is None:
        return 0
    count = 1
    for size in tensor.shape:
        count *= size if isinstance(size, int) else 1
    return count


def flops_per_input(count: int) -> Callable[..., int]:
    """Make a function that counts so many operations for each element of the first input."""
    return lambda inputs, output, attributes: count * num_elements(inputs[0])


def checked_axis(axis: int, rank: int) -> int:
    """Return an axis that is counted from the front; OperatorError if there is no such axis."""
    if not 0 <= axis < rank:
        raise OperatorError(f"expected an axis in 0 … {rank - 1}, found {axis}")
    return axis


def from_the_front(axis: int, rank: int) -> int:
    """Count an axis from the front, as from -1 back; OperatorError if there is no such axis."""
    if not -rank <= axis < rank:
        raise OperatorError(f"expected an axis in {-rank} … {rank - 1}, found {axis}")
    return axis % rank if rank else axis


def _normalize_axis(attributes: Values, shapes: Sequence[Any]) -> None:
    attributes["axis"] = from_the_front(attributes["axis"], len(shapes[0]))
