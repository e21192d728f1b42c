"""The options of tensor_graphs: models, rules, and the objective to minimise."""

from __future__ import annotations

import dataclasses
import functools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx

from environments.errors import UsageError, UserError
from environments.files import exists
from environments.tensor_graphs import models, onnx_io
from environments.tensor_graphs.costs import objectives
from environments.tensor_graphs.costs.analytic import AnalyticObjective
from environments.tensor_graphs.costs.objectives import make_objective
from environments.tensor_graphs.execution.backends import Arrays
from environments.tensor_graphs.execution.choosing import Choice
from environments.tensor_graphs.execution.sizes import NONE_OPEN, Sizes, together
from environments.tensor_graphs.execution.support import is_supported
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import CONSTANT, INPUT
from environments.tensor_graphs.models import families
from environments.tensor_graphs.operators.operator import FLOAT_TYPES
from environments.tensor_graphs.rewriting.engine import Engine, Objective, State
from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.rules.language.rule import Rule, RuleError
from environments.tensor_graphs.rules.library.recognition import SLOWNESS, fused_chains
from environments.tensor_graphs.search import Budget, Result, follow, search
from environments.tensor_graphs.search.fused_formula import FusedFormula
from environments.tensor_graphs.selection.blocking import divided
from tfrl_systems.drivers.requirements import Files, Requirements, here
from tfrl_systems.settings import option
from tfrl_systems.systems.tensor_graphs.original import Original, levels_of, naming_options
from tfrl_systems.systems.tensor_graphs.player import PolicyPlayer, walk
from tfrl_systems.systems.tensor_graphs.policy import GraphPolicy

Dimensions = tuple[tuple[str, tuple[int, ...]], ...]


def name_sizes(text: str) -> tuple[str, tuple[int, ...]]:
    """Read NAME=SIZE[,SIZE...]; the sizes are whole numbers from 1 on."""
    name, _, sizes = text.rpartition("=")
    numbers = tuple(int(size) for size in sizes.split(","))
    if not name or min(numbers) < 1:
        raise ValueError(text)
    return name, numbers


def _dimensions(dimensions: Any) -> Dimensions:
    """Return sizes by name in one form; in Python they may be a dict, and single numbers."""
    sizes_of: dict[str, tuple[int, ...]] = {}
    for name, sizes in dimensions.items() if isinstance(dimensions, Mapping) else dimensions:
        numbers = (sizes,) if isinstance(sizes, int) else tuple(sizes)
        if not numbers or not all(isinstance(number, int) and number > 0 for number in numbers):
            raise UsageError(f"dimensions: expected whole numbers from 1 on, found {name}={sizes}")
        sizes_of[name] = tuple(dict.fromkeys((*sizes_of.get(name, ()), *numbers)))
    return tuple(sorted(sizes_of.items()))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Rewriting:
    """The rules by which graphs are rewritten, and the objective to minimise.

    Attributes:
      rules: file of rules; by default those that come with the program (see tfrl rules).
      objective: cost to minimise: the time of onnxruntime, onnxruntime-{disable,basic,extended},
        onnxruntime-cuda or openvino, measured on this machine; or analytic, which needs no
        measurement.
      dimensions: size for a dimension that the model leaves open, by the file's own name or as
        INPUT[AXIS]; without it a batch is 1, and others are found by trying. In Python a dict does
        as well.
    """

    rules: pathlib.Path | None = option(None, metavar="FILE")
    objective: str = option("onnxruntime", metavar="NAME")
    dimensions: Dimensions = option(
        (),
        flag="--dimension",
        metavar="NAME=SIZE",
        parse=name_sizes,
        expected="NAME=SIZE[,SIZE...] with whole numbers from 1 on",
    )

    def __post_init__(self) -> None:
        """Sort the sizes, so that equal problems compare equal.

        Raises:
          UsageError: a size is no whole number from 1 on, or there is no such objective.
        """
        if self.objective not in objectives.NAMES:
            names = ", ".join(objectives.NAMES)
            raise UsageError(f"--objective: expected one of {names}; found {self.objective!r}")
        object.__setattr__(self, "dimensions", _dimensions(self.dimensions))

    def load_rules(
        self, strict: bool = False, contrib: bool = False
    ) -> tuple[tuple[Rule, ...], tuple[Rule, ...]]:
        """Load the rules of searches and policies, and those of `selection.blocking`.

        `strict` leaves out those that may change NaN or infinity, or may lose digits; `contrib`
        adds those for operators that onnxruntime alone has.

        Raises:
          UserError: the rules cannot be used.
        """
        return divided(rule_files.load(here(self.rules) if self.rules else None, strict, contrib))


@dataclasses.dataclass(frozen=True, kw_only=True)
class Problem(Rewriting):
    """Models to learn on, or to compare policies on.

    It holds only the models' names, because it is sent to the workers.

    Attributes:
      models: an ONNX file, or the name of a built-in model; may be repeated. In training, each
        episode rewrites one of the models, and several models set max_logit to 4. The name of a
        family, or families for all of them, draws a new member for each episode.
    """

    models: tuple[str, ...] = option(flag="--model", metavar="FILE|NAME")

    def __post_init__(self) -> None:
        """Accept any sequence of names and paths as the models."""
        super().__post_init__()
        object.__setattr__(self, "models", tuple(map(str, self.models)))
        for name, sizes in self.dimensions:
            if len(sizes) > 1:
                several = ",".join(map(str, sizes))
                raise UsageError(
                    f"--dimension {name}: expected one size, found {several}; give one"
                )

    @property
    def has_several_models(self) -> bool:
        """Whether episodes begin at more than one model; a family has many."""
        return len(self.models) > 1 or any(map(families.named, self.models))

    def requirements(self) -> Requirements:
        """Return what runners need: the files of models and rules.

        Raises:
          UserError: a model cannot be read.
        """
        paths = [pathlib.Path(name) for name in self.models if not models.is_built_in(name)]
        files = [Files(path.parent, onnx_io.file_names(path)) for path in paths if exists(path)]
        if self.rules:
            files.append(Files(self.rules.parent, (self.rules.name,)))
        return Requirements(tuple(files))

    def describe(self) -> dict[str, Any]:
        """Return what identifies the problem, as JSON values."""
        return {
            "models": list(self.models),
            "rules": str(self.rules) if self.rules else None,
            "objective": self.objective,
            "dimensions": {name: size for name, (size,) in self.dimensions},
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
      rules: rules that a search may apply.
      choice: the sizes that it is optimised at.
      sizes: those that costs are estimated at: the first of the choice, with those of inner values.
      block_rules: rules that are applied all at once in the end; see `selection.blocking`.
    """

    name: str
    graph: Graph
    rules: tuple[Rule, ...]
    objective: Objective
    choice: Choice
    sizes: Sizes
    block_rules: tuple[Rule, ...] = ()

    @classmethod
    def of(
        cls, name: str, source: pathlib.Path | onnx.ModelProto, rewriting: Rewriting
    ) -> GraphProblem:
        """Read a model, and choose the sizes that it is optimised at.

        Raises:
          UserError: the model, the rules, the sizes or the objective cannot be used.
        """
        original = Original(name, source, levels_of(rewriting.objective))
        return cls.at(original, rewriting, original.choose(dict(rewriting.dimensions)))

    @classmethod
    def at(
        cls,
        original: Original,
        rewriting: Rewriting,
        choice: Choice,
        strict: bool = False,
        contrib: bool = False,
        inputs: Arrays | None = None,
        threads: int = 1,
    ) -> GraphProblem:
        """Make the problem of a model that was read, at the sizes that were chosen.

        `strict` leaves out rules that may change NaN or infinity in this model, or may lose digits;
        `contrib` is that of `Rewriting.load_rules`. The model is run on `inputs`, or on random
        ones, for the sizes of inner values. Where costs are measured, each operator runs on so many
        `threads`.

        Raises:
          UserError: the rules or the objective cannot be used.
        """
        rules, block_rules = rewriting.load_rules(strict, contrib)
        if strict and not _has_finite_constants(original.graph):
            # Rules with variables that must be constants were shown to keep NaN and infinity only
            # for finite constants.
            rules = tuple(rule for rule in rules if not rule.constants)
            block_rules = tuple(rule for rule in block_rules if not rule.constants)
        sizes = original.with_inner_sizes(choice.points[0], inputs)
        objective = make_objective(rewriting.objective, sizes, threads)
        return cls(original.name, original.graph, rules, objective, choice, sizes, block_rules)

    @functools.cached_property
    def start(self) -> State:
        """The state where a search begins."""
        return self._start(self.rules)

    @functools.cached_property
    def start_with_block_rules(self) -> State:
        """The same state, where the rules that are applied in the end match too."""
        return self._start((*self.rules, *self.block_rules))

    def has_block_rules_for(self, graph: Graph) -> bool:
        """Whether one of the rules that are applied in the end matches."""
        return bool(Engine(self.block_rules, self.objective, is_supported).start(graph).matches)

    def with_objective(self, objective: Objective) -> GraphProblem:
        """Return the problem with another objective, and the matches of this one."""
        problem = dataclasses.replace(self, objective=objective)
        vars(problem)["start"] = self.start.with_objective(objective)
        return problem

    @functools.cached_property
    def by_formula(self) -> GraphProblem:
        """The problem by costs that are worked out, as onnxruntime joins operators to kernels."""
        formula = AnalyticObjective(sizes=self.sizes)
        fused = FusedFormula(formula, fused_chains(), SLOWNESS)
        return dataclasses.replace(self, objective=fused)

    def without_contrib(self) -> GraphProblem:
        """Return the problem without the rules for operators that onnxruntime alone has."""
        names = rule_files.contrib_names()
        rules = tuple(rule for rule in self.rules if rule.name not in names)
        return self if rules == self.rules else dataclasses.replace(self, rules=rules)

    def _start(self, rules: tuple[Rule, ...]) -> State:
        try:
            return Engine(rules, self.objective, is_supported).start(self.graph)
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
        """Search for the cheapest graph, by one of `search.METHODS` or "policy".

        The latter needs a policy; one leads "regions" if it is given. It plays `num_rollouts`
        episodes. Further arguments are those of `search.search` or `search.follow`.
        """
        if policy is None:
            return search(self.start, method, budget, **others)
        player = self._player(policy)
        if method == "policy":
            return follow(self.start, player, num_rollouts, budget, **others)
        return search(self.start, method, budget, guide=player, **others)

    def walk(self, policy: GraphPolicy, until_s: float) -> Result:
        """Take a policy's likeliest steps; see `player.walk`."""
        return walk(self._player(policy), until_s)

    def _player(self, policy: GraphPolicy) -> PolicyPlayer:
        # A policy plays with the rules that it may have learned with.
        return PolicyPlayer(policy, self.name, self.without_contrib().start)


def sizes_of_models(names: Sequence[str], dimensions: Dimensions) -> Sizes:
    """Return the sizes at which the costs of several models or families are estimated.

    Each of the sizes that are given must be open in one of the models.

    Raises:
      UserError: a model, or a size, cannot be used.
    """
    models_sizes = [_sizes_of(name, dimensions) for name in names]
    open_names = sorted(set().union(*(names for _, names in models_sizes)))
    for name, _ in dimensions:
        if name not in open_names:
            raise UserError(
                f"--dimension {name}: expected a size that {', '.join(names)} leave open; "
                f"found {', '.join(open_names) or 'none'}"
            )
    with naming_options():
        return together(sizes for sizes, _ in models_sizes)


@functools.cache
def _sizes_of(name: str, dimensions: Dimensions) -> tuple[Sizes, frozenset[str]]:
    """Return the sizes of a model, and all names of those that it leaves open."""
    if models.is_built_in(name) or families.named(name):
        return NONE_OPEN, frozenset()
    original = Original(name, find_model(name), levels_of("onnxruntime"))
    open_names = frozenset[str]().union(*(size.names for size in original.open_sizes.all))
    own = {dimension: sizes for dimension, sizes in dimensions if dimension in open_names}
    return original.with_inner_sizes(original.choose(own).points[0]), open_names


def find_model(name: str, seed: int = 0) -> pathlib.Path | onnx.ModelProto:
    """Return the path of a model's file, or make a built-in model with random weights.

    Raises:
      UserError: there is no such file or built-in model.
    """
    path = here(name)
    if exists(path):
        return path
    if models.is_built_in(name):
        return models.make(name, seed=seed)
    raise UserError(f"model: expected an ONNX file or one of {models.KNOWN}; found {name!r}")


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
