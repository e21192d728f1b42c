"""Say whether rules contain another rule: whether a short chain of them has the same effect."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Ref
from environments.tensor_graphs.operators.table import OPERATORS
from environments.tensor_graphs.rewriting.engine import Engine, State
from environments.tensor_graphs.rules.generation.vocabulary import Vocabulary
from environments.tensor_graphs.rules.language.computations import input_name
from environments.tensor_graphs.rules.language.expressions import Apply, Call, Expression, parts
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.verification.instances import Instance, InstanceDrawer

_NUM_INSTANCES = 3
_MOST_GRAPHS = 400
_MOST_DRAWS = 200
_USUAL: Mapping[str, tuple[object, ...]] = {
    "axis": (0, 1),
    "perm": ((1, 0),),
    "group": (1,),
    "dilations": ((1, 1),),
    "ceil_mode": (0,),
}
_OF_MATRICES = ("MatMul", "Transpose")
_RANKS: tuple[set[int], ...] = (set(), {2}, {4})


class NoCosts:
    """An objective: everything costs nothing."""

    def node_cost_ms(self, graph: Graph, number: int) -> float:
        """Return 0."""
        return 0.0


def num_operators(expressions: Iterable[Expression]) -> int:
    """Return the number of operators of one side of a rule; what it shares counts once."""
    roots = {
        (part.op, part.inputs, part.attributes)
        for expression in expressions
        for part in parts(expression)
        if isinstance(part, Apply)
    }
    return len(roots)


def is_within(rule: Rule, vocabularies: Sequence[Vocabulary]) -> bool:
    """Return whether some vocabulary has all operators of a rule, with as many inputs and parts."""
    sides = (*rule.source, *rule.target)
    uses = [part for side in sides for part in parts(side) if isinstance(part, Apply)]
    for vocabulary in vocabularies:
        forms = {(move.op, move.arity): move.outputs for move in vocabulary.moves}
        if all(_num_parts(use) <= forms.get((use.op, len(use.inputs)), 0) for use in uses):
            return True
    return False


def _num_parts(use: Apply) -> int:
    """Return the number of outputs of an operator, as far as its attributes say it."""
    split = dict(use.attributes).get("split")
    return len(split.arguments) if isinstance(split, Call) else use.output + 1


class Derivations:
    """Looks for chains of rules that have the effect of another rule.

    Args:
      rules: the rules of which chains consist; no two have the same name.
      most_steps: the most rules in a chain.
    """

    def __init__(self, rules: Sequence[Rule], most_steps: int = 3) -> None:
        self._engine = Engine(rules, NoCosts())
        self._most_steps = most_steps

    def contain(self, rule: Rule, seed: int = 0) -> bool:
        """Return whether a chain leads from the source of a rule to its target.

        That must be so in each of three random instances of the rule, whose shapes and attributes
        fulfil its conditions, and which TASO's generator has: matrices that are transposed by
        [1, 0], or images, joined and cut along the first two axes, and windows without dilations
        and groups. The rule's restrictions do not count. The last rule of a chain of three or more
        may also be read backwards: it is an equality.
        """
        drawer = InstanceDrawer(rule, seed, ("float32",))
        for _ in range(_NUM_INSTANCES):
            instance = _usual(drawer)
            if instance is None:
                return False
            source, target = (
                _graph(instance, places) for places in (instance.sources, instance.targets)
            )
            goals = set(self._reached(target, self._most_steps // 3))
            most_steps = self._most_steps - self._most_steps // 3
            if not any(key in goals for key in self._reached(source, most_steps)):
                return False
        return True

    def _reached(self, graph: Graph, most_steps: int) -> Iterator[int]:
        """Yield the keys of graphs that so many steps lead to, until there are too many."""
        reached, border = {_key(graph)}, [self._engine.start(graph)]
        yield from reached
        for _ in range(most_steps):
            near: list[State] = []
            for state in border:
                for match in state.matches:
                    after = state.apply(match)
                    key = _key(after.graph)
                    if key in reached:
                        continue
                    yield key
                    reached.add(key)
                    near.append(after)
                    if len(reached) >= _MOST_GRAPHS:
                        return
            border = near


def _usual(drawer: InstanceDrawer) -> Instance | None:
    """Draw an instance of a kind that TASO's generator has; None if that does not come."""
    for _ in range(_MOST_DRAWS):
        instance = drawer.draw_applicable()
        if instance is None or not instance.targets:
            return None
        if _is_usual(instance):
            return instance
    return None


def _is_usual(instance: Instance) -> bool:
    """Whether all tensors are matrices, or all images, or single numbers; see `taso_operators`."""
    shapes = [kind.shape or () for kind in instance.bindings.types.values()]
    ranks = {len(shape) for shape in shapes if shape}
    steps = instance.computation.steps
    if ranks not in _RANKS or (4 in ranks and any(step.op in _OF_MATRICES for step in steps)):
        return False
    return all(
        value in _USUAL[name] for step in steps for name, value in step.attributes if name in _USUAL
    )


def _key(graph: Graph) -> int:
    """Return a hash that is the same in whatever order the inputs of commutative operators are."""
    keys: dict[int, int] = {}
    for number in graph.order():
        node = graph.nodes[number]
        inputs = [hash(ref and (keys[ref.node], ref.output)) for ref in node.inputs]
        if node.op in OPERATORS and OPERATORS[node.op].commutative:
            inputs.sort()
        keys[number] = hash((node.label, *inputs))
    return hash(tuple((keys[ref.node], ref.output) for ref in graph.outputs))


def _graph(instance: Instance, places: Sequence[Ref]) -> Graph:
    """Return the graph that computes some places of an instance; its variables are the inputs."""
    edit = Graph().edit()
    refs: list[Ref] = []
    for step in instance.computation.steps:
        fill = instance.fills.get(input_name(step)) if step.op == INPUT else None
        if fill is not None:
            kind = step.types[0]
            assert kind is not None and kind.shape is not None
            refs.append(edit.add_constant(np.full(tuple(map(int, kind.shape)), fill, kind.dtype)))
            continue
        inputs = [ref and Ref(refs[ref.node].node, ref.output) for ref in step.inputs]
        refs.append(edit.add(step.op, inputs, step.attributes, step.types, step.value))
    outputs = [Ref(refs[place.node].node, place.output) for place in places]
    edit.set_outputs(outputs, [f"y{number}" for number in range(len(outputs))])
    return edit.finish()[0]
