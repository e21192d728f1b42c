"""What the verbs work on: a model's graph, rules, and what is to become less."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import Any

import onnx

from environments.errors import UserError
from environments.tensor_graphs import models, onnx_io, rules
from environments.tensor_graphs.analytic import AnalyticObjective
from environments.tensor_graphs.engine import Engine, State
from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.nodes import CONSTANT, INPUT
from environments.tensor_graphs.objectives import Objective, make_objective
from environments.tensor_graphs.substitutions import RuleError, Substitution


@dataclasses.dataclass(frozen=True)
class Problem:
    """A model to be optimised.

    Attributes:
      name: as it was called.
      graph: of the model.
      rules: that may be used.
      objective: what is to become less.
      sizes: of dimensions that the model leaves open, by name.
    """

    name: str
    graph: Graph
    rules: tuple[Substitution, ...]
    objective: Objective
    sizes: Mapping[str, int]

    @classmethod
    def of(cls, name: str, source: pathlib.Path | onnx.ModelProto, options: Any) -> Problem:
        """What the command line says.

        Raises:
          UserError: model, rules or objective cannot be used.
        """
        sizes = dict(options.dimensions)
        graph = onnx_io.read(source)
        _check_sizes(name, graph, sizes)
        objective = make_objective(options.objective, sizes)
        return cls(name, graph, rules.load(options.rules), objective, sizes)

    @property
    def other_starts(self) -> list[State]:
        """The same by other estimates: each operator by itself, and what is worked out."""
        alone = getattr(self.objective, "alone", None)
        others = [alone, AnalyticObjective()] if alone is not None else []
        return [self._start(one) for one in others]

    @functools.cached_property
    def start(self) -> State:
        """Where a search begins."""
        return self._start(self.objective)

    def _start(self, objective: Objective) -> State:
        try:
            return Engine(self.rules, objective).start(self.graph)
        except RuleError as error:
            raise UserError(str(error)) from None


def model_of(options: argparse.Namespace, name: str) -> pathlib.Path | onnx.ModelProto:
    """A model's file, or, by name, one of `models.NAMES`.

    Raises:
      UserError: it is neither.
    """
    path = pathlib.Path(name)
    if path.exists():
        return path
    if name in models.NAMES:
        return models.make(name, seed=options.seed)
    raise UserError(
        f"model: expected an ONNX file or one of {', '.join(models.NAMES)}; found {name!r}"
    )


def num_operators(graph: Graph) -> int:
    """Nodes that will be computed when the model runs."""
    return sum(
        node.op not in (INPUT, CONSTANT) and not graph.is_constant(number)
        for number, node in graph.nodes.items()
    )


def _check_sizes(name: str, graph: Graph, sizes: Mapping[str, int]) -> None:
    open_sizes = {
        size
        for number in graph.inputs
        for kind in graph.nodes[number].types
        if kind is not None and kind.shape is not None
        for size in kind.shape
        if isinstance(size, str)
    }
    for size in sizes:
        if size not in open_sizes:
            found = ", ".join(sorted(open_sizes)) or "none"
            raise UserError(
                f"--dimension {size}: expected a size that the inputs of {name} leave open; "
                f"found {found}"
            )
