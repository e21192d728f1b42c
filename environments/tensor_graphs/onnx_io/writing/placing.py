"""Divide the nodes of a graph among the graphs that are written: the model's own, and its bodies.

A node is written where its value is needed. Only what depends on constants alone may be needed in
several places: large constants are then written once, around all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

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


class Placer:
    """Divides the nodes of a graph."""

    def __init__(self, graph: Graph, folder: ConstantFolder) -> None:
        self._graph, self._folder = graph, folder
        self._rank = {number: place for place, number in enumerate(graph.order())}
        self._needed: dict[str, set[int]] = {}
        self._around: dict[str, str] = {}

    def places(self) -> dict[str, list[int]]:
        """Return the nodes to write by the id of their body; those of the model itself at `MAIN`.

        Each comes after those that it uses. Inputs of bodies are missing if nothing uses them.

        Raises:
          UserError: a rule has made a node of values of different bodies.
        """
        self._collect(MAIN, self._graph.outputs)
        self._needed[MAIN].update(self._graph.inputs)
        self._share()
        return {
            name: sorted(needed, key=self._rank.__getitem__)
            for name, needed in self._needed.items()
        }

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
            if self._folder.values(number) is not None:
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
        nodes = (self._graph.nodes[number] for number in self._needed[body.name])
        places = (node.attribute("place") for node in nodes if node.op == INPUT)
        return [ref for ref in map(body.captured_at, places) if ref is not None]

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
        values = self._folder.values(number) or []
        return sum(size_bytes(dtype, array.shape) for array, dtype in values) > _MAX_REPEATED_BYTES
