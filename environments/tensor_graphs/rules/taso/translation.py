"""Translate TASO's rules into this package's language.

  CONV2D, POOL2D_*    Conv, MaxPool, AveragePool. The shapes determine the number of groups. Padding
                      "same" becomes numbers if the stride is 1; else a name, bound in the source.
  MATMUL, EW_*, MUL   MatMul, Add, Mul; MUL's second operand has no axes
  CONCAT, SPLIT       a Split cuts where its input was concatenated
  ENLARGE             Pad of the weight

TASO's elementwise operators take tensors of one shape, and its products of matrices take matrices
only. The operators of this package take more, so `translate` also returns what TASO takes for
granted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Expression,
    Literal,
    Name,
    Term,
    Variable,
    children,
)
from environments.tensor_graphs.rules.language.notation import Quantity, Tensor, call, op
from environments.tensor_graphs.rules.language.rule import Rule, RuleError
from environments.tensor_graphs.rules.taso.file import TasoOperator, TasoParameter

_SAME, _VALID = 0, 1
_ACTIVATIONS = {1: "Sigmoid", 2: "Relu", 3: "Tanh"}
_UNARY = {TasoOperator.RELU: "Relu", TasoOperator.SIGMOID: "Sigmoid", TasoOperator.TANH: "Tanh"}
_ELEMENTWISE = {TasoOperator.EW_ADD: "Add", TasoOperator.EW_MUL: "Mul"}
_POOLS = {TasoOperator.POOL2D_MAX: "MaxPool", TasoOperator.POOL2D_AVG: "AveragePool"}
_WINDOWS = ("Conv", "Pad", *_POOLS.values())


class TranslationError(ValueError):
    """A rule cannot be expressed in this package's language; the message is one line."""


def translate(rule: Any, name: str) -> tuple[Rule, tuple[Term, ...]]:
    """Translate a rule, a message of `file`, without verifying it.

    Returns:
      The rule, with the conditions that the file states, and those that TASO's operators imply.

    Raises:
      TranslationError: this package's language cannot express the rule.
    """
    translator = _Translator()
    sources = translator.side(rule.source, is_source=True)
    if not rule.outputs:
        raise TranslationError("it maps no output")
    old = [_output(sources, pair.source, pair.source_output).expression for pair in rule.outputs]
    targets = translator.side(rule.target, is_source=False)
    new = [_output(targets, pair.target, pair.target_output).expression for pair in rule.outputs]
    if old == new:
        raise TranslationError("its two sides are the same here")
    conditions = tuple(dict.fromkeys(translator.conditions))
    try:
        translated = Rule(name, tuple(old), tuple(new), conditions)
    except RuleError as error:
        raise TranslationError(str(error).removeprefix(f"rule {name}: ")) from error
    implicit = dict.fromkeys(translator.implicit)
    return translated, tuple(term for term in implicit if term not in conditions)


def _output(side: Sequence[Sequence[Tensor]], node: int, output: int) -> Tensor:
    if not 0 <= node < len(side) or not 0 <= output < len(side[node]):
        raise TranslationError(f"there is no output {output} of operator {node}")
    return side[node][output]


class _Node(NamedTuple):
    """The number of an operator's type, and the values of its parameters by their keys."""

    type: int
    parameters: Mapping[int, int]

    @property
    def name(self) -> str:
        """TASO's name of the operator, or its number."""
        is_known = self.type in TasoOperator.__members__.values()
        return TasoOperator(self.type).name if is_known else f"operator {self.type}"

    def needed(self, parameter: TasoParameter) -> int:
        """Return a parameter that the operator must have."""
        value = self.parameters.get(parameter)
        if value is None or value < 0:
            raise TranslationError(f"{self.name} has no {parameter.name}")
        return value

    @property
    def kernel(self) -> tuple[int, int] | None:
        """Height and width of the kernel, if both are there."""
        height = self.parameters.get(TasoParameter.KERNEL_H)
        width = self.parameters.get(TasoParameter.KERNEL_W)
        return None if height is None or width is None else (height, width)


class _Translator:
    """Translates both sides of one rule, the source first."""

    def __init__(self) -> None:
        self.conditions: list[Term] = []
        self.implicit: list[Term] = []
        self._cuts: dict[tuple[Expression, int], list[Quantity]] = {}
        self._pads: set[str] = set()
        self._is_source = True
        self._num_names = 0

    def side(self, operators: Iterable[Any], is_source: bool) -> list[list[Tensor]]:
        """Translate one side of the rule; return the outputs of each operator."""
        self._is_source = is_source
        outputs: list[list[Tensor]] = []
        for operator in operators:
            inputs = [
                Tensor(Variable(f"x{-tensor.operator}"))
                if tensor.operator < 0
                else _output(outputs, tensor.operator, tensor.output)
                for tensor in operator.inputs
            ]
            parameters = {parameter.key: parameter.value for parameter in operator.parameters}
            outputs.append(self._node(_Node(operator.type, parameters), inputs))
        return outputs

    def _node(self, node: _Node, inputs: list[Tensor]) -> list[Tensor]:
        kind: Any = node.type
        if kind in _UNARY and len(inputs) == 1:
            return [getattr(op, _UNARY[kind])(*inputs)]
        if kind in _ELEMENTWISE and len(inputs) == 2:
            self._same_shape(*inputs)
            return [getattr(op, _ELEMENTWISE[kind])(*inputs)]
        if kind == TasoOperator.MUL and len(inputs) == 2:
            self._rank(inputs[1], 0, self.conditions)
            return [inputs[0] * inputs[1]]
        if kind == TasoOperator.MATMUL and len(inputs) == 2:
            for matrix in inputs:
                self._rank(matrix, 2, self.implicit)
            return [self._activated(node, inputs[0] @ inputs[1])]
        if kind == TasoOperator.CONCAT and inputs:
            return [self._concat(node, inputs)]
        if kind == TasoOperator.SPLIT and len(inputs) == 1:
            return self._split(node, inputs[0])
        if kind == TasoOperator.TRANSPOSE and len(inputs) == 1:
            return [self._transpose(node, inputs[0])]
        if kind == TasoOperator.CONV2D and len(inputs) == 2:
            return [self._activated(node, self._conv(node, *inputs))]
        if kind in _POOLS and inputs:
            return [self._activated(node, self._pool(node, inputs[0]))]
        if kind == TasoOperator.ENLARGE and inputs and not self._is_source:
            return [self._enlarge(node, inputs)]
        raise TranslationError(f"{node.name} with {len(inputs)} inputs cannot be said here")

    def _activated(self, node: _Node, tensor: Tensor) -> Tensor:
        mode = node.parameters.get(TasoParameter.ACTIVATION, 0)
        if mode and mode not in _ACTIVATIONS:
            raise TranslationError(f"{node.name} has activation {mode}")
        return getattr(op, _ACTIVATIONS[mode])(tensor) if mode else tensor

    def _concat(self, node: _Node, inputs: list[Tensor]) -> Tensor:
        axis = node.needed(TasoParameter.AXIS)
        rank = node.parameters.get(TasoParameter.NUM_DIMENSIONS)
        if rank is not None:
            for part in inputs:
                self._rank(part, rank, self.conditions)
        return op.Concat(*inputs, axis=axis)

    def _split(self, node: _Node, tensor: Tensor) -> list[Tensor]:
        axis = node.needed(TasoParameter.AXIS)
        count = node.parameters.get(TasoParameter.NUM_OUTPUTS, 2)
        cuts = self._cuts_of(tensor.expression, axis)
        if cuts is not None and len(cuts) != count:
            raise TranslationError(f"SPLIT has {count} outputs of {len(cuts)} parts")
        if self._is_source:
            named = [self._name("part") for _ in range(count)]
            for part, size in zip(named, cuts or (), strict=False):
                self.conditions.append((part == size).term)
            cuts = self._cuts[tensor.expression, axis] = named
        if cuts is None:
            raise TranslationError("it does not say where its target's SPLIT cuts")
        split = op.Split(tensor, axis=axis, split=cuts)
        return [split.output(number) for number in range(count)]

    def _transpose(self, node: _Node, tensor: Tensor) -> Tensor:
        rank = node.needed(TasoParameter.NUM_DIMENSIONS)
        code = node.needed(TasoParameter.PERMUTATION)
        order: list[int] = []
        for _ in range(rank):
            order.insert(0, code % rank)
            code //= rank
        if sorted(order) != list(range(rank)) or code:
            raise TranslationError(f"TRANSPOSE has no permutation of {rank} axes")
        return op.Transpose(tensor, perm=order)

    def _conv(self, node: _Node, image: Tensor, weight: Tensor) -> Tensor:
        if node.kernel is not None and self._is_bound(weight):
            self.conditions.append((weight.shape[2:] == node.kernel).term)
        group = self._name("group")
        if not self._is_source:
            group = _size(image.expression, 1) / _size(weight.expression, 1)
        return op.Conv(image, weight, group=group, **self._window(node))

    def _pool(self, node: _Node, image: Tensor) -> Tensor:
        if node.kernel is None:
            raise TranslationError(f"{node.name} has no kernel")
        pool = getattr(op, _POOLS[TasoOperator(node.type)])
        return pool(image, kernel_shape=node.kernel, **self._window(node))

    def _window(self, node: _Node) -> dict[str, Any]:
        strides = node.needed(TasoParameter.STRIDE_H), node.needed(TasoParameter.STRIDE_W)
        mode, kernel = node.needed(TasoParameter.PAD), node.kernel
        pads: Any
        if mode == _VALID:
            pads = (0,) * 4
        elif mode != _SAME:
            raise TranslationError(f"{node.name} has padding {mode}")
        elif kernel is not None and strides == (1, 1):
            if not all(size % 2 for size in kernel):
                raise TranslationError(f"{node.name} has an even kernel and padding SAME")
            pads = [size // 2 for size in kernel] * 2
        else:
            kind = "x".join(map(str, (*(kernel or ("any",)), *strides)))
            pads = Quantity(Name(f"pads_{kind}"))
            if not self._is_source and kind not in self._pads:
                raise TranslationError(f"its source does not say the pads of {node.name}")
            self._pads.add(kind)
        return {"pads": pads, "strides": strides}

    def _enlarge(self, node: _Node, inputs: list[Tensor]) -> Tensor:
        kernel: Sequence[Any] = node.kernel or ()
        if len(inputs) == 2:
            kernel = [_size(inputs[1].expression, axis) for axis in (2, 3)]
        if not kernel:
            raise TranslationError("ENLARGE has no kernel")
        sizes = [_size(inputs[0].expression, axis) for axis in (2, 3)]
        around = [(size - own) / 2 for size, own in zip(kernel, sizes, strict=True)]
        return op.Pad(inputs[0], pads=(0, 0, *around, 0, 0, *around))

    def _name(self, kind: str) -> Quantity:
        self._num_names += 1
        return Quantity(Name(f"{kind}{self._num_names}"))

    def _is_bound(self, tensor: Tensor) -> bool:
        return isinstance(tensor.expression, Variable) and self._is_source

    def _rank(self, tensor: Tensor, rank: int, conditions: list[Term]) -> None:
        if self._is_bound(tensor):
            conditions.append((tensor.rank == rank).term)

    def _same_shape(self, first: Tensor, second: Tensor) -> None:
        if not self._is_source:
            return
        left, right = _shape(first.expression), _shape(second.expression)
        if left is not None and right is not None and left.term != right.term:
            self.implicit.append((left == right).term)

    def _cuts_of(self, expression: Any, axis: int) -> list[Quantity] | None:
        """Return the sizes along an axis of the parts that a tensor was concatenated from.

        The result is None if the tensor was not concatenated along this axis.
        """
        if (expression, axis) in self._cuts:
            return self._cuts[expression, axis]
        if not isinstance(expression, Apply):
            return None
        inputs = expression.inputs
        if expression.op == "Concat":
            if dict(expression.attributes)["axis"] == Literal(axis):
                return [_size(part, axis) for part in inputs]
            return self._cuts_of(inputs[0], axis)
        if expression.op in ("Conv", "MatMul"):
            last = 1 if expression.op == "MatMul" else 0
            return self._cuts_of(inputs[1], last) if axis == 1 else self._cuts_of(inputs[0], axis)
        if expression.op == "Transpose":
            return self._cuts_of(inputs[0], _order(expression)[axis])
        cuts = [self._cuts_of(operand, axis) for operand in inputs]
        return next((sizes for sizes in cuts if sizes is not None), None)


def _order(transpose: Apply) -> list[int]:
    return [int(axis.value) for axis in children(transpose.attributes[0][1])]  # type: ignore[union-attr]


def _size(expression: Any, axis: int) -> Quantity:
    """Return a tensor's size along an axis, as a term of the sizes of variables.

    Raises:
      TranslationError: no term expresses the size.
    """
    if isinstance(expression, Variable):
        return Tensor(expression).dim(axis)
    name, inputs, attributes = expression.op, expression.inputs, dict(expression.attributes)
    if name == "Concat" and attributes["axis"] == Literal(axis):
        return call("+", *(_size(part, axis) for part in inputs))
    if name == "Split" and attributes["axis"] == Literal(axis):
        return Quantity(attributes["split"])[expression.output]
    if name == "Transpose":
        return _size(inputs[0], _order(expression)[axis])
    if name == "MatMul" and axis == 1:
        return _size(inputs[1], 1)
    if name == "Conv" and axis == 1:
        return _size(inputs[1], 0)
    if axis > 1 and name in _WINDOWS:
        raise TranslationError(f"a size of {expression} cannot be said")
    return _size(inputs[0], axis)


def _shape(expression: Any) -> Quantity | None:
    """Return a tensor's shape as a term of variables' shapes; None if no term expresses it."""
    if isinstance(expression, Variable):
        return Tensor(expression).shape
    name, inputs, attributes = expression.op, expression.inputs, dict(expression.attributes)
    inner = _shape(inputs[0])
    if inner is None or name in _WINDOWS:
        return None
    if name == "Transpose":
        return call("permute", inner, Quantity(attributes["perm"]))
    if name in ("Concat", "Split"):
        axis = attributes["axis"].value
        return call("set", inner, axis, _size(expression, axis))
    if name == "MatMul":
        return call("list", _size(inputs[0], 0), _size(inputs[1], 1))
    return inner
