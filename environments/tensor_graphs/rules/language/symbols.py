"""Python objects that build expressions and terms by Python's operators; used by `notation`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Call,
    Expression,
    Literal,
    Term,
    Variable,
)
from environments.tensor_graphs.rules.language.rule import RuleError


class Quantity:
    """A term with Python's operators: a size, an attribute or a truth value.

    Attributes:
      term: the term as data.
    """

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, term: Term) -> None:
        """Wrap a term."""
        self.term = term

    def __getitem__(self, index: int | slice) -> Quantity:
        if not isinstance(index, slice):
            return call("nth", self, index)
        if index.step is not None:
            raise RuleError("a slice of a list takes no step")
        if index.stop is None:
            return call("slice", self, index.start or 0)
        return call("slice", self, index.start or 0, index.stop)

    def __iter__(self) -> Any:
        raise TypeError("a term has no known number of elements")

    def __bool__(self) -> bool:
        raise TypeError("a term has no value yet: use all_of, any_of and no")

    def __eq__(self, other: object) -> Quantity:  # type: ignore[override]
        return call("=", self, other)

    def __ne__(self, other: object) -> Quantity:  # type: ignore[override]
        return call("!=", self, other)

    def __lt__(self, other: object) -> Quantity:
        return call("<", self, other)

    def __le__(self, other: object) -> Quantity:
        return call("<=", self, other)

    def __gt__(self, other: object) -> Quantity:
        return call(">", self, other)

    def __ge__(self, other: object) -> Quantity:
        return call(">=", self, other)

    def __add__(self, other: object) -> Quantity:
        return call("+", self, other)

    def __radd__(self, other: object) -> Quantity:
        return call("+", other, self)

    def __sub__(self, other: object) -> Quantity:
        return call("-", self, other)

    def __rsub__(self, other: object) -> Quantity:
        return call("-", other, self)

    def __mul__(self, other: object) -> Quantity:
        return call("*", self, other)

    def __rmul__(self, other: object) -> Quantity:
        return call("*", other, self)

    def __truediv__(self, other: object) -> Quantity:
        return call("/", self, other)

    def __rtruediv__(self, other: object) -> Quantity:
        return call("/", other, self)

    def __floordiv__(self, other: object) -> Quantity:
        return call("//", self, other)

    def __mod__(self, other: object) -> Quantity:
        return call("mod", self, other)


class Tensor:
    """An expression with Python's operators.

    Attributes:
      expression: the expression as data.
    """

    def __init__(self, expression: Expression) -> None:
        """Wrap an expression."""
        self.expression = expression

    def output(self, number: int) -> Tensor:
        """Return another output of the operator whose output this is."""
        assert isinstance(self.expression, Apply)
        return Tensor(dataclasses.replace(self.expression, output=number))

    def __add__(self, other: object) -> Tensor:
        return op.Add(self, other)

    def __radd__(self, other: object) -> Tensor:
        return op.Add(other, self)

    def __sub__(self, other: object) -> Tensor:
        return op.Sub(self, other)

    def __rsub__(self, other: object) -> Tensor:
        return op.Sub(other, self)

    def __mul__(self, other: object) -> Tensor:
        return op.Mul(self, other)

    def __rmul__(self, other: object) -> Tensor:
        return op.Mul(other, self)

    def __truediv__(self, other: object) -> Tensor:
        return op.Div(self, other)

    def __rtruediv__(self, other: object) -> Tensor:
        return op.Div(other, self)

    def __matmul__(self, other: object) -> Tensor:
        return op.MatMul(self, other)

    def __pow__(self, other: object) -> Tensor:
        return op.Pow(self, other)

    def __neg__(self) -> Tensor:
        return op.Neg(self)

    @property
    def dtype(self) -> Quantity:
        """The type of the tensor's elements."""
        return call("dtype", self)

    @property
    def rank(self) -> Quantity:
        """The tensor's number of axes."""
        return call("rank", self)

    @property
    def shape(self) -> Quantity:
        """The tensor's sizes, a list."""
        return call("shape", self)

    @property
    def size(self) -> Quantity:
        """The tensor's number of elements."""
        return call("size", self)

    @property
    def is_constant(self) -> Quantity:
        """Whether the tensor depends on constants alone."""
        return call("constant", self)

    def dim(self, axis: object) -> Quantity:
        """Return the tensor's size along an axis."""
        return call("dim", self, axis)


class _Operators:
    """ONNX's operators as functions: `op.Conv(x, w, strides=s)`."""

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        def apply(*inputs: object, **attributes: object) -> Tensor:
            given = tuple(None if one is None else as_expression(one) for one in inputs)
            terms = tuple((key, as_term(value)) for key, value in attributes.items())
            return Tensor(Apply(name, given, terms))

        return apply


op: Any = _Operators()


def call(function: str, *arguments: object) -> Quantity:
    """Call one of `terms.FUNCTIONS`."""
    return Quantity(
        Call(
            function,
            tuple(
                one.expression
                if isinstance(one, Tensor) and isinstance(one.expression, Variable)
                else as_term(one)
                for one in arguments
            ),
        )
    )


def as_term(value: object) -> Term:
    """Return the term of a number, a string, a list of such values, or a Quantity."""
    if isinstance(value, Quantity):
        return value.term
    if isinstance(value, (tuple, list)):
        return Call("list", tuple(as_term(one) for one in value))
    if isinstance(value, (int, float, str)):
        return Literal(value)
    raise RuleError(f"expected a number, a string or a list, found {value!r}")


def as_expression(value: object) -> Expression:
    """Return the expression of a Tensor; a number or a Quantity becomes a constant."""
    if isinstance(value, Tensor):
        return value.expression
    if isinstance(value, (int, float, Quantity)):
        return Array("full", (as_term(value),))
    raise RuleError(f"expected a tensor or a number, found {value!r}")


def array(function: str, *arguments: object) -> Tensor:
    """Make a constant with one of `terms.ARRAYS`."""
    return Tensor(Array(function, tuple(as_term(one) for one in arguments)))


def permute(values: object, order: object) -> Quantity:
    """Return a list in another order.

    For permutations, the result is `order` applied after `values`.
    """
    return call("permute", values, order)


def concat(*values: object) -> Quantity:
    """Join lists, one after the other."""
    return call("concat", *values)


def repeat(value: object, times: object) -> Quantity:
    """Return a list that contains a value several times."""
    return call("repeat", value, times)


def numbers(start: object, stop: object) -> Quantity:
    """Return the list of integers from `start` up to, but not including, `stop`."""
    return call("range", start, stop)


def total(values: object) -> Quantity:
    """Return the sum of a list."""
    return call("sum", values)


def product(values: object) -> Quantity:
    """Return the product of a list."""
    return call("product", values)


def all_of(*conditions: Quantity) -> Quantity:
    """Return the condition that all conditions hold."""
    return call("and", *conditions)


def any_of(*conditions: Quantity) -> Quantity:
    """Return the condition that at least one condition holds."""
    return call("or", *conditions)


def no(condition: Quantity) -> Quantity:
    """Return the condition that a condition is false."""
    return call("not", condition)


def broadcast(*shapes: object) -> Quantity:
    """Return the shape to which elementwise operators broadcast these shapes."""
    return call("broadcast", *shapes)
