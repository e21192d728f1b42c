"""Draw random instances of rules: shapes, types and attributes to which a rule applies.

An instance is drawn operator by operator, from the inside of the source out. `proposals` draws what
is still open. Then everything is checked as in a match, and a draw that does not fit is thrown
away. So conditions restrict the instances exactly as they restrict matches.

There are two kinds of instances. Usual ones have shapes that suit the operators. Small ones have
sizes that are 1 or one other number, and use every combination of ranks in turn
(`RankCombinations`). Examples are a vector beside a stack of matrices, or a tensor broadcast along
an axis that another tensor has elsewhere. Rules that look right and are wrong usually fail in small
instances.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import itertools
import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from environments.tensor_graphs.graph.nodes import Ref, TensorType
from environments.tensor_graphs.operators.operator import FLOAT_TYPES, OperatorError
from environments.tensor_graphs.rules.language import terms
from environments.tensor_graphs.rules.language.computations import Computation
from environments.tensor_graphs.rules.language.expressions import (
    Apply,
    Array,
    Expression,
    Literal,
    Name,
    Term,
    Variable,
    names,
    parts,
    variables,
)
from environments.tensor_graphs.rules.language.rule import Rule, special_types
from environments.tensor_graphs.rules.language.terms import Bindings, TermError
from environments.tensor_graphs.rules.verification.attempts import MISFITS, Attempt, Hints
from environments.tensor_graphs.rules.verification.draws import Draw, check

SMALL_PER_ROUND = 3
"""How many small instances there are for each usual one."""

DTYPES = ("float32",) * 8 + ("float64", "int64")
"""Element types of instances; those that come more often are drawn more often."""

FLOATS_ONLY = tuple("float64" if dtype == "int64" else dtype for dtype in DTYPES)


Ranks = Mapping[str, int]

_MOST_ATTEMPTS = 2000
_MOST_DRAWN = 300
_MOST_RANK = 4
_MOST_MISSES = 12
_TIRED_SHARE = 0.25
_TURNS_PER_DRAW = 40
_MOST_VARIABLES = 4
_LEAST_SHARE = 0.02
_TURNS_TO_JUDGE = 400

# These inputs need particular ranks and sizes, which `proposals` draws.
_PARTICULAR = {
    *(("Conv", place) for place in (0, 1, 2)),
    *(("ConvTranspose", place) for place in (0, 1, 2)),
    *((op, place) for op in ("Gemm", "Gather") for place in (0, 1)),
    *((f"{kind}Normalization", place) for kind in ("Batch", "Instance") for place in range(5)),
    *((op, 0) for op in ("MaxPool", "AveragePool", "GlobalMaxPool", "GlobalAveragePool")),
    *((op, 0) for op in ("DepthToSpace", "SpaceToDepth")),
}


@dataclasses.dataclass(frozen=True)
class Instance:
    """A rule with fixed shapes, types and attributes; only the elements of its variables are open.

    Attributes:
      sources: places of the source's outputs.
      targets: places of the target's outputs. Empty if the rule does not apply, because its target
        cannot be computed or has other types.
      fills: the number that fills each constant of the source, by its name in `inputs`.
      limits: the number that the elements of a tensor of indices must stay below, by name.
    """

    bindings: Bindings
    computation: Computation
    sources: tuple[Ref, ...]
    targets: tuple[Ref, ...]
    fills: Mapping[str, float]
    limits: Mapping[str, int]

    @functools.cached_property
    def inputs(self) -> dict[str, TensorType]:
        """Types of the tensors that the computation must be given, by name."""
        return self.computation.inputs

    def outputs(
        self, values: Sequence[tuple[np.ndarray, ...]]
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the arrays of source and target for each output."""
        for source, target in zip(self.sources, self.targets, strict=True):
            yield values[source.node][source.output], values[target.node][target.output]

    def __str__(self) -> str:
        shown = [f"?{name} {_type_text(tensor)}" for name, tensor in self.bindings.types.items()]
        shown += [f"${name} = {value!r}" for name, value in self.bindings.attributes.items()]
        return ", ".join(text for text in shown if not text.startswith("?#"))


def _type_text(tensor: TensorType) -> str:
    shape = ", ".join(map(str, tensor.shape or ()))
    return f"[{shape}]" if tensor.dtype == "float32" else f"{tensor.dtype} [{shape}]"


class RankCombinations:
    """Combinations of ranks for the variables of a rule, which are tried in turn.

    With random ranks, most products would be of two matrices, and most sums of two tensors of one
    shape. Here a vector beside a stack of matrices comes as often as anything else. Combinations to
    which the rule has never applied come less often.
    """

    def __init__(self, sources: Sequence[Expression], rng: random.Random) -> None:
        particular = {
            operand.name
            for source in sources
            for part in parts(source)
            if isinstance(part, Apply)
            for place, operand in enumerate(part.inputs)
            if isinstance(operand, Variable) and (part.op, place) in _PARTICULAR
        }
        free = [name for name in variables(*sources) if name not in particular]
        self._names = free[:_MOST_VARIABLES]
        turns = list(itertools.product(range(_MOST_RANK + 1), repeat=len(self._names)))
        rng.shuffle(turns)
        self._queue = collections.deque(turns)
        self._rng = rng
        self._misses: collections.Counter[tuple[int, ...]] = collections.Counter()
        self._num_turns = self._num_found = 0

    def turns(self) -> Iterator[Ranks]:
        """Yield the next ranks of variables, by name; `note` must be called after each."""
        for _ in range(_TURNS_PER_DRAW):
            if not self._names or self._is_hopeless:
                return
            while self._misses[self._queue[0]] >= _MOST_MISSES:
                if self._rng.random() <= _TIRED_SHARE:
                    break
                self._queue.rotate(-1)
            yield dict(zip(self._names, self._queue[0], strict=True))

    @property
    def _is_hopeless(self) -> bool:
        enough = self._num_turns >= _TURNS_TO_JUDGE
        return enough and self._num_found < _LEAST_SHARE * self._num_turns

    def note(self, has_applied: bool) -> None:
        """Record whether the rule applied to the combination just tried, and go on to the next."""
        turn = self._queue[0]
        self._queue.rotate(-1)
        self._num_turns += 1
        self._num_found += has_applied
        self._misses[turn] = -_MOST_MISSES if has_applied else self._misses[turn] + 1


class InstanceDrawer:
    """Draws instances of one rule."""

    def __init__(self, rule: Rule, seed: int = 0, dtypes: Sequence[str] = DTYPES) -> None:
        self._rule = rule
        self._rng = random.Random(f"{seed} {rule.source} {rule.conditions}")
        self._fills: dict[str, Term] = {}
        self._sources = [self._without_arrays(root) for root in rule.source]
        self._hints = Hints(rule.conditions)
        self._dtypes = dtypes
        self._special_types = special_types(self._sources)
        bound = names(*self._sources)
        self._free = {
            term.name
            for term in self._fills.values()
            if isinstance(term, Name) and term.name not in bound
        }
        self._combinations = RankCombinations(self._sources, self._rng)

    def draw(self) -> Instance | None:
        """Draw an instance of the source; return None if no attempt succeeds."""
        for _ in range(_MOST_ATTEMPTS):
            try:
                return self._attempt()
            except MISFITS:
                continue
        return None

    def draw_applicable(self) -> Instance | None:
        """Draw an instance to which the rule applies; return None if no attempt finds one."""
        for _ in range(_MOST_DRAWN):
            instance = self.draw()
            if instance is None or instance.targets:
                return instance
        return None

    def draw_small(self) -> Instance | None:
        """Draw a small instance to which the rule applies, of the next combination of ranks.

        Combinations that fail are skipped; the result is None if too many of them fail.
        """
        for ranks in self._combinations.turns():
            try:
                instance = self._attempt(ranks)
                has_applied = bool(instance.targets)
            except MISFITS:
                has_applied = False
            self._combinations.note(has_applied)
            if has_applied:
                return instance
        return None

    def draw_round(self) -> list[Instance]:
        """Draw a usual instance to which the rule applies, and small ones.

        The list is empty if no usual instance is found.
        """
        usual = self.draw_applicable()
        if usual is None:
            return []
        small = (self.draw_small() for _ in range(SMALL_PER_ROUND))
        return [usual, *(instance for instance in small if instance is not None)]

    @property
    def literals(self) -> frozenset[str]:
        """Names of the source's constants whose number is part of the rule, as in (full 1.0)."""
        return frozenset(name for name, term in self._fills.items() if isinstance(term, Literal))

    def retyped(
        self, instance: Instance, dtype: str, number_fn: Callable[[], int]
    ) -> Instance | None:
        """Return an instance with another element type in place of floating-point types.

        `number_fn` draws a number of this type for each constant that the source names. The result
        is None if the source does not take this type, or a condition fails.
        """
        types = {
            name: tensor._replace(dtype=dtype) if tensor.dtype in FLOAT_TYPES else tensor
            for name, tensor in instance.bindings.types.items()
        }
        attributes = {**instance.bindings.attributes, **{name: number_fn() for name in self._free}}
        bindings, computation = Bindings(types, attributes), Computation()
        try:
            sources = [computation.add_expression(source, bindings) for source in self._sources]
            return self._instance(computation, bindings, sources, instance.limits)
        except MISFITS:
            return None

    def _without_arrays(self, expression: Expression) -> Expression:
        """Replace each constant by a variable of its own, because their shapes may differ."""
        if isinstance(expression, Array):
            name = f"#{len(self._fills)}"
            value = expression.arguments[0]
            assert not isinstance(value, Variable)
            self._fills[name] = value
            return Variable(name)
        if isinstance(expression, Apply):
            return expression.with_inputs(self._without_arrays)
        return expression

    def _attempt(self, ranks: Ranks | None = None) -> Instance:
        draw = Draw(self._rng, self._hints.rank, is_small=ranks is not None)
        attempt = Attempt(draw, self._hints, self._special_types, self._dtypes)
        attempt.bind_ranks(ranks or {})
        sources = [attempt.add_source(source) for source in self._sources]
        for term, value in attempt.state.to_check:
            check(terms.as_attribute(terms.evaluate(term, attempt.bindings)) == value)
        for term in self._fills.values():
            if isinstance(term, Name) and term.name not in attempt.bindings.attributes:
                attempt.bind(term.name, attempt.draw.number())
        return self._instance(attempt.computation, attempt.bindings, sources, attempt.state.limits)

    def _instance(
        self,
        computation: Computation,
        bindings: Bindings,
        sources: list[Ref],
        limits: Mapping[str, int],
    ) -> Instance:
        """Complete an instance whose source is computed and whose bindings are known."""
        fills = {name: terms.evaluate(term, bindings) for name, term in self._fills.items()}
        for name, fill in fills.items():
            is_float = bindings.types[name].dtype in FLOAT_TYPES
            check(is_float or float(fill).is_integer())
        for condition in self._rule.conditions:
            check(terms.holds(condition, bindings))
        targets = self._targets(computation, bindings, sources)
        computation, places = computation.only([*sources, *targets])
        return Instance(
            bindings,
            computation,
            tuple(places[: len(sources)]),
            tuple(places[len(sources) :]),
            fills,
            limits,
        )

    def _targets(
        self, computation: Computation, bindings: Bindings, sources: list[Ref]
    ) -> list[Ref]:
        try:
            targets = [computation.add_expression(root, bindings) for root in self._rule.target]
        except (OperatorError, TermError, IndexError):
            return []
        old, new = (
            [computation.type_of(place) for place in places] for places in (sources, targets)
        )
        return targets if old == new else []
