"""What the verbs work on: a model's graph, rules, and what is to become less."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import onnx

from environments.errors import UserError
from environments.tensor_graphs import models, onnx_io, rules
from environments.tensor_graphs.analytic import AnalyticObjective
from environments.tensor_graphs.engine import Engine, State
from environments.tensor_graphs.graph import Graph
from environments.tensor_graphs.nodes import CONSTANT, INPUT
from environments.tensor_graphs.objectives import Objective, make_objective
from environments.tensor_graphs.search import Budget, Result, follow, search
from environments.tensor_graphs.substitutions import RuleError, Substitution
from tfrl_systems.cli.console import UsageError

if TYPE_CHECKING:
    from tfrl_systems.cli.tensor_graphs.policy import GraphPolicy


# TASO's alpha: no search goes on with a graph that costs so many times the best one.
_LIMIT = 1.05


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
    def others(self) -> list[Problem]:
        """The same by other estimates: each operator by itself, and what is worked out."""
        alone = getattr(self.objective, "alone", None)
        others = [alone, AnalyticObjective()] if alone is not None else []
        return [dataclasses.replace(self, objective=one) for one in others]

    @functools.cached_property
    def start(self) -> State:
        """Where a search begins."""
        try:
            return Engine(self.rules, self.objective).start(self.graph)
        except RuleError as error:
            raise UserError(str(error)) from None

    def search(
        self,
        method: str,
        budget: Budget,
        policy: GraphPolicy | None = None,
        num_rollouts: int = 64,
        **others: Any,
    ) -> Result:
        """Looks for the cheapest graph.

        Args:
          method: one of `search.METHODS`, or "policy".
          budget: when to end at the latest.
          policy: that is followed, with "policy".
          num_rollouts: episodes that it plays, as `search.follow` does; the first one without
            chance.
          **others: of `search.search` and `search.follow`.
        """
        if method != "policy":
            return search(self.start, method, budget, **others)
        assert policy is not None
        from tfrl_systems.cli.tensor_graphs.player import PolicyPlayer

        player = PolicyPlayer(policy, self.name, self.rules, self.objective)
        return follow(self.start, player, num_rollouts, budget, **others)


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


def policy_of(options: argparse.Namespace) -> GraphPolicy | None:
    """The policy of --policy, where --method asks for one.

    Raises:
      UserError: it cannot be read.
      UsageError: one is asked for and not given, or given and not asked for.
    """
    if (options.method == "policy") != (options.policy is not None):
        raise UsageError("--method policy and --policy DIR go together")
    if options.policy is None:
        return None
    from tfrl_systems.cli.tensor_graphs.policy import GraphPolicy

    return GraphPolicy.load(options.policy)


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
