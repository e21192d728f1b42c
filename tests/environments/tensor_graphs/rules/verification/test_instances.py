"""Instances of rules fit: types are inferred, conditions hold, and they are of many kinds."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.operators import table
from environments.tensor_graphs.rules.language import terms
from environments.tensor_graphs.rules.language.expressions import Apply, Name, Variable, parse_term
from environments.tensor_graphs.rules.language.rule import Rule
from environments.tensor_graphs.rules.verification.instances import InstanceDrawer
from tests.environments.tensor_graphs.rules.making import make


def unchanged(expression, *conditions):
    """A rule that replaces an expression by itself."""
    return Rule("rule", (expression,), (expression,), tuple(map(parse_term, conditions)))


def any_use(name, left_out=0):
    """The operator with all inputs and all attributes open."""
    operator = table.OPERATORS[name]
    count = 3 if operator.max_inputs is None else operator.max_inputs - left_out
    inputs = tuple(Variable(f"x{number}") for number in range(count))
    attributes = tuple((attribute, Name(attribute)) for attribute in operator.attributes)
    return Apply(name, inputs, attributes)


def draw(rule, count, seed=0):
    drawer = InstanceDrawer(rule, seed)
    return [drawer.draw_applicable() for _ in range(count)]


@pytest.mark.parametrize("name", table.OPERATORS)
def test_every_operator_is_drawn(name):
    most = table.OPERATORS[name].max_inputs or 3
    for left_out in range(most - table.OPERATORS[name].min_inputs + 1 if most < 5 else 1):
        drawn = draw(unchanged(any_use(name, left_out)), 30)
        assert all(instance is not None and instance.targets for instance in drawn)
        assert len({str(instance) for instance in drawn}) >= 10


def test_conditions_hold():
    conditions = (
        "(= (slice (shape ?x1) 2) (list 3 3))",
        "(= $strides (list 2 2))",
        "(= $group (dim ?x0 1))",
        "(= (dim ?x0 0) 1)",
    )
    rule = unchanged(any_use("Conv", 1), *conditions)
    for instance in draw(rule, 20):
        assert instance is not None
        assert all(terms.holds(condition, instance.bindings) for condition in rule.conditions)


def test_what_cannot_be_is_not_drawn():
    rule = unchanged(any_use("Add"), "(= (rank ?x0) 2)", "(= (rank ?x0) 3)")
    assert InstanceDrawer(rule).draw() is None


def test_the_seed_determines_everything():
    rule = unchanged(any_use("Slice"))
    first, again, different = ([*map(str, draw(rule, 20, seed))] for seed in (0, 0, 1))
    assert first == again != different


def test_constants_of_a_source_have_any_shape():
    drawn = draw(make("(Mul ?x (full $c))", "(Mul (full $c (list) (dtype ?x)) ?x)"), 60)
    shapes = {instance.inputs["#0"].shape for instance in drawn}
    assert len(shapes) > 10
    assert all(instance.fills["#0"] == instance.bindings.attributes["c"] for instance in drawn)
