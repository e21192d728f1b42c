"""The options of tensor_graphs: models, rules, and the objective to minimise."""

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


def name_size(text: str) -> tuple[str, int]:
    """Read NAME=SIZE; the size is a whole number from 1 on."""
    name, _, size = text.partition("=")
    if not name or int(size) < 1:
        raise ValueError(text)
    return name, int(size)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewriting:
    """The rules by which graphs are rewritten, and the objective to minimise.

    Attributes:
      rules: file of rules; by default those that come with the program (see tfrl rules).
      objective: cost to minimise: the time of onnxruntime, onnxruntime-{disable,basic,extended},
        onnxruntime-cuda or openvino, measured on this machine; or analytic, which needs no
        measurement.
      dimensions: size to measure with, for a dimension that the model leaves open; others are 1. In
        Python a dict does as well.
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
        """Sort the sizes, so that equal problems compare equal."""
        object.__setattr__(self, "dimensions", tuple(sorted(dict(self.dimensions).items())))

    def load_rules(self, strict: bool = False) -> tuple[Rule, ...]:
        """Load the rules; `strict` leaves out those that may change NaN or infinity.

        Raises:
          UserError: the rules cannot be used.
        """
        return rule_files.load(self.rules, strict)

    def make_objective(self) -> Objective:
        """Make the objective to minimise.

        Raises:
          UserError: this machine has no such objective.
        """
        return make_objective(self.objective, dict(self.dimensions))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem(Rewriting):
    """Models to learn on, or to compare policies on.

    It holds only the models' names, because it is sent to the workers.

    Attributes:
      models: an ONNX file, or the name of a built-in model; may be repeated. In training, each
        episode rewrites one of the models, and several models set max_logit to 4.
    """

    models: tuple[str, ...] = option(flag="--model", metavar="FILE|NAME")

    def __post_init__(self) -> None:
        """Accept any sequence of names and paths as the models."""
        super().__post_init__()
        object.__setattr__(self, "models", tuple(map(str, self.models)))

    def describe(self) -> dict[str, Any]:
        """Return what identifies the problem, as JSON values."""
        return {
            "models": list(self.models),
            "rules": str(self.rules) if self.rules else None,
            "objective": self.objective,
            "dimensions": dict(self.dimensions),
        }


@dataclasses.dataclass(frozen=True, kw_only=True)
class Benchmarks(Problem):
    """What to measure.

    Attributes:
      models: an ONNX file, or the name of a built-in model; may be repeated.
      steps: number of steps to measure.
      seed: seed of the random walks.
    """

    models: tuple[str, ...] = option(
        ("resnet-50", "inception-v3", "bert-base"), flag="--model", metavar="FILE|NAME"
    )
    objective: str = option("analytic", metavar="NAME")
    steps: int = option(200, metavar="N", minimum=1)
    seed: int = option(0, metavar="S", minimum=0)


@dataclasses.dataclass(frozen=True)
class GraphProblem:
    """One model's graph, with the rules and the objective to optimise it by.

    Attributes:
      name: name of the model.
      graph: graph of the model.
      rules: rules that may be applied.
      objective: cost to minimise.
      sizes: sizes for the dimensions that the model leaves open, by name.
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
        """Read a model.

        Args:
          name: name of the model.
          source: the model, or its file.
          rewriting: rules, objective and sizes.
          strict: whether to leave out rules that may change NaN or infinity in this model.

        Raises:
          UserError: the model, the rules or the objective cannot be used.
        """
        sizes = dict(rewriting.dimensions)
        graph = onnx_io.read(source)
        _check_sizes(name, graph, sizes)
        objective = rewriting.make_objective()
        rules = rewriting.load_rules(strict)
        if strict and not _has_finite_constants(graph):
            # Rules with variables that must be constants were shown to keep NaN and infinity only
            # for finite constants.
            rules = tuple(one for one in rules if not one.constants)
        return cls(name, graph, rules, objective, sizes)

    @property
    def others(self) -> list[GraphProblem]:
        """The same problem by other estimates: operators measured singly, and the analytic one."""
        alone = getattr(self.objective, "alone", None)
        others = [alone, AnalyticObjective()] if alone is not None else []
        return [dataclasses.replace(self, objective=one) for one in others]

    @functools.cached_property
    def start(self) -> State:
        """The state where a search begins."""
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
        """Search for the cheapest graph.

        Args:
          method: one of `search.METHODS`, or "policy".
          budget: limits of the search.
          policy: the policy to follow; needed by the method "policy".
          num_rollouts: number of episodes that the policy plays; see `search.follow`. In the first
            it takes its likeliest actions.
          **others: further arguments of `search.search` or `search.follow`.
        """
        if method != "policy":
            return search(self.start, method, budget, **others)
        assert policy is not None
        from tfrl_systems.experiments.systems.tensor_graphs.player import PolicyPlayer

        player = PolicyPlayer(policy, self.name, self.graph, self.rules, self.objective)
        return follow(self.start, player, num_rollouts, budget, **others)


def find_model(name: str, seed: int = 0) -> pathlib.Path | onnx.ModelProto:
    """Return the path of a model's file, or make a built-in model.

    Args:
      name: path of a file, or one of `models.NAMES`.
      seed: seed of a built-in model's random weights.

    Raises:
      UserError: there is no such file or built-in model.
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
    """Return the number of nodes that are computed when the model runs."""
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
