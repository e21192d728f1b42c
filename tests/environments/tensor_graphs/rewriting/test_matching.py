"""Where rules match, and what becomes of the graph."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from environments.tensor_graphs.graph.graph import Edit, Graph
from environments.tensor_graphs.graph.nodes import INPUT, Ref, TensorType
from environments.tensor_graphs.operators import building
from environments.tensor_graphs.rewriting.match_index import MatchIndex
from environments.tensor_graphs.rewriting.matching import Match, apply, compile_rules
from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    ConstantScalar,
    only_where,
    op,
    permute,
    rule,
)
from environments.tensor_graphs.rules.language.rule import Rule, RuleError

Build = Callable[..., tuple[Ref, ...]]


def make(build: Callable[[Edit, Build], Ref | list[Ref]]) -> Graph:
    """A graph whose outputs `build(edit, add)` returns."""
    edit = Graph().edit()

    def add(op_name: str, *inputs: Ref, **attributes: object) -> tuple[Ref, ...]:
        return building.add(edit, op_name, *inputs, **attributes)

    outputs = build(edit, add)
    outputs = outputs if isinstance(outputs, list) else [outputs]
    edit.set_outputs(outputs, [f"y{number}" for number in range(len(outputs))])
    return edit.finish()[0]


def tensor(edit: Edit, name: str, *shape: int | str) -> Ref:
    """An input."""
    return edit.add(INPUT, [], (("name", name),), [TensorType("float32", shape)])


def matches(graph: Graph, *rules: Rule) -> tuple[Match, ...]:
    return MatchIndex(graph, compile_rules(rules)).matches


def result(graph: Graph, *rules: Rule) -> str:
    """The only output's expression after the only match was applied."""
    (match,) = matches(graph, *rules)
    changed, _ = apply(graph, match)
    return text(changed, changed.outputs[0])


def text(graph: Graph, ref: Ref) -> str:
    node = graph.nodes[ref.node]
    if node.op == INPUT:
        return str(node.attribute("name"))
    if node.value is not None:
        return str(node.value.tolist())
    inside = ", ".join(text(graph, operand) for operand in node.inputs if operand is not None)
    return f"{node.op}({inside})" + (f".{ref.output}" if ref.output else "")


@rule
def relu_twice(x):
    return op.Relu(op.Relu(x)), op.Relu(x)


@rule
def sums(x, y, z):
    return (x + y) + z, x + (y + z)


@rule
def common_factor(x, y, z):
    return x * z + y * z, (x + y) * z, x.shape == y.shape


def test_a_match_names_what_it_replaces():
    def build(edit: Edit, add: Build) -> Ref:
        ref = tensor(edit, "x", 2)
        for name in ("Relu", "Relu", "Tanh", "Relu", "Relu"):
            (ref,) = add(name, ref)
        return ref

    graph = make(build)
    first, second = matches(graph, relu_twice)
    assert first.location == (2,)
    assert first.rule == "relu_twice"
    assert first.replaced == (Ref(2),)
    assert first.nodes == (1, 2)
    assert second.location == (5,)
    changed, _ = apply(graph, first)
    assert text(changed, changed.outputs[0]) == "Relu(Relu(Tanh(Relu(x))))"


def test_commutative_operators_match_in_both_orders():
    """a + (b + c): b and c can each be taken out; the rule's own order comes first."""

    def build(edit: Edit, add: Build) -> Ref:
        a, b, c = (tensor(edit, name, 2) for name in "abc")
        return add("Add", a, *add("Add", b, c))[0]

    graph = make(build)
    both = matches(graph, sums)
    texts = []
    for match in both:
        changed, _ = apply(graph, match)
        texts.append(text(changed, changed.outputs[0]))
    assert texts == ["Add(b, Add(c, a))", "Add(c, Add(b, a))"]
    assert len({match.location for match in both}) == 2


def test_what_is_symmetric_is_listed_once():
    """In x·z + y·z the two products may change places, with x and y: that is the same change."""

    def build(edit: Edit, add: Build) -> Ref:
        a, b, c = (tensor(edit, name, 2) for name in "abc")
        return add("Add", *add("Mul", a, c), *add("Mul", c, b))[0]

    assert result(make(build), common_factor) == "Mul(Add(a, b), c)"


def test_inputs_that_are_the_same_match_once():
    def build(edit: Edit, add: Build) -> Ref:
        a, b = (tensor(edit, name, 2) for name in "ab")
        return add("Add", *add("Add", a, a), b)[0]

    assert result(make(build), sums) == "Add(a, Add(a, b))"


def test_attributes_are_bound_compared_and_computed():
    @rule
    def twice(x, p: Attribute, q: Attribute):
        return op.Transpose(op.Transpose(x, perm=p), perm=q), op.Transpose(x, perm=permute(p, q))

    @rule
    def back(x, p: Attribute):
        return op.Transpose(op.Transpose(x, perm=p), perm=permute(permute(p, p), p)), x

    graph = make(
        lambda edit, add: add(
            "Transpose",
            *add("Transpose", tensor(edit, "x", 2, 2, 2), perm=(1, 2, 0)),
            perm=(1, 2, 0),
        )[0]
    )
    (match,) = matches(graph, twice)
    changed, _ = apply(graph, match)
    assert changed.nodes[changed.outputs[0].node].attribute("perm") == (2, 0, 1)
    assert not matches(graph, back)


def test_attributes_that_are_not_named_have_the_default():
    @rule
    def add_into_conv(x, w, c):
        return op.Conv(x, w) + c, op.Conv(x, w, op.Reshape(c, shape=(-1,)))

    def build(**attributes: object) -> Graph:
        def inside(edit: Edit, add: Build) -> Ref:
            image, weight = tensor(edit, "x", 1, 2, 5, 5), tensor(edit, "w", 4, 2, 3, 3)
            return add(
                "Add", *add("Conv", image, weight, **attributes), tensor(edit, "c", 4, 1, 1)
            )[0]

        return make(inside)

    assert matches(build(), add_into_conv)
    assert not matches(build(strides=(2, 2)), add_into_conv)


def test_lists_are_taken_apart():
    @rule
    def swapped(x, a: Attribute, b: Attribute):
        return op.Transpose(x, perm=(0, a, b)), op.Transpose(x, perm=(0, b, a)), a == b - 3

    @rule
    def second(x, m: Attribute):
        parts = op.Split(x, axis=0, split=(m, 2))
        return op.Relu(parts.output(1)), op.Relu(op.Slice(x, starts=(m,), ends=(m + 2,), axes=(0,)))

    graph = make(
        lambda edit, add: add("Relu", add("Split", tensor(edit, "x", 5), split=(3, 2))[1])[0]
    )
    assert result(graph, second) == "Relu(Slice(x))"
    assert not matches(graph, swapped)


@pytest.mark.parametrize(("value", "is_match"), [(0.1, True), (0.2, False)])
def test_numbers_are_compared_as_their_type_rounds_them(value: float, is_match: bool):
    @rule
    def tenth(x):
        return x * 0.1, x / 10.0

    def build(edit: Edit, add: Build) -> Ref:
        return add(
            "Mul", tensor(edit, "x", 2), edit.add_constant(np.full((1,), value, np.float32))
        )[0]

    graph = make(build)
    assert bool(matches(graph, tenth)) == is_match
    if is_match:
        assert result(graph, tenth) == "Div(x, 10.0)"


def test_a_number_can_be_bound():
    @rule
    def scaled(x, c: Attribute):
        return op.Relu(x * c), op.Relu(x) * c, c > 0

    def build(edit: Edit, add: Build) -> Ref:
        two = edit.add_constant(np.full((2,), 2, np.float32))
        return add("Relu", *add("Mul", tensor(edit, "x", 2), two))[0]

    assert result(make(build), scaled) == "Mul(Relu(x), 2.0)"


def test_conditions_restrictions_and_types_decide():
    @rule
    def into_weight(x, w: Constant, s: ConstantScalar):
        return (x @ w) * s, x @ (w * s)

    def build(shape: tuple[int, ...], is_constant: bool = True) -> Graph:
        def inside(edit: Edit, add: Build) -> Ref:
            w = edit.add_constant(np.eye(2, dtype=np.float32))
            if not is_constant:
                w = tensor(edit, "w", 2, 2)
            s = edit.add_constant(np.ones(shape, np.float32))
            return add("Mul", *add("MatMul", tensor(edit, "x", 2, 2), w), s)[0]

        return make(inside)

    assert len(matches(build(()), into_weight)) == 1
    assert len(matches(build((1, 1)), into_weight)) == 1
    assert not matches(build((2,)), into_weight)
    assert not matches(build((1, 1), is_constant=False), into_weight)
    # The product would have another type.
    assert len(matches(build((1, 1, 1)), into_weight)) == 1
    narrowed = rule(lambda x, w, s: ((x @ w) * s, x @ w))
    assert not matches(build((1, 1, 1)), narrowed)


def test_names_of_sizes_are_compared_by_name():
    @rule
    def both(x, y):
        return op.Relu(x) @ op.Relu(y), op.Relu(x) @ y, x.dim(0) == y.dim(1)

    def build(size: str) -> Graph:
        def inside(edit: Edit, add: Build) -> Ref:
            x, y = tensor(edit, "x", "N", 2), tensor(edit, "y", 2, size)
            return add("MatMul", *add("Relu", x), *add("Relu", y))[0]

        return make(inside)

    assert matches(build("N"), both)
    assert not matches(build("M"), both)


@rule
def merged(x, v: Constant, w: Constant):
    split = op.Split(x @ op.Concat(v, w, axis=-1), axis=-1, split=(v.dim(-1), w.dim(-1)))
    return (x @ v, x @ w), (split, split.output(1))


def test_several_outputs_are_replaced_together():
    def build(edit: Edit, add: Build) -> list[Ref]:
        x, y = tensor(edit, "x", 2, 2), tensor(edit, "other", 2, 2)
        ends = []
        for number, left in enumerate((x, y, x)):
            weight = edit.add_constant(np.full((2, number + 1), 1, np.float32))
            ends += add("MatMul", left, weight)
        return ends

    graph = make(build)
    (match,) = matches(graph, merged)
    first, second = (ref.node for ref in (graph.outputs[0], graph.outputs[2]))
    assert match.location == (first, second)
    changed, change = apply(graph, match)
    assert change.removed == (first, second)
    assert text(changed, changed.outputs[2]).startswith("Split(MatMul(x, Concat(")
    assert changed.outputs[2].output == 1
    assert [changed.type_of(ref).shape for ref in changed.outputs] == [(2, 1), (2, 2), (2, 3)]


def test_what_depends_on_constants_alone_is_left_alone():
    def build(edit: Edit, add: Build) -> Ref:
        c = edit.add_constant(np.ones(2, np.float32))
        return add("Add", tensor(edit, "x", 2), *add("Relu", *add("Relu", c)))[0]

    assert not matches(make(build), relu_twice)


def test_what_changes_nothing_is_no_match():
    same = rule(lambda x, y: (op.Relu(x) + op.Relu(y), op.Relu(x) + op.Relu(y)))
    alike = rule(lambda x, y: (x - y, op.Relu(x) - y, only_where(x.rank == 1)))

    def build(edit: Edit, add: Build) -> Ref:
        x, y = tensor(edit, "x", 2), tensor(edit, "y", 2)
        return add("Add", *add("Relu", x), *add("Relu", y))[0]

    graph = make(build)
    assert not matches(graph, same)
    assert not matches(graph, alike)


def test_an_output_that_nobody_uses_is_not_replaced():
    @rule
    def first_part(x, y, m: Attribute, n: Attribute):
        return op.Split(op.Concat(x, y, axis=0), split=(m, n)), x, m == x.dim(0)

    def build(edit: Edit, add: Build, output: int) -> Ref:
        x, y = tensor(edit, "x", 2), tensor(edit, "y", 2)
        return add("Relu", add("Split", *add("Concat", x, y, axis=0), split=(2, 2))[output])[0]

    assert matches(make(lambda edit, add: build(edit, add, 0)), first_part)
    assert not matches(make(lambda edit, add: build(edit, add, 1)), first_part)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (lambda x: (op.Rleu(x), x), "no operator is called Rleu"),
        (lambda x: (op.Relu(x, alpha=1), x), "Relu has no attribute alpha"),
    ],
)
def test_unknown_operators_are_refused(function: Callable, problem: str):
    with pytest.raises(RuleError, match=problem):
        compile_rules([rule(function)])


def test_rules_of_one_name_are_refused():
    with pytest.raises(RuleError, match="rule relu_twice: there are 2"):
        compile_rules([relu_twice, relu_twice])


def test_product_of_two_numbers_is_a_number():
    """So that another rule recognises it; constants of more elements stay as they are."""

    @rule
    def join(x, a: Constant, b: Constant):
        return (x * a) * b, x * (a * b)

    def scaled(*factors: np.ndarray) -> Graph:
        def build(edit: Edit, add: Build) -> Ref:
            y = tensor(edit, "x", 2, 3)
            for factor in factors:
                (y,) = add("Mul", y, edit.add_constant(factor))
            return y

        return make(build)

    def joined(*factors: np.ndarray) -> list[np.ndarray | None]:
        graph = scaled(*factors)
        (match,) = matches(graph, join)
        changed, _ = apply(graph, match)
        product = changed.nodes[changed.outputs[0].node]
        return [changed.nodes[ref.node].value for ref in product.inputs if ref]

    half, six = np.array([0.5], np.float32), np.array(6, np.float32)
    _, number = joined(half, six)
    assert number is not None and number.dtype == np.float32
    np.testing.assert_array_equal(number, [3])
    _, row = joined(np.array([1, 2, 3], np.float32), six)
    assert row is None  # A Mul of two constants.
    _, infinite = joined(np.array([3e38], np.float32), six)
    assert infinite is None
