"""Evaluate the terms of rules: functions of shapes and attributes, and the constants they make.

A size that is known only when the model runs has a name. Two such sizes are equal if their names
are. Whether such a size equals anything else is unknown, and a term that compares the two has no
value. A rule does not match where one of its conditions has no value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

from environments.tensor_graphs.graph.nodes import Attribute, TensorType
from environments.tensor_graphs.rules.language import term_functions
from environments.tensor_graphs.rules.language.expressions import (
    Array,
    Literal,
    Name,
    Term,
    Variable,
)
from environments.tensor_graphs.rules.language.term_functions import (
    ARRAYS,
    Function,
    Size,
    Tensor,
    TermError,
)

__all__ = [
    "ARRAYS", "Bindings", "FUNCTIONS", "Size", "TermError", "as_attribute", "evaluate", "holds",
    "make_array",
]  # fmt: skip


@dataclasses.dataclass(frozen=True)
class Bindings:
    """The tensors and values that the variables and attributes of a rule stand for.

    Attributes:
      types: types of the tensors, by name of the variable.
      attributes: values of the attributes, by name.
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


def _and(arguments: tuple, bindings: Bindings) -> bool:
    return all(evaluate(argument, bindings) is True for argument in arguments)


def _or(arguments: tuple, bindings: Bindings) -> bool:
    return any(holds(argument, bindings) for argument in arguments)


def _if(arguments: tuple, bindings: Bindings) -> Any:
    condition, yes, no = arguments
    return evaluate(yes if evaluate(condition, bindings) is True else no, bindings)


FUNCTIONS: Mapping[str, Function] = {
    **term_functions.FUNCTIONS,
    "and": Function(_and, is_lazy=True),
    "or": Function(_or, is_lazy=True),
    "if": Function(_if, is_lazy=True),
    # A function of the model.
    "opset": Function(lambda arguments, bindings: bindings.opset, is_lazy=True),
}
