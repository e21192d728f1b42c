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

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from environments.tensor_graphs.execution.precise import ImpreciseError, Precise
from environments.tensor_graphs.execution.sizes import Sizes
from environments.tensor_graphs.graph.nodes import INPUT, Node, Ref
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
    """Return the anchors of a model's inputs, in as few layers as hold all of them.

    Args:
      precise: the model.
      sizes: the sizes that it leaves open, with those of inner values.

    Returns:
      At most four layers. Anchors of different inputs, or of different elements of one, share one.
    """
    tracer = _Tracer(precise, sizes)
    layers: list[dict[str, np.ndarray]] = []
    for anchor in tracer.all():
        free = (layer for layer in layers if _fits(anchor, layer))
        layer = next(free, None)
        if layer is None:
            if len(layers) == _MOST_LAYERS:
                break
            layers.append(layer := {})
        for name, array in anchor.items():
            targets = layer.setdefault(name, np.full(array.shape, np.nan))
            np.copyto(targets, array, where=~np.isnan(array))
    return list(layers)


def _fits(anchor: Anchors, layer: Anchors) -> bool:
    return all(
        name not in layer or not np.any(~np.isnan(layer[name]) & ~np.isnan(array))
        for name, array in anchor.items()
    )


class _Tracer:
    """Traces constants back to the inputs of a model."""

    def __init__(self, precise: Precise, sizes: Sizes) -> None:
        self._precise, self._sizes = precise, sizes
        self._graph = precise.graph
        self._nodes = self._graph.nodes
        self._symbols = dict(sizes.symbols)
        # What the inputs of bodies stand for.
        self._outer: dict[int, Ref] = {}
        for node in self._nodes.values():
            if bodies.has_bodies(node):
                for body in bodies.control_of(node).bodies:
                    self._outer.update(_captured(self._nodes, body))

    def all(self) -> Iterator[Anchors]:
        """Yield an anchor for each constant that can be traced to inputs."""
        for number in self._graph.order():
            node = self._nodes[number]
            for ref, target in self._targets(node):
                try:
                    with np.errstate(all="ignore"):
                        traced = self._traced(ref, target)
                except ImpreciseError:
                    continue
                if traced is not None and _is_unusual(traced[1]):
                    yield {traced[0]: traced[1]}

    def _targets(self, node: Node) -> Iterator[tuple[Ref, np.ndarray]]:
        """Yield the values that a node subtracts from or compares with constants, and these."""
        refs = node.inputs
        if node.op == "Clip":
            for name in ("min", "max"):
                if refs[0] and np.isfinite(bound := float(node.attribute(name))):
                    yield refs[0], np.asarray(bound)
        elif node.op == "BatchNormalization" and refs[0] and refs[3] and self._is_constant(refs[3]):
            shape = self._shape(refs[0])
            if shape is not None and (mean := self._value(refs[3])) is not None:
                yield refs[0], mean.reshape(-1, *(1,) * (len(shape) - 2))
        elif node.op in _COMPARED or node.op == "Add":
            for own, constant in ((refs[0], refs[1]), (refs[1], refs[0])):
                if own and constant and self._is_constant(constant) and not self._is_constant(own):
                    value = self._value(constant)
                    if value is not None and value.dtype.kind in "fiu":
                        yield own, -value if node.op == "Add" else value

    def _traced(self, ref: Ref, target: np.ndarray) -> tuple[str, np.ndarray] | None:
        """Return the input, and what it must be for a value to be the target; None if unknown."""
        shape = self._shape(ref)
        if shape is None or math.prod(shape) > _MOST_ELEMENTS:
            return None
        try:
            wanted = np.array(np.broadcast_to(target.astype(np.float64), shape))
        except ValueError:
            return None
        while True:
            number = ref.node
            node = self._nodes[number]
            if number in self._outer:
                ref = self._outer[number]
            elif node.op == INPUT:
                return (node.attribute("name"), wanted) if node.is_model_input else None
            else:
                before = self._undone(number, node, ref.output, wanted)
                if before is None:
                    return None
                ref, wanted = before
                wanted[~np.isfinite(wanted)] = np.nan
            if np.isnan(wanted).all():
                return None

    def _undone(
        self, number: int, node: Node, output: int, wanted: np.ndarray
    ) -> tuple[Ref, np.ndarray] | None:
        """Return an input of a node, and what it must be for an output to be as wanted."""
        open_places = [
            place for place, ref in enumerate(node.inputs) if ref and not self._is_constant(ref)
        ]
        if node.op in _MOVING and open_places:
            return self._moved(number, node, open_places, output, wanted)
        if len(open_places) != 1:
            return None
        place = open_places[0]
        ref = node.inputs[place]
        assert ref is not None
        if node.op in _UNDONE:
            return ref, _UNDONE[node.op](wanted)
        if (node.op, place) not in _UNDONE_BY:
            return None
        constant = node.inputs[1 - place]
        shape, value = self._shape(ref), None if constant is None else self._value(constant)
        if shape is None or value is None:
            return None
        before = _UNDONE_BY[node.op, place](wanted, value.astype(np.float64))
        tags = np.broadcast_to(_tags(shape), before.shape)
        return ref, _placed(before, tags, shape)

    def _moved(
        self, number: int, node: Node, places: Sequence[int], output: int, wanted: np.ndarray
    ) -> tuple[Ref, np.ndarray] | None:
        """Undo an operator that moves elements: see where it moves the numbers of all elements."""
        ref, arrays = node.inputs[places[0]], []
        assert ref is not None
        for place, source in enumerate(node.inputs):
            if source is None:
                continue
            shape = self._shape(source)
            if shape is None or (node.op == "Gather" and place == 1 and place in places):
                return None
            if place == places[0]:
                arrays.append(_tags(shape))
            elif node.op == "Concat":
                arrays.append(np.zeros(shape))
            else:
                value = self._value(source)
                if value is None:
                    return None
                arrays.append(value)
        moved = self._precise.computed(number, arrays, self._symbols)[output]
        shape = self._shape(ref)
        assert shape is not None
        return (ref, _placed(wanted, moved, shape)) if moved.shape == wanted.shape else None

    def _is_constant(self, ref: Ref) -> bool:
        return self._graph.is_constant(ref.node)

    def _value(self, ref: Ref) -> np.ndarray | None:
        try:
            return self._precise.value(ref)
        except ImpreciseError:
            return None

    def _shape(self, ref: Ref) -> tuple[int, ...] | None:
        kind = self._graph.type_of(ref)
        if kind is None or kind.shape is None:
            return None
        return tuple(map(self._sizes.value, kind.shape))


def _captured(nodes: Mapping[int, Node], body: bodies.Body) -> Iterator[tuple[int, Ref]]:
    """Yield the inputs of a body that stand for outer values, with these."""
    for number, node in nodes.items():
        if bodies.body_of(node) == body.name:
            place = body.place_of_captured(node.attribute("place"))
            if place >= 0:
                yield number, body.captured[place]


def _tags(shape: tuple[int, ...]) -> np.ndarray:
    """Return an array that numbers its elements, from 1 on."""
    return np.arange(1.0, math.prod(shape) + 1).reshape(shape)


def _placed(values: np.ndarray, tags: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return an array with each value at the element that its tag numbers; NaN elsewhere."""
    elements = np.full(math.prod(shape), np.nan)
    is_element = tags >= 1
    elements[tags[is_element].astype(np.int64) - 1] = values[is_element]
    return elements.reshape(shape)


def _is_unusual(target: np.ndarray) -> bool:
    return bool(np.nanmax(np.abs(target), initial=0.0) > _USUAL)
