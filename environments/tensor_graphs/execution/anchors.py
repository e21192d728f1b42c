"""Find the inputs at which a model subtracts nearly equal numbers, or compares them.

A model that takes timestamps or coordinates subtracts a large constant first. What a rewrite loses
there is only seen on inputs near that constant, and what a comparison decides only near the number
that it compares with. So each constant that is subtracted, added or compared with is traced back to
the inputs, through operators that can be undone: those that move elements, and those that change
each element by itself.

    x ── Cast ── Reshape ── Sub ── …        the anchor of x: the constant, reshaped as x is
                             │
                       a constant
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import TypeGuard

import numpy as np

from environments.tensor_graphs.execution.precise import ImpreciseError, Precise, captured
from environments.tensor_graphs.execution.sizes import Sizes
from environments.tensor_graphs.graph.nodes import Node, Ref
from environments.tensor_graphs.onnx_io import bodies

Anchors = Mapping[str, np.ndarray]
"""A float64 array for each input, by name; NaN where any number will do."""

_COMPARED = frozenset(
    {"Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Min", "Sub"}
)
_MOVING = frozenset(
    {"Concat", "DepthToSpace", "Expand", "Gather", "Pad", "Reshape", "Slice", "SpaceToDepth",
     "Split", "Tile", "Transpose"}
)  # fmt: skip
_UNDONE: Mapping[str, Callable[[np.ndarray], np.ndarray]] = {
    "Abs": lambda y: y,
    "Cast": lambda y: y,
    "Clip": lambda y: y,
    "Exp": np.log,
    "Log": np.exp,
    "Neg": np.negative,
    "Reciprocal": np.reciprocal,
    "Relu": lambda y: y,
    "Sqrt": np.square,
}
"""For operators of one input: from an output to the input."""

_UNDONE_BY: Mapping[tuple[str, int], Callable[[np.ndarray, np.ndarray], np.ndarray]] = {
    ("Add", 0): lambda y, c: y - c,
    ("Add", 1): lambda y, c: y - c,
    ("Div", 0): lambda y, c: y * c,
    ("Div", 1): lambda y, c: c / y,
    ("Mul", 0): lambda y, c: y / c,
    ("Mul", 1): lambda y, c: y / c,
    ("Pow", 0): lambda y, c: np.power(y, 1 / c),
    ("Sub", 0): lambda y, c: y + c,
    ("Sub", 1): lambda y, c: c - y,
}
"""For operators of two: from an output and the other input, a constant, to the input at a place."""

_MOST_LAYERS = 4
_MOST_ELEMENTS = 1 << 22
# Numbers as small as these are drawn anyhow.
_USUAL = 3.0


def anchors(precise: Precise, sizes: Sizes) -> list[Anchors]:
    """Return the anchors of a model's inputs, in as few layers as hold all of them, four at most.

    Anchors of different inputs, or of different elements of one, share a layer. `sizes` include
    those of inner values.
    """
    layers: list[dict[str, np.ndarray]] = []
    for name, anchor in _Tracer(precise, sizes).anchors():
        is_wanted = ~np.isnan(anchor)
        free = (
            layer
            for layer in layers
            if name not in layer or not np.any(~np.isnan(layer[name]) & is_wanted)
        )
        layer = next(free, None)
        if layer is None:
            if len(layers) == _MOST_LAYERS:
                break
            layers.append(layer := {})
        targets = layer.setdefault(name, np.full(anchor.shape, np.nan))
        np.copyto(targets, anchor, where=is_wanted)
    return list(layers)


class _Tracer:
    def __init__(self, precise: Precise, sizes: Sizes) -> None:
        self._precise, self._sizes = precise, sizes
        self._graph = precise.graph
        self._nodes = self._graph.nodes
        self._symbols = dict(sizes.symbols)
        # By node, whether it can be traced.
        self._reaching: dict[int, bool] = {}
        # What the inputs of bodies stand for.
        self._outer: dict[int, Ref] = {}
        for node in self._nodes.values():
            if bodies.has_bodies(node):
                for body in bodies.control_of(node).bodies:
                    self._outer.update(captured(self._nodes, body))

    def anchors(self) -> Iterator[tuple[str, np.ndarray]]:
        """Yield an input and its anchor for each constant that can be traced to one."""
        for number in self._graph.order():
            for ref, target in self._targets(self._nodes[number]):
                try:
                    with np.errstate(all="ignore"):
                        name, anchor = self._traced(ref, target)
                except ImpreciseError:
                    continue
                if np.nanmax(np.abs(anchor), initial=0.0) > _USUAL:
                    yield name, anchor

    def _targets(self, node: Node) -> Iterator[tuple[Ref, np.ndarray]]:
        """Yield the values that a node subtracts from or compares with constants, and these."""
        refs = node.inputs
        if node.op == "Clip" and self._reaches_input(refs[0]):
            for name in ("min", "max"):
                if np.isfinite(bound := float(node.attribute(name))):
                    yield refs[0], np.asarray(bound)
        elif (
            node.op == "BatchNormalization"
            and self._reaches_input(refs[0])
            and self._is_constant(refs[3])
        ):
            with contextlib.suppress(ImpreciseError):
                mean = self._precise.value(refs[3])
                yield refs[0], mean.reshape(-1, *(1,) * (len(self._shape(refs[0])) - 2))
        elif node.op in _COMPARED or node.op == "Add":
            for own, constant in ((refs[0], refs[1]), (refs[1], refs[0])):
                if self._is_constant(constant) and self._reaches_input(own):
                    with contextlib.suppress(ImpreciseError):
                        value = self._precise.value(constant)
                        if value.dtype.kind in "fiu":
                            yield own, -value if node.op == "Add" else value

    def _reaches_input(self, ref: Ref | None) -> TypeGuard[Ref]:
        """Whether all operators on the way from an input of the model to a value can be undone.

        Most ways end soon, at a Conv or a MatMul. To know this beforehand spares arrays as large as
        the value, and constants.
        """
        if ref is None:
            return False
        passed, number = [], ref.node
        while number not in self._reaching:
            passed.append(number)
            node = self._nodes[number]
            if number in self._outer:
                number = self._outer[number].node
            elif node.is_model_input:
                self._reaching[number] = True
            else:
                try:
                    before = node.inputs[self._place_before(node)]
                except ImpreciseError:
                    self._reaching[number] = False
                else:
                    assert before is not None
                    number = before.node
        self._reaching.update(dict.fromkeys(passed, self._reaching[number]))
        return self._reaching[number]

    def _traced(self, ref: Ref, target: np.ndarray) -> tuple[str, np.ndarray]:
        """Return the input, and what it must be for a value to be the target.

        Raises:
          ImpreciseError: an operator on the way cannot be undone.
        """
        shape = self._shape(ref)
        if math.prod(shape) > _MOST_ELEMENTS:
            raise ImpreciseError("a value with too many elements")
        try:
            wanted = np.array(np.broadcast_to(target.astype(np.float64), shape))
        except ValueError as error:
            raise ImpreciseError(error) from None
        while not np.isnan(wanted).all():
            node = self._nodes[ref.node]
            if ref.node in self._outer:
                ref = self._outer[ref.node]
            elif node.is_model_input:
                return node.attribute("name"), wanted
            else:
                ref, wanted = self._undone(node, ref, wanted)
                wanted[~np.isfinite(wanted)] = np.nan
        raise ImpreciseError("no number is known for any element")

    def _undone(self, node: Node, output: Ref, wanted: np.ndarray) -> tuple[Ref, np.ndarray]:
        """Return an input of a node, and what it must be for an output to be as wanted."""
        place = self._place_before(node)
        ref = node.inputs[place]
        assert ref is not None
        if node.op in _MOVING:
            return self._moved(node, place, output, wanted)
        if node.op in _UNDONE:
            return ref, _UNDONE[node.op](wanted)
        constant, shape = node.inputs[1 - place], self._shape(ref)
        assert constant is not None
        value = self._precise.value(constant)
        before = _UNDONE_BY[node.op, place](wanted, value.astype(np.float64))
        return ref, _placed(before, np.broadcast_to(_tags(shape), before.shape), shape)

    def _place_before(self, node: Node) -> int:
        """Return the place of the input that can be told from the output.

        Raises:
          ImpreciseError: none can.
        """
        places = [
            place for place, ref in enumerate(node.inputs) if ref and not self._is_constant(ref)
        ]
        if node.op == "Gather" and 1 in places:
            raise ImpreciseError("what is gathered is not known")
        if places and (node.op in _MOVING or len(places) == 1):
            place = places[0]
            if node.op in _MOVING or node.op in _UNDONE or (node.op, place) in _UNDONE_BY:
                return place
        raise ImpreciseError(f"{node.op} cannot be undone")

    def _moved(
        self, node: Node, moved_place: int, output: Ref, wanted: np.ndarray
    ) -> tuple[Ref, np.ndarray]:
        """Undo an operator that moves elements: see where it moves the numbers of all elements."""
        arrays = []
        for place, source in enumerate(node.inputs):
            if source is None:
                continue
            if place == moved_place:
                ref, shape = source, self._shape(source)
                arrays.append(_tags(shape))
            elif node.op == "Concat":
                arrays.append(np.zeros(self._shape(source)))
            else:
                arrays.append(self._precise.value(source))
        moved = self._precise.computed(output.node, arrays, self._symbols)[output.output]
        if moved.shape != wanted.shape:
            raise ImpreciseError(f"{node.op} gives another shape")
        return ref, _placed(wanted, moved, shape)

    def _is_constant(self, ref: Ref | None) -> TypeGuard[Ref]:
        return ref is not None and self._graph.is_constant(ref.node)

    def _shape(self, ref: Ref) -> tuple[int, ...]:
        kind = self._graph.type_of(ref)
        if kind is None or kind.shape is None:
            raise ImpreciseError("a value of unknown rank")
        return tuple(map(self._sizes.value, kind.shape))


def _tags(shape: tuple[int, ...]) -> np.ndarray:
    """Return an array that numbers its elements, from 1 on."""
    return np.arange(1.0, math.prod(shape) + 1).reshape(shape)


def _placed(values: np.ndarray, tags: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array with each value at the element that its tag numbers; NaN elsewhere."""
    elements = np.full(math.prod(shape), np.nan)
    is_element = tags >= 1
    elements[tags[is_element].astype(np.int64) - 1] = values[is_element]
    return elements.reshape(shape)
