"""Divide the nodes of a graph among the graphs that are written: the model's own, and its bodies.

A node is written where its value is needed. Only what depends on constants alone may be needed in
several places: large constants are then written once, around all of them.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Mapping

from environments.errors import UserError
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Ref
from environments.tensor_graphs.onnx_io.bodies import Body, body_of, control_of, has_bodies
from environments.tensor_graphs.onnx_io.tensors import size_bytes
from environments.tensor_graphs.onnx_io.writing.folding import ConstantFolder

MAIN = ""
"""Stands for the model's own graph among the ids of bodies."""

_MAX_REPEATED_BYTES = 1 << 10
"""Smaller constants are written once in each graph that uses them."""


@dataclasses.dataclass(frozen=True)
class Place:
    """A graph that is written: its nodes, Inputs too, each after those that it uses.

    `inputs` are its Input nodes by their place; those that nothing uses are missing.
    """

    nodes: tuple[int, ...]
    inputs: Mapping[int, int]


def place_nodes(graph: Graph, folder: ConstantFolder) -> dict[str, Place]:
    """Return the graphs to write by the id of their body; the model's own is `MAIN`.

    Raises:
      UserError: a rule has made a node of values of different bodies.
    """
    return _Placer(graph, folder).places()


class _Placer:
    def __init__(self, graph: Graph, folder: ConstantFolder) -> None:
        self._graph, self._folder = graph, folder
        self._rank = {number: place for place, number in enumerate(graph.order())}
        self._needed: dict[str, set[int]] = {}
        self._around: dict[str, str] = {}

    def places(self) -> dict[str, Place]:
        self._collect(MAIN, self._graph.outputs)
        self._needed[MAIN].update(self._graph.inputs)
        self._share()
        return {name: self._place(name) for name in self._needed}

    def _collect(self, name: str, roots: Iterable[Ref]) -> None:
        """Find what a graph needs to compute its outputs, and the same for all bodies in it."""
        needed = self._needed[name] = set()
        todo = [ref.node for ref in roots]
        while todo:
            number = todo.pop()
            if number in needed:
                continue
            needed.add(number)
            node = self._graph.nodes[number]
            if node.op == INPUT and body_of(node) != name:
                raise UserError(
                    "a rule joined values of different graphs (of branches, or of a loop and what "
                    "is around it), which no file can say; leave the rule out"
                )
            if self._folder.is_folded(number):
                continue
            if not has_bodies(node):
                todo += node.used
                continue
            control = control_of(node)
            todo += [ref.node for ref in control.inputs if ref is not None]
            for body in control.bodies:
                self._around[body.name] = name
                self._collect(body.name, body.outputs)
                todo += [ref.node for ref in self._captured(body)]

    def _captured(self, body: Body) -> list[Ref]:
        """Return the values around a body that its nodes use."""
        inputs = (self._graph.nodes[number] for number in self._inputs(body.name))
        places = (body.place_of_captured(node.attribute("place")) for node in inputs)
        return [body.captured[place] for place in places if place >= 0]

    def _inputs(self, name: str) -> list[int]:
        return [n for n in self._needed[name] if self._graph.nodes[n].op == INPUT]

    def _share(self) -> None:
        """Write what several graphs need once: in one that is around them, if it needs it too."""
        uses = Counter(number for needed in self._needed.values() for number in needed)
        for number, count in uses.items():
            if count > 1 and self._is_large(number):
                self._needed[MAIN].add(number)
        for name in self._around:
            around = name
            while around != MAIN:
                around = self._around[around]
                self._needed[name] -= self._needed[around]

    def _is_large(self, number: int) -> bool:
        if not self._folder.is_folded(number):
            return False
        values = self._folder.values(number)
        return sum(size_bytes(dtype, array.shape) for array, dtype in values) > _MAX_REPEATED_BYTES

    def _place(self, name: str) -> Place:
        nodes = tuple(sorted(self._needed[name], key=self._rank.__getitem__))
        inputs = self._inputs(name) if name != MAIN else []
        return Place(nodes, {self._graph.nodes[n].attribute("place"): n for n in inputs})
