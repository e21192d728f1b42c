"""A notation for writing rules in Python, close to mathematics.

  @rule
  def scale_into_weight(x, w: Constant, s: Scalar):
      return (x @ w) * s, x @ (w * s)

  @rule
  def transposed_twice(x, p: Attribute, q: Attribute):
      return op.Transpose(op.Transpose(x, perm=p), perm=q), op.Transpose(x, perm=permute(p, q))

The function is called once, with symbols for tensors and attributes. It returns the source and the
target, each an expression or a tuple of them, and then the conditions:

  @rule
  def add_is_associative_here(x, y, z):
      return (x + y) + z, x + (y + z), y.shape == z.shape

A parameter may be annotated: Constant is a tensor that depends on constants alone (a restriction);
Scalar is a tensor with one element (a condition); ConstantScalar is both; Attribute is an attribute
of an operator. A condition in `only_where` is a restriction: it says where the rule is worth
trying, not where it is right. `rules` makes many rules of one function, `with_bias` two of each:

  @rules
  def without_effect(x):
      return {"plus_zero": (x + 0.0, x), "times_one": (x * 1.0, x)}
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Call,
    Expression,
    Literal,
    Name,
    Term,
    Variable,
    variables,
)
from environments.tensor_graphs.rules.language.rule import Rule, RuleError


def _infix(name: str, is_reflected: bool = False) -> Callable[[Any, object], Any]:
    """Return the method for one of Python's operators: "+" is a function of terms, "Add" ONNX's."""

    def method(own: Any, operand: object) -> Any:
        if operand is NO_BIAS:
            return NotImplemented  # `NO_BIAS` has the reverse method.
        operands = (operand, own) if is_reflected else (own, operand)
        return getattr(op, name)(*operands) if name[0].isupper() else call(name, *operands)

    return method


def _reflected(name: str) -> Callable[[Any, object], Any]:
    return _infix(name, is_reflected=True)


def _property(function: str) -> Any:
    return property(lambda tensor: call(function, tensor))


class Quantity:
    """A term with Python's operators: a size, an attribute or a truth value."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, term: Term) -> None:
        """Wrap a term."""
        self.term = term

    def __getitem__(self, index: int | slice) -> Quantity:
        if not isinstance(index, slice):
            return call("nth", self, index)
        if index.step is not None:
            raise RuleError("a slice of a list takes no step")
        stop = () if index.stop is None else (index.stop,)
        return call("slice", self, index.start or 0, *stop)

    def __iter__(self) -> Any:
        raise TypeError("a term has no known number of elements")

    def __bool__(self) -> bool:
        raise TypeError("a term has no value yet: use all_of, any_of and no")

    __eq__, __ne__ = map(_infix, ("=", "!="))
    __lt__, __le__, __gt__, __ge__ = map(_infix, ("<", "<=", ">", ">="))
    __add__, __sub__, __mul__, __truediv__ = map(_infix, ("+", "-", "*", "/"))
    __radd__, __rsub__, __rmul__, __rtruediv__ = map(_reflected, ("+", "-", "*", "/"))
    __floordiv__, __mod__ = map(_infix, ("//", "mod"))


class Tensor:
    """An expression with Python's operators.

    Its `size` is its number of elements; `is_constant` tells whether it depends on constants alone.
    """

    def __init__(self, expression: Expression) -> None:
        """Wrap an expression."""
        self.expression = expression

    def output(self, number: int) -> Tensor:
        """Return another output of the operator whose output this is."""
        assert isinstance(self.expression, Apply)
        return Tensor(dataclasses.replace(self.expression, output=number))

    __add__, __sub__, __mul__, __truediv__ = map(_infix, ("Add", "Sub", "Mul", "Div"))
    __radd__, __rsub__, __rmul__, __rtruediv__ = map(_reflected, ("Add", "Sub", "Mul", "Div"))
    __matmul__, __pow__ = map(_infix, ("MatMul", "Pow"))

    def __neg__(self) -> Tensor:
        return op.Neg(self)

    dtype, rank, shape = map(_property, ("dtype", "rank", "shape"))
    size, is_constant = map(_property, ("size", "constant"))

    def dim(self, axis: object) -> Quantity:
        """Return the tensor's size along an axis."""
        return call("dim", self, axis)


class _NoBias:
    """The bias of a rule without one: zero in sums and products, and no input of operators."""

    def __add__(self, operand: Any) -> Any:
        return operand

    def __mul__(self, operand: object) -> _NoBias:
        return self

    __radd__ = __add__
    __rmul__ = __matmul__ = __rmatmul__ = __mul__


NO_BIAS = _NoBias()


class _Operators:
    """ONNX's operators as functions: `op.Conv(x, w, strides=s)`."""

    def __getattr__(self, name: str) -> Callable[..., Tensor]:
        def apply(*inputs: object, **attributes: object) -> Tensor:
            operands = tuple(
                None if tensor is None else _expression(tensor)
                for tensor in inputs
                if tensor is not NO_BIAS
            )
            terms = tuple((key, _term(value)) for key, value in attributes.items())
            return Tensor(Apply(name, operands, terms))

        return apply


op: Any = _Operators()


def call(function: str, *arguments: object) -> Quantity:
    """Call one of `terms.FUNCTIONS`."""
    return Quantity(
        Call(
            function,
            tuple(
                argument.expression
                if isinstance(argument, Tensor) and isinstance(argument.expression, Variable)
                else _term(argument)
                for argument in arguments
            ),
        )
    )


def _term(value: object) -> Term:
    """Return the term of a number, a string, a list of such values, or a Quantity."""
    if isinstance(value, Quantity):
        return value.term
    if isinstance(value, (tuple, list)):
        return Call("list", tuple(map(_term, value)))
    if isinstance(value, (int, float, str)):
        return Literal(value)
    raise RuleError(f"expected a number, a string or a list, found {value!r}")


def _expression(value: object) -> Expression:
    """Return the expression of a Tensor; a number or a Quantity becomes a constant."""
    if isinstance(value, Tensor):
        return value.expression
    if isinstance(value, (int, float, Quantity)):
        return Array("full", (_term(value),))
    raise RuleError(f"expected a tensor or a number, found {value!r}")


def array(function: str, *arguments: object) -> Tensor:
    """Make a constant with one of `terms.ARRAYS`."""
    return Tensor(Array(function, tuple(map(_term, arguments))))


def tensors(names: str) -> list[Tensor]:
    """Return the variables of these names, which spaces separate."""
    return [Tensor(Variable(name)) for name in names.split()]


def attributes(names: str) -> dict[str, Quantity]:
    """Return the attributes of these names, which spaces separate, by name."""
    return {name: Quantity(Name(name)) for name in names.split()}


permute = functools.partial(call, "permute")
"""A list in another order; of permutations, the second applied after the first."""

concat = functools.partial(call, "concat")
"""Lists joined one after the other."""

repeat = functools.partial(call, "repeat")
"""A list that contains a value several times."""

numbers = functools.partial(call, "range")
"""The list of integers from the first up to, but not including, the second."""

all_of, any_of, no = (functools.partial(call, name) for name in ("and", "or", "not"))
"""The condition that all conditions hold, that at least one does, that one does not."""


@dataclasses.dataclass(frozen=True)
class Restriction:
    """A condition that does not affect whether the rule is right, only where it is tried."""

    condition: Quantity


only_where = Restriction


# Annotations of parameters.
class Constant(Tensor):
    """A tensor that depends on constants alone: a restriction."""


class Scalar(Tensor):
    """A tensor with one element."""


class ConstantScalar(Tensor):
    """A tensor with one element that depends on constants alone."""


class Attribute(Quantity):
    """An attribute of an operator in the source."""


_KINDS = {kind.__name__: kind for kind in (Constant, Scalar, ConstantScalar, Attribute)}


def rule(function: Callable[..., Any]) -> Rule:
    """Make the rule that a function describes; used as a decorator.

    Raises:
      RuleError: the function does not describe a rule.
    """
    (described,) = _described(function)
    return described


def rules(function: Callable[..., Mapping[str, Any]]) -> tuple[Rule, ...]:
    """Make the rules that a function returns by name; used as a decorator.

    An annotation counts for those rules whose source mentions the parameter.

    Raises:
      RuleError: the function does not describe rules.
    """
    return tuple(_described(function))


def with_bias(*biases: str) -> Callable[[Callable[..., Any]], tuple[Rule, ...]]:
    """Make two rules, NAME and NAME_with_bias, of each that a function describes; a decorator.

    NAME lacks these parameters: they are zero in its sums and products, and no inputs of operators.
    """

    def decorate(function: Callable[..., Any]) -> tuple[Rule, ...]:
        described: list[Rule] = []
        for plain, whole in zip(_described(function, biases), _described(function), strict=True):
            described += [plain, dataclasses.replace(whole, name=f"{whole.name}_with_bias")]
        return tuple(described)

    return decorate


_Symbols = Mapping[str, tuple[Tensor | Quantity, Sequence[object]]]
"""What stands for each parameter, with the conditions that its annotation asks for."""


def _symbols(function: Callable[..., Any]) -> _Symbols:
    symbols: dict[str, tuple[Tensor | Quantity, Sequence[object]]] = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = _kind(function.__name__, parameter)
        if kind is Attribute:
            symbols[name] = Quantity(Name(name)), ()
            continue
        tensor = Tensor(Variable(name))
        conditions: list[object] = []
        if kind in (Scalar, ConstantScalar):
            conditions.append(tensor.size == 1)
        if kind in (Constant, ConstantScalar):
            conditions.append(only_where(tensor.is_constant))
        symbols[name] = tensor, conditions
    return symbols


def _described(function: Callable[..., Any], without: Sequence[str] = ()) -> list[Rule]:
    """Make the rule or the rules of a function, without some of its biases."""
    symbols = _symbols(function)
    arguments = [NO_BIAS if key in without else symbol for key, (symbol, _) in symbols.items()]
    result = function(*arguments)
    rows = result if isinstance(result, Mapping) else {function.__name__: result}
    return [_conditioned(name, row, symbols) for name, row in rows.items()]


def _conditioned(name: str, row: object, symbols: _Symbols) -> Rule:
    """Make a rule, with the conditions of all parameters that its source mentions."""
    if not isinstance(row, tuple) or len(row) < 2:
        raise RuleError(f"rule {name}: expected it to return a source and a target")
    source, target, *more = row
    mentioned = variables(*_expressions(name, source))
    of_parameters = (symbols[key][1] for key in symbols if key in mentioned)
    return make_rule(name, source, target, *itertools.chain(*of_parameters), *more)


def _kind(name: str, parameter: inspect.Parameter) -> type | None:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return None
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    kind = _KINDS.get(text.rpartition(".")[2])
    if kind is None:
        raise RuleError(f"rule {name}: expected one of {', '.join(_KINDS)}, found {text}")
    return kind


def make_rule(name: str, source: object, target: object, *conditions: object) -> Rule:
    """Make a rule from its source, a Tensor or several, and its target, as many Tensors.

    The conditions are Quantities for conditions and Restrictions for restrictions.

    Raises:
      RuleError: the parts make no rule.
    """
    sources = _expressions(name, source)
    terms: list[Term] = []
    restrictions: list[Term] = []
    for condition in conditions:
        if isinstance(condition, Restriction):
            restrictions.append(condition.condition.term)
        elif isinstance(condition, Quantity):
            terms.append(condition.term)
        else:
            raise RuleError(f"rule {name}: expected a condition, found {condition!r}")
    targets = tuple(_with_dtypes(root, sources) for root in _expressions(name, target))
    return Rule(name, sources, targets, tuple(terms), tuple(restrictions))


def _expressions(name: str, side: object) -> tuple[Expression, ...]:
    tensors = side if isinstance(side, (tuple, list)) else (side,)
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise RuleError(f"rule {name}: expected an expression of tensors, found {tensor!r}")
    return tuple(tensor.expression for tensor in tensors)


def _with_dtypes(expression: Expression, source: Sequence[Expression]) -> Expression:
    """Give numbers in a target the element type of a variable that they are computed with."""
    if not isinstance(expression, Apply):
        return expression
    near = variables(*expression.inputs) or variables(*source)
    dtype = Call("dtype", (Variable(near[0]),))

    def typed(operand: Expression) -> Expression:
        if not isinstance(operand, Array) or operand.function != "full":
            return _with_dtypes(operand, source)
        (value, *type_) = operand.arguments
        return Array("full", (value, *(type_ or (Call("list", ()), dtype))))

    return expression.with_inputs(typed)
