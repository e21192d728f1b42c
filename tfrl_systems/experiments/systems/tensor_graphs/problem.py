"""What is worked on: models, rules, and what is to become less."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx

from environments.errors import UserError
from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.costs.objectives import Objective, make_objective
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import CONSTANT, INPUT
from environments.tensor_graphs.operators.operator import FLOAT_TYPES
from environments.tensor_graphs.rewriting.engine import Engine, State
from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.rules.language.rule import Rule, RuleError
from environments.tensor_graphs.search import Budget, Result, follow, search
from tfrl_systems.experiments.settings import option

if TYPE_CHECKING:
    from tfrl_systems.experiments.systems.tensor_graphs.policy import GraphPolicy


# TASO's alpha: no search goes on with a graph that costs so many times the best one.
_LIMIT = 1.05


def name_size(text: str) -> tuple[str, int]:
    """Read NAME=SIZE; the size is a whole number from 1 on."""
    name, _, size = text.partition("=")
    if not name or int(size) < 1:
        raise ValueError(text)
    return name, int(size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewriting:
    """By which rules graphs are rewritten, and what for.

    Attributes:
      rules: a file of rules; by default those that come with the program (see tfrl rules).
      objective: what is to become less: onnxruntime, onnxruntime-{disable,basic,extended},
        onnxruntime-cuda, openvino (measured here), or analytic.
      dimensions: a size that the model leaves open, to measure with; others are 1. In Python a dict
        does as well.
    """

    rules: pathlib.Path | None = option(None, metavar="FILE")
    objective: str = option("onnxruntime", metavar="NAME")
    dimensions: tuple[tuple[str, int], ...] = option(
        (),
        flag="--dimension",
        metavar="NAME=SIZE",
        parse=name_size,
        expected="NAME=SIZE with a whole number from 1 on",
    )

    def __post_init__(self) -> None:
        """Sorts the sizes, so that equal problems are equal."""
        object.__setattr__(self, "dimensions", tuple(sorted(dict(self.dimensions).items())))

    def load_rules(self, strict: bool = False) -> tuple[Rule, ...]:
        """The rules; those that may change NaN or infinity too, unless `strict`.

        Raises:
          UserError: they cannot be used.
        """
        return rule_files.load(self.rules, strict)

    def make_objective(self) -> Objective:
        """What is to become less.

        Raises:
          UserError: there is no such objective here.
        """
        return make_objective(self.objective, dict(self.dimensions))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem(Rewriting):
    """Models to learn on, or to compare policies on. It travels to workers, so it names them.

    Attributes:
      models: an ONNX file, or the name of a model that comes along; may be repeated. In training,
        each episode rewrites one of them, and several set max_logit to 4.
    """

    models: tuple[str, ...] = option(flag="--model", metavar="FILE|NAME")

    def __post_init__(self) -> None:
        """Takes any sequence of names and paths for the models."""
        super().__post_init__()
        object.__setattr__(self, "models", tuple(map(str, self.models)))

    def describe(self) -> dict[str, Any]:
        """What identifies it, as JSON values."""
        return {
            "models": list(self.models),
            "rules": str(self.rules) if self.rules else None,
            "objective": self.objective,
            "dimensions": dict(self.dimensions),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmarks(Problem):
    """What is measured.

    Attributes:
      models: an ONNX file, or the name of a model that comes along; may be repeated.
      steps: how many are measured.
      seed: of the walks.
    """

    models: tuple[str, ...] = option(
        ("resnet-50", "inception-v3", "bert-base"), flag="--model", metavar="FILE|NAME"
    )
    objective: str = option("analytic", metavar="NAME")
    steps: int = option(200, metavar="N", minimum=1)
    seed: int = option(0, metavar="S", minimum=0)


@dataclasses.dataclass(frozen=True)
class GraphProblem:
    """One model's graph to search from.

    Attributes:
      name: as it was called.
      graph: of the model.
      rules: that may be used.
      objective: what is to become less.
      sizes: of dimensions that the model leaves open, by name.
    """

    name: str
    graph: Graph
    rules: tuple[Rule, ...]
    objective: Objective
    sizes: Mapping[str, int]

    @classmethod
    def of(
        cls,
        name: str,
        source: pathlib.Path | onnx.ModelProto,
        rewriting: Rewriting,
        strict: bool = False,
    ) -> GraphProblem:
        """Reads a model.

        Args:
          name: what the model is called.
          source: the model.
          rewriting: rules, objective and sizes.
          strict: whether to leave out rules that may change NaN or infinity in this model.

        Raises:
          UserError: model, rules or objective cannot be used.
        """
        sizes = dict(rewriting.dimensions)
        graph = onnx_io.read(source)
        _check_sizes(name, graph, sizes)
        objective = rewriting.make_objective()
        rules = rewriting.load_rules(strict)
        if strict and not _has_finite_constants(graph):
            # Such rules were shown to keep NaN and infinity for finite constants only.
            rules = tuple(one for one in rules if not one.constants)
        return cls(name, graph, rules, objective, sizes)

    @property
    def others(self) -> list[GraphProblem]:
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
        from tfrl_systems.experiments.systems.tensor_graphs.player import PolicyPlayer

        player = PolicyPlayer(policy, self.name, self.graph, self.rules, self.objective)
        return follow(self.start, player, num_rollouts, budget, **others)


def find_model(name: str, seed: int = 0) -> pathlib.Path | onnx.ModelProto:
    """A model's file, or, by name, one of `models.NAMES`.

    Args:
      name: of the file or the model.
      seed: of the weights of a model of `models.NAMES`.

    Raises:
      UserError: it is neither.
    """
    path = pathlib.Path(name)
    if path.exists():
        return path
    if name in models.NAMES:
        return models.make(name, seed=seed)
    raise UserError(
        f"model: expected an ONNX file or one of {', '.join(models.NAMES)}; found {name!r}"
    )


def num_operators(graph: Graph) -> int:
    """Nodes that will be computed when the model runs."""
    return sum(
        node.op not in (INPUT, CONSTANT) and not graph.is_constant(number)
        for number, node in graph.nodes.items()
    )


def _has_finite_constants(graph: Graph) -> bool:
    return all(
        bool(np.isfinite(node.value).all())
        for node in graph.nodes.values()
        if node.value is not None and node.value.dtype.name in FLOAT_TYPES
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
