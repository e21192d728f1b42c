"""What the table says of an operator."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from environments.tensor_graphs.nodes import Dimension, TensorType

Shape = tuple[Dimension, ...]
Values = dict[str, Any]
"""Attributes by name."""


class OperatorError(ValueError):
    """Inputs or attributes that an operator does not take; one line."""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED = _Required()


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator in its canonical form.

    Attributes:
      name: ONNX's.
      inputs: names of the inputs. "b?" may be left out; "*x" stands for one or more.
      attributes: all attributes with their defaults, or REQUIRED.
      shapes_fn: shapes of the outputs of shapes of the inputs, all of known rank, and attributes;
        OperatorError where they do not fit.
      dtypes_fn: types of the elements, likewise.
      evaluate_fn: outputs of an algebra, inputs and attributes.
      flops_fn: floating-point operations of types of inputs and outputs, and attributes; a multiply
        and an add are two.
      normalize_fn: changes attributes, given shapes of the inputs, to the one way to write them.
      num_outputs_fn: number of outputs by attributes.
      commutative: whether its first two inputs may be exchanged.
      elementwise: whether each element of the output depends on the elements in the same place,
        after broadcasting, of the inputs.
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
        """The fewest inputs that it takes."""
        return sum(not name.endswith("?") for name in self.inputs)

    @property
    def max_inputs(self) -> int | None:
        """The most inputs that it takes; None for any number."""
        return None if self.inputs[-1].startswith("*") else len(self.inputs)


FLOAT_TYPES = frozenset({"float16", "bfloat16", "float32", "float64"})


def same_dtype(dtypes: Sequence[Any], attributes: Values) -> tuple[str, ...]:
    """All inputs have one type, and so has the output."""
    first = dtypes[0]
    for dtype in dtypes:
        if dtype != first and dtype is not None:
            raise OperatorError(f"expected inputs of one type, found {first} and {dtype}")
    return (first,)


def float_dtype(dtypes: Sequence[Any], attributes: Values) -> tuple[str, ...]:
    """All inputs have one type of floating-point numbers, and so has the output."""
    if dtypes[0] not in FLOAT_TYPES:
        raise OperatorError(f"expected floating-point numbers, found {dtypes[0]}")
    return same_dtype(dtypes, attributes)


def num_elements(tensor: TensorType | None) -> int:
    """Elements of a tensor: an unknown size counts as 1; 0 where not even the rank is known."""
    if tensor is None or tensor.shape is None:
        return 0
    count = 1
    for size in tensor.shape:
        count *= size if isinstance(size, int) else 1
    return count


def no_flops(inputs: Sequence[Any], outputs: Sequence[TensorType], attributes: Values) -> int:
    """For operators that only move elements."""
    return 0


def flops_per_element(count: int) -> Callable[..., int]:
    """For operators that do so many operations for each element of the output."""

    def flops(inputs: Sequence[Any], outputs: Sequence[TensorType], attributes: Values) -> int:
        return count * sum(num_elements(output) for output in outputs)

    return flops


def flops_per_input(count: int) -> Callable[..., int]:
    """For operators that do so many operations for each element of the first input."""

    def flops(inputs: Sequence[Any], outputs: Sequence[TensorType], attributes: Values) -> int:
        return count * num_elements(inputs[0])

    return flops


def checked_axis(axis: int, rank: int) -> int:
    """The axis itself.

    Raises:
      OperatorError: it is not counted from the front, or there is none such.
    """
    if not 0 <= axis < rank:
        raise OperatorError(f"expected an axis in 0 … {rank - 1}, found {axis}")
    return axis


def from_the_front(axis: int, rank: int) -> int:
    """An axis that may be counted from the end, counted from the front."""
    if not -rank <= axis < rank:
        raise OperatorError(f"expected an axis in {-rank} … {rank - 1}, found {axis}")
    return axis % rank if rank else axis


def normalize_axis(attributes: Values, shapes: Sequence[Any]) -> None:
    """Counts the attribute `axis` from the front."""
    attributes["axis"] = from_the_front(attributes["axis"], len(shapes[0]))


def normalize_axes(attributes: Values, shapes: Sequence[Any]) -> None:
    """Counts the attribute `axes` from the front, in ascending order."""
    rank = len(shapes[0])
    attributes["axes"] = tuple(sorted({from_the_front(axis, rank) for axis in attributes["axes"]}))
