"""Evaluate the terms of rules: functions of shapes and attributes, and the constants they make.

A size that is known only when the model runs has a name. Two such sizes are equal if their names
are. Whether such a size equals anything else is unknown, and a term that compares the two has no
value. A rule does not match where one of its conditions has no value.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import Attribute, Dimension, TensorType
from environments.tensor_graphs.operators import dimensions
from environments.tensor_graphs.rules.language.expressions import (
    Array,
    Literal,
    Name,
    Term,
    Variable,
)


class TermError(ValueError):
    """A term has no value for these shapes and attributes."""


class Size(str):
    """The name of a size that is known only when the model runs."""

    __slots__ = ()


@dataclasses.dataclass(frozen=True)
class Bindings:
    """The tensors and values that the variables and attributes of a rule stand for.

    Attributes:
      constants: names of the variables whose tensors depend on constants alone.
      opset: the version of ONNX's operators that the model may use.
    """

    types: Mapping[str, TensorType]
    attributes: Mapping[str, Attribute]
    constants: Collection[str] = ()
    opset: int = 0


def evaluate(term: Term | Variable, bindings: Bindings) -> Any:
    """Return the value of a term: a number, a size, a string, a truth value, or a tuple of these.

    Raises:
      TermError: the term has no value; for instance, a list is too short, or a number does not
        divide another.
    """
    if isinstance(term, Literal):
        return term.value
    if isinstance(term, Name):
        return bindings.attributes[term.name]
    if isinstance(term, Variable):
        raise TermError(f"{term} is no value")
    function = FUNCTIONS[term.function]
    try:
        if function.is_lazy:
            return function.compute(term.arguments, bindings)
        values = [
            _tensor(argument, bindings)
            if isinstance(argument, Variable) and function.takes_tensors
            else evaluate(argument, bindings)
            for argument in term.arguments
        ]
        return function.compute(*values)
    except (TypeError, IndexError, ArithmeticError) as error:
        raise TermError(f"{term}: {error}") from None


def holds(condition: Term, bindings: Bindings) -> bool:
    """Return whether a condition is true; false if it has no value."""
    try:
        return evaluate(condition, bindings) is True
    except TermError:
        return False


def make_array(array: Array, bindings: Bindings) -> np.ndarray:
    """Make the constant of an Array in a target, which has all arguments.

    Raises:
      TermError: an argument has no value, or the arguments do not fit together.
    """
    values = [evaluate(argument, bindings) for argument in array.arguments]
    try:
        return ARRAYS[array.function](*values)
    except (TypeError, IndexError, ValueError, ArithmeticError) as error:
        raise TermError(f"{array}: {error}") from None


def as_attribute(value: Any) -> Any:
    """Convert a term's value to an attribute's: sizes become strings, truth values integers."""
    if isinstance(value, tuple):
        return tuple(as_attribute(element) for element in value)
    if isinstance(value, Size):
        return str(value)
    return int(value) if isinstance(value, bool) else value


def _tensor(variable: Variable, bindings: Bindings) -> Tensor:
    if variable.name not in bindings.types:
        raise TermError(f"{variable} is no tensor")
    return Tensor(bindings.types[variable.name], variable.name in bindings.constants)


@dataclasses.dataclass(frozen=True)
class Tensor:
    """The argument that a function gets for a variable."""

    type: TensorType
    is_constant: bool

    @property
    def shape(self) -> tuple[int | Size, ...]:
        """The tensor's sizes.

        Raises:
          TermError: the rank is not known.
        """
        if self.type.shape is None:
            raise TermError("the rank is not known")
        return tuple(Size(size) if isinstance(size, str) else size for size in self.type.shape)


@dataclasses.dataclass(frozen=True)
class Function:
    """A function that terms may call.

    Attributes:
      compute: computes the value from the values of the arguments. A lazy function gets the terms
        themselves as a tuple, and the bindings.
      takes_tensors: whether arguments may be variables.
      is_lazy: whether the function itself decides which arguments to evaluate.
    """

    compute: Callable[..., Any]
    takes_tensors: bool = False
    is_lazy: bool = False


@functools.cache
def takes(function: Function, count: int) -> bool:
    """Return whether a function can be called with this many arguments."""
    if function.is_lazy:
        return True
    try:
        inspect.signature(function.compute).bind(*range(count))
    except TypeError:
        return False
    return True


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, tuple) and isinstance(right, tuple):
        if len(left) != len(right):
            return False
        unknown = None
        for first, second in zip(left, right, strict=True):
            try:
                if not _equal(first, second):
                    return False
            except TermError as error:
                unknown = error
        if unknown is not None:
            raise unknown
        return True
    if left != right and (isinstance(left, Size) or isinstance(right, Size)):
        raise TermError(f"whether {left} is {right} is not known")
    return bool(left == right)


def _numbers(*values: Any) -> None:
    for value in values:
        if isinstance(value, (str, tuple)):
            raise TermError(f"{value!r} is no number")


def _of_numbers(compute: Callable[..., Any]) -> Function:
    """Return a function that refuses what is no number."""

    @functools.wraps(compute)
    def checked(*values: Any) -> Any:
        _numbers(*values)
        return compute(*values)

    return Function(checked)


def _multiply(*values: Any) -> Any:
    if any(isinstance(value, Size) for value in values):
        return _symbolic(dimensions.product, values)
    _numbers(*values)
    return math.prod(values)


def _divide(left: Any, right: Any) -> Any:
    if isinstance(left, Size) or isinstance(right, Size):
        return _symbolic(lambda sizes: dimensions.quotient(*sizes), (left, right))
    _numbers(left, right)
    if isinstance(left, int) and isinstance(right, int):
        if left % right:
            raise TermError(f"{right} does not divide {left}")
        return left // right
    return left / right


def _symbolic(compute: Callable[[list[Any]], Dimension], values: tuple) -> int | Size:
    try:
        size = compute([str(value) if isinstance(value, Size) else value for value in values])
    except ValueError as error:
        raise TermError(str(error)) from None
    return Size(size) if isinstance(size, str) else size


def _element(values: tuple, index: int | slice) -> Any:
    if not isinstance(values, tuple):
        raise TermError(f"{values!r} is no list")
    return values[index]


def _replaced(values: tuple, index: int, value: Any) -> tuple:
    if not -len(values) <= index < len(values):
        raise TermError(f"{index} is outside of {values}")
    index %= len(values)
    return (*values[:index], value, *values[index + 1 :])


def _concat(*values: tuple) -> tuple:
    if not all(isinstance(value, tuple) for value in values):
        raise TermError("concat takes lists")
    return sum(values, ())


def _permuted(values: tuple, order: tuple[int, ...]) -> tuple:
    """Permute a list, so that Transpose(Transpose(x, p), q) = Transpose(x, permute(p, q)).

    A shape is permuted in the same way.
    """
    if sorted(order) != list(range(len(values))):
        raise TermError(f"{order} is no permutation of {len(values)}")
    return tuple(values[place] for place in order)


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    if sorted(order) != list(range(len(order))):
        raise TermError(f"{order} is no permutation")
    return tuple(order.index(place) for place in range(len(order)))


def _axis(axis: int, rank: int) -> int:
    if not -rank <= axis < rank:
        raise TermError(f"axis {axis} of a tensor of rank {rank}")
    return axis % rank


def _broadcast(*shapes: tuple) -> tuple:
    """Return the shape of an elementwise operator's output."""
    rank = max(len(shape) for shape in shapes)
    sizes: list[Any] = [1] * rank
    for shape in shapes:
        for position, size in enumerate(shape, rank - len(shape)):
            if sizes[position] == 1:
                sizes[position] = size
            elif size != 1 and not _equal(sizes[position], size):
                raise TermError(f"{shapes} do not broadcast")
    return tuple(sizes)


def _not(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TermError(f"{value!r} is no truth")
    return not value


def _of_tensor(compute: Callable[..., Any]) -> Function:
    return Function(compute, takes_tensors=True)


def _and(arguments: tuple, bindings: Bindings) -> bool:
    return all(evaluate(argument, bindings) is True for argument in arguments)


def _or(arguments: tuple, bindings: Bindings) -> bool:
    return any(holds(argument, bindings) for argument in arguments)


def _if(arguments: tuple, bindings: Bindings) -> Any:
    condition, yes, no = arguments
    return evaluate(yes if evaluate(condition, bindings) is True else no, bindings)


FUNCTIONS: Mapping[str, Function] = {
    # Functions of tensors.
    "dtype": _of_tensor(lambda tensor: tensor.type.dtype),
    "rank": _of_tensor(lambda tensor: len(tensor.shape)),
    "shape": _of_tensor(lambda tensor: tensor.shape),
    "dim": _of_tensor(lambda tensor, index: tensor.shape[index]),
    "size": _of_tensor(lambda tensor: _multiply(1, *tensor.shape)),
    "constant": _of_tensor(lambda tensor: tensor.is_constant),
    # Functions of numbers. "/" of integers has no value if there is a remainder.
    "+": _of_numbers(lambda *values: sum(values)),
    "-": _of_numbers(lambda left, right: left - right),
    "*": Function(_multiply),
    "/": Function(_divide),
    "//": _of_numbers(lambda left, right: left // right),
    "mod": _of_numbers(lambda left, right: left % right),
    "min": _of_numbers(lambda *values: min(values)),
    "max": _of_numbers(lambda *values: max(values)),
    "sqrt": Function(lambda value: math.sqrt(value)),
    "axis": Function(_axis),
    # Functions of lists.
    "list": Function(lambda *values: tuple(values)),
    "nth": Function(_element),
    "length": Function(lambda values: len(values)),
    "slice": Function(lambda values, start, stop=None: _element(values, slice(start, stop))),
    "set": Function(_replaced),
    "concat": Function(_concat),
    "repeat": Function(lambda value, times: (value,) * times),
    "range": Function(lambda start, stop: tuple(range(start, stop))),
    "sum": Function(lambda values: FUNCTIONS["+"].compute(*values)),
    "product": Function(lambda values: _multiply(1, *values)),
    "permute": Function(_permuted),
    "inverse": Function(_inverse),
    "broadcast": Function(_broadcast),
    "in": Function(lambda value, values: any(_equal(value, option) for option in values)),
    # Truth values.
    "=": Function(_equal),
    "!=": Function(lambda left, right: not _equal(left, right)),
    "<": _of_numbers(lambda left, right: left < right),
    "<=": _of_numbers(lambda left, right: left <= right),
    ">": _of_numbers(lambda left, right: left > right),
    ">=": _of_numbers(lambda left, right: left >= right),
    "not": Function(_not),
    "and": Function(_and, is_lazy=True),
    "or": Function(_or, is_lazy=True),
    "if": Function(_if, is_lazy=True),
    # A function of the model.
    "opset": Function(lambda arguments, bindings: bindings.opset, is_lazy=True),
}


def _full(value: float, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    return np.full(shape, value, np.dtype(dtype))


def _identity_kernel(channels: int, groups: int, spatial_rank: int, dtype: str) -> np.ndarray:
    """Return a convolution's weight that changes nothing, [channels, channels / groups, 1, …]."""
    if channels % groups:
        raise ValueError(f"{groups} groups of {channels} channels")
    each = channels // groups
    kernel = np.tile(np.eye(each, dtype=np.dtype(dtype)), (groups, 1))
    return kernel.reshape(channels, each, *(1,) * spatial_rank)


ARRAYS: Mapping[str, Callable[..., np.ndarray]] = {
    "full": _full,
    "identity_kernel": _identity_kernel,
}
