"""Disguised models: the same graph with other names and its nodes in another order."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Ref


def disguised(graph: Graph, seed: int) -> Graph:
    """Return the graph as another exporter might have written it.

    A policy that relies on the numbers of nodes or on names fails on it. One that relies on
    operators and their connections does not.

    Args:
      graph: the graph to disguise; its inputs and outputs keep their order.
      seed: seed of the order of the nodes.
    """
    edit = Graph(_without_names(graph.header)).edit()
    made: dict[int, int] = {}
    for place, number in enumerate(graph.inputs):
        name = ("name", f"given_{place}")
        made[number] = edit.add(INPUT, (), (name,), graph.nodes[number].types).node
    for number in _random_order(graph, random.Random(seed)):
        if number not in made:
            node = graph.nodes[number]
            inputs = [ref and Ref(made[ref.node], ref.output) for ref in node.inputs]
            made[number] = edit.add(node.op, inputs, node.attributes, node.types, node.value).node
    outputs = [Ref(made[ref.node], ref.output) for ref in graph.outputs]
    edit.set_outputs(outputs, [f"result_{place}" for place in range(len(outputs))])
    return edit.finish()[0]


def _random_order(graph: Graph, generator: random.Random) -> Iterator[int]:
    """Yield the numbers of all nodes in a random order, each after its inputs."""
    missing = {number: len(node.used) for number, node in graph.nodes.items()}
    ready = [number for number, count in missing.items() if not count]
    while ready:
        number = ready.pop(generator.randrange(len(ready)))
        yield number
        for user in graph.users(number):
            missing[user] -= 1
            if not missing[user]:
                ready.append(user)


def _without_names(header: Any) -> Any:
    """Return a file's header without names and what else it keeps by node number or name."""
    if header is None:
        return None
    return dataclasses.replace(header, value_names={}, nodes={}, described=frozenset(), defaults={})
