"""The definition of an operator, and functions that definitions share."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import Dimension, TensorType

Shape = tuple[Dimension, ...]
Values = dict[str, Any]
"""Values of attributes by name."""


class OperatorError(ValueError):
    """An operator does not take the given inputs or attributes; the message is one line."""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator in its canonical form.

    Attributes:
      name: ONNX's name.
      inputs: names of the inputs; "b?" may be left out, "*x" stands for one or more.
      attributes: defaults of all attributes by name; REQUIRED for those without.
      shapes_fn: maps the inputs' shapes, all of known rank, and the attributes to the outputs'
        shapes; raises OperatorError if they do not fit.
      dtypes_fn: maps the inputs' element types and the attributes to the outputs' element types;
        raises OperatorError if they do not fit.
      evaluate_fn: maps an algebra, the inputs' arrays and the attributes to the outputs' arrays.
      flops_fn: maps the inputs' types, the outputs' types and the attributes to the number of
        floating-point operations; a multiplication and an addition are two.
      normalize_fn: changes attributes in place to their canonical values, given the inputs' shapes.
      num_outputs_fn: maps the attributes to the number of outputs.
      commutative: whether the first two inputs may be exchanged.
      elementwise: whether each element of the output depends only on the inputs' elements at the
        same index, after broadcasting.
    """

    name: str
    inputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    shapes_fn: Callable[[Sequence[Any], Values], tuple[Shape, ...]]
    dtypes_fn: Callable[[Sequence[Any], Values], tuple[str, ...]]
    evaluate_fn: Callable[[Any, Sequence[Any], Values], tuple[np.ndarray, ...]]
    flops_fn: Callable[[Sequence[Any], Sequence[TensorType], Values], int]
    normalize_fn: Callable[[Values, Sequence[Any]], None] | None = None
    num_outputs_fn: Callable[[Values], int] = lambda attributes: 1
    commutative: bool = False
    elementwise: bool = False

    @property
    def min_inputs(self) -> int:
        """The smallest number of inputs."""
        return sum(not name.endswith("?") for name in self.inputs)

    @property
    def max_inputs(self) -> int | None:
        """The largest number of inputs; None if there is no limit."""
        return None if self.inputs[-1].startswith("*") else len(self.inputs)


FLOAT_TYPES = frozenset({"float16", "bfloat16", "float32", "float64"})


def same_dtype(dtypes: Sequence[Any], attributes: Values) -> tuple[str, ...]:
    """Return the element type of the output, which all inputs must have.

    Raises:
      OperatorError: the inputs have different types.
    """
    first = dtypes[0]
    for dtype in dtypes:
        if dtype != first and dtype is not None:
            raise OperatorError(f"expected inputs of one type, found {first} and {dtype}")
    return (first,)


def float_dtype(dtypes: Sequence[Any], attributes: Values) -> tuple[str, ...]:
    """Return the floating-point type of the output, which all inputs must have.

    Raises:
      OperatorError: the inputs have different types, or a type that is not floating-point.
    """
    if dtypes[0] not in FLOAT_TYPES:
        raise OperatorError(f"expected floating-point numbers, found {dtypes[0]}")
    return same_dtype(dtypes, attributes)


def num_elements(tensor: TensorType | None) -> int:
    """Count a tensor's elements; unknown sizes count as 1, and a tensor of unknown rank has 0."""
    if tensor is None or tensor.shape is None:
        return 0
    count = 1
    for size in tensor.shape:
        count *= size if isinstance(size, int) else 1
    return count


def no_flops(inputs: Sequence[Any], outputs: Sequence[TensorType], attributes: Values) -> int:
    """Return 0, for operators that only move elements."""
    return 0


def flops_per_element(count: int) -> Callable[..., int]:
    """Make a `flops_fn` that counts `count` operations for each element of the outputs."""

    def flops(inputs: Sequence[Any], outputs: Sequence[TensorType], attributes: Values) -> int:
        return count * sum(num_elements(output) for output in outputs)

    return flops


def flops_per_input(count: int) -> Callable[..., int]:
    """Make a `flops_fn` that counts `count` operations for each element of the first input."""

    def flops(inputs: Sequence[Any], outputs: Sequence[TensorType], attributes: Values) -> int:
        return count * num_elements(inputs[0])

    return flops


def checked_axis(axis: int, rank: int) -> int:
    """Return an axis that is counted from the front, after checking it.

    Raises:
      OperatorError: the axis is negative, or a tensor of this rank has no such axis.
    """
    if not 0 <= axis < rank:
        raise OperatorError(f"expected an axis in 0 … {rank - 1}, found {axis}")
    return axis


def from_the_front(axis: int, rank: int) -> int:
    """Return an axis counted from the front, given one that may be counted from the end.

    Raises:
      OperatorError: a tensor of this rank has no such axis.
    """
    if not -rank <= axis < rank:
        raise OperatorError(f"expected an axis in {-rank} … {rank - 1}, found {axis}")
    return axis % rank if rank else axis


def normalize_axis(attributes: Values, shapes: Sequence[Any]) -> None:
    """Count the attribute `axis` from the front, in place."""
    attributes["axis"] = from_the_front(attributes["axis"], len(shapes[0]))


def normalize_axes(attributes: Values, shapes: Sequence[Any]) -> None:
    """Count the attribute `axes` from the front and sort it, in place."""
    rank = len(shapes[0])
    attributes["axes"] = tuple(sorted({from_the_front(axis, rank) for axis in attributes["axes"]}))
