"""The language of rules, as data: expressions of tensors, and terms about their types.

An expression says how a tensor is computed:

  Variable   any tensor.                                              ?x
  Apply      an output of an operator, with ONNX's names.             (Conv ?x ?w :strides $s)
             An output other than the first:                          (output 1 (Split ?x …))
             An input that is left out:                               (Clip ?x nil ?max)
  Array      a constant.                                              (full 0.5)

A term gives the value of an attribute, or a condition under which a rule holds:

  number, "string"
  Name       an attribute: bound where it stands alone in a source.   $s
  Call       a function of `terms`, on terms and variables.           (dim ?x 0)   (= $s (list 1 1))

In a source, an attribute that is not named must have the operator's default. `(list $m $n)` matches
a list of two elements and binds both; any other call must equal the attribute's value. `(full $c)`
matches any constant whose elements are all equal, whatever its shape. `(full 0.5)` matches one
whose elements are 0.5, rounded to the constant's type. In a target, an array also gives its shape
and type: `(full 0.5 (list) (dtype ?x))`.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from environments.tensor_graphs.graph.nodes import Scalar

ABSENT = "nil"
_MAX_DEPTH = 100
_TOKEN = re.compile(r"""[()]|"(?:[^"\\]|\\.)*"|[^\s()"]+""")
_OUTPUT = "output"


class ExpressionError(ValueError):
    """A text is not an expression or a term; the message is one line."""


@dataclasses.dataclass(frozen=True, slots=True)
class Variable:
    """Any tensor; the same one wherever its name occurs."""

    name: str

    def __str__(self) -> str:
        return f"?{self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Literal:
    """A number or a string; lists are calls of the function `list` (see `term`)."""

    value: Scalar

    def __str__(self) -> str:
        return json.dumps(self.value) if isinstance(self.value, str) else repr(self.value)


@dataclasses.dataclass(frozen=True, slots=True)
class Name:
    """An attribute of an operator in the source, or an element of one."""

    name: str

    def __str__(self) -> str:
        return f"${self.name}"


@dataclasses.dataclass(frozen=True, slots=True)
class Call:
    """A call of a function on terms and variables.

    Attributes:
      function: name of the function, one of `terms.FUNCTIONS`.
      arguments: the arguments; for a Variable, the function mostly gets the tensor's type.
    """

    function: str
    arguments: tuple[Term | Variable, ...]

    def __str__(self) -> str:
        return f"({' '.join((self.function, *map(str, self.arguments)))})"


@dataclasses.dataclass(frozen=True, slots=True)
class Apply:
    """An output of an operator.

    Attributes:
      inputs: the inputs; None for an optional one that is left out.
      attributes: (name, term) pairs, sorted by name; attributes that are missing have the default.
      output: index of the output.
    """

    op: str
    inputs: tuple[Expression | None, ...]
    attributes: tuple[tuple[str, Term], ...] = ()
    output: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "attributes", tuple(sorted(self.attributes)))

    def with_inputs(self, input_fn: Callable[[Expression], Expression]) -> Apply:
        """Return the operator with a function applied to each of its inputs."""
        inputs = tuple([operand and input_fn(operand) for operand in self.inputs])
        return Apply(self.op, inputs, self.attributes, self.output)

    def __str__(self) -> str:
        inputs = [ABSENT if operand is None else str(operand) for operand in self.inputs]
        attributes = [f":{name} {value}" for name, value in self.attributes]
        text = f"({' '.join([self.op, *inputs, *attributes])})"
        return f"({_OUTPUT} {self.output} {text})" if self.output else text


@dataclasses.dataclass(frozen=True, slots=True)
class Array:
    """A constant.

    Attributes:
      function: name of the function that makes it, one of `terms.ARRAYS`; in a source only "full",
        with one argument.
    """

    function: str
    arguments: tuple[Term | Variable, ...]

    def __str__(self) -> str:
        return f"({' '.join((self.function, *map(str, self.arguments)))})"


Term = Literal | Name | Call
Expression = Variable | Apply | Array
Part = Term | Expression


def parts(part: Part | None) -> Iterator[Part]:
    """Yield an expression or term and all that it is made of, itself first, from left to right."""
    # A stack, because generators in generators cost several calls for each part.
    waiting = [part]
    while waiting:
        part = waiting.pop()
        if part is None:
            continue
        yield part
        waiting += reversed(children(part))


def children(part: Part | None) -> tuple[Part | None, ...]:
    """Return what a part is directly made of: inputs, then values of attributes; or arguments."""
    if isinstance(part, Apply):
        return (*part.inputs, *[value for _, value in part.attributes])
    return part.arguments if isinstance(part, (Array, Call)) else ()


def variables(*roots: Part | None) -> tuple[str, ...]:
    """Return the names of all variables, each once, in the order of their first mention."""
    return _mentioned(Variable, roots)


def names(*roots: Part | None) -> tuple[str, ...]:
    """Return the names of all attributes, each once, in the order of their first mention."""
    return _mentioned(Name, roots)


def _mentioned(kind: type[Variable | Name], roots: Iterable[Part | None]) -> tuple[str, ...]:
    mentions = (part.name for root in roots for part in parts(root) if isinstance(part, kind))
    return tuple(dict.fromkeys(mentions))


def substitute(part: Any, values: Mapping[Part, Part]) -> Any:
    """Return an expression or term with others in the place of some of its parts.

    What takes the place of a tensor is one, and of a term a term.
    """
    if part in values:
        return values[part]
    if isinstance(part, Apply):
        inputs = tuple(operand and substitute(operand, values) for operand in part.inputs)
        attributes = tuple((name, substitute(value, values)) for name, value in part.attributes)
        return Apply(part.op, inputs, attributes, part.output)
    if isinstance(part, (Array, Call)):
        arguments = tuple(substitute(argument, values) for argument in part.arguments)
        return type(part)(part.function, arguments)
    return part


def parse(text: str) -> Expression:
    """Parse an expression.

    Raises:
      ExpressionError: the text is not an expression.
    """
    return _expression(_read(text), text)


def parse_term(text: str) -> Term:
    """Parse a term.

    Raises:
      ExpressionError: the text is not a term.
    """
    parsed = _term(_read(text), text)
    if isinstance(parsed, Variable):
        raise ExpressionError(f"{text}: expected a term, found a tensor")
    return parsed


def _read(text: str) -> str | list:
    """Return a text as nested lists of words, one for each pair of parentheses."""
    stack: list[list] = [[]]
    for word in _TOKEN.findall(text):
        if word == "(":
            stack.append([])
            if len(stack) > _MAX_DEPTH:
                raise ExpressionError(f"{text[:80]}…: more than {_MAX_DEPTH} parentheses deep")
        elif word != ")":
            stack[-1].append(word)
        elif len(stack) == 1:
            raise ExpressionError(f"{text}: a closing parenthesis too many")
        else:
            done = stack.pop()
            stack[-1].append(done)
    if len(stack) > 1:
        raise ExpressionError(f"{text}: a closing parenthesis is missing")
    if len(stack[0]) != 1:
        raise ExpressionError(f"{text!r}: expected one expression, found {len(stack[0])}")
    return stack[0][0]


def _expression(form: str | list, text: str) -> Expression:
    if isinstance(form, str):
        if form.startswith("?"):
            return Variable(form[1:])
        raise ExpressionError(f"{text}: expected a tensor, found {form}")
    if not form or not isinstance(form[0], str):
        raise ExpressionError(f"{text}: expected an operator's name after a parenthesis")
    head, rest = form[0], form[1:]
    if head == _OUTPUT:
        if len(rest) != 2 or not str(rest[0]).isdigit():
            raise ExpressionError(f"{text}: expected (output NUMBER EXPRESSION)")
        applied = _expression(rest[1], text)
        if not isinstance(applied, Apply):
            raise ExpressionError(f"{text}: an output of what is no operator")
        return dataclasses.replace(applied, output=int(rest[0]))
    if not head[0].isupper():
        return Array(head, tuple(_term(argument, text) for argument in rest))
    return _apply(head, rest, text)


def _apply(op: str, rest: list, text: str) -> Apply:
    inputs: list[Expression | None] = []
    attributes: list[tuple[str, Term]] = []
    forms = iter(rest)
    for form in forms:
        if not isinstance(form, str) or not form.startswith(":"):
            inputs.append(None if form == ABSENT else _expression(form, text))
            continue
        value = next(forms, None)
        if value is None:
            raise ExpressionError(f"{text}: {form} has no value")
        term = _term(value, text)
        if isinstance(term, Variable):
            raise ExpressionError(f"{text}: {form} is a tensor")
        attributes.append((form[1:], term))
    return Apply(op, tuple(inputs), tuple(attributes))


def _term(form: str | list, text: str) -> Term | Variable:
    if isinstance(form, list):
        if not form or not isinstance(form[0], str):
            raise ExpressionError(f"{text}: expected a function's name after a parenthesis")
        return Call(form[0], tuple(_term(argument, text) for argument in form[1:]))
    if form.startswith("?"):
        return Variable(form[1:])
    if form.startswith("$"):
        return Name(form[1:])
    if form.startswith('"'):
        return Literal(json.loads(form))
    for number in (int, float):
        try:
            return Literal(number(form))
        except ValueError:
            continue
    raise ExpressionError(f"{text}: expected a term, found {form}")
