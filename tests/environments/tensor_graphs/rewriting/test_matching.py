"""Where rules match, and what becomes of the graph."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, Ref
from environments.tensor_graphs.rewriting.match_index import MatchIndex
from environments.tensor_graphs.rewriting.matching import Match, apply, compile_rules
from environments.tensor_graphs.rules.language.notation import (
    Attribute,
    Constant,
    ConstantScalar,
    op,
    permute,
    rule,
)
from environments.tensor_graphs.rules.language.rule import Rule, RuleError
from tests.environments.tensor_graphs.rules.making import graph_of


def matches(graph: Graph, *rules: Rule) -> tuple[Match, ...]:
    return MatchIndex(graph, compile_rules(rules)).matches


def full(value: float, *shape: int) -> str:
    """A constant, as text."""
    return f'(full {float(value)} (list {" ".join(map(str, shape))}) "float32")'


def applied(graph: Graph, match: Match) -> str:
    """The first output's expression after a match was applied."""
    changed, _ = apply(graph, match)
    return text(changed, changed.outputs[0])


def result(graph: Graph, *rules: Rule) -> str:
    """The first output's expression after the only match was applied."""
    (match,) = matches(graph, *rules)
    return applied(graph, match)


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
    graph = graph_of("(Relu (Relu (Tanh (Relu (Relu ?x)))))")
    first, second = matches(graph, relu_twice)
    assert (first.location, second.location) == ((2,), (5,))
    assert (first.rule, first.replaced, first.nodes) == ("relu_twice", (Ref(2),), (1, 2))
    assert applied(graph, first) == "Relu(Relu(Tanh(Relu(x))))"


def test_commutative_operators_match_in_both_orders():
    """a + (b + c): b and c can each be taken out; the rule's own order comes first."""
    assert result(graph_of("(Add (Add ?a ?a) ?b)"), sums) == "Add(a, Add(a, b))"
    graph = graph_of("(Add ?a (Add ?b ?c))")
    both = matches(graph, sums)
    assert [applied(graph, match) for match in both] == ["Add(b, Add(c, a))", "Add(c, Add(b, a))"]
    assert len({match.location for match in both}) == 2


def test_what_is_symmetric_is_listed_once():
    """In x·z + y·z the two products may change places, with x and y: that is the same change."""
    graph = graph_of("(Add (Mul ?a ?c) (Mul ?c ?b))")
    assert result(graph, common_factor) == "Mul(Add(a, b), c)"


def test_attributes_are_bound_compared_and_computed():
    @rule
    def twice(x, p: Attribute, q: Attribute):
        return op.Transpose(op.Transpose(x, perm=p), perm=q), op.Transpose(x, perm=permute(p, q))

    @rule
    def back(x, p: Attribute):
        return op.Transpose(op.Transpose(x, perm=p), perm=permute(permute(p, p), p)), x

    turned = "(Transpose (Transpose ?x :perm (list 1 2 0)) :perm (list 1 2 0))"
    graph = graph_of(turned, x=(2, 2, 2))
    (match,) = matches(graph, twice)
    changed, _ = apply(graph, match)
    assert changed.nodes[changed.outputs[0].node].attribute("perm") == (2, 0, 1)
    assert not matches(graph, back)


@rule
def add_into_conv(x, w, c):
    return op.Conv(x, w) + c, op.Conv(x, w, op.Reshape(c, shape=(-1,)))


@rule
def tenth(x):
    return x * 0.1, x / 10.0


@rule
def scaled(x, c: Attribute):
    return op.Relu(x * c), op.Relu(x) * c, c > 0


@rule
def first_part(x, y, m: Attribute, n: Attribute):
    return op.Split(op.Concat(x, y, axis=0), split=(m, n)), x, m == x.dim(0)


CONV = {"x": (1, 2, 5, 5), "w": (4, 2, 3, 3), "c": (4, 1, 1)}
PARTS = "(Split (Concat ?x ?y :axis 0) :split (list 2 2))"


@pytest.mark.parametrize(
    ("searched", "text", "shapes", "is_match"),
    [
        # Attributes that are not named have the default.
        (add_into_conv, "(Add (Conv ?x ?w) ?c)", CONV, True),
        (add_into_conv, "(Add (Conv ?x ?w :strides (list 2 2)) ?c)", CONV, False),
        # Numbers are compared as their type rounds them.
        (tenth, f"(Mul ?x {full(0.1, 1)})", {}, True),
        (tenth, f"(Mul ?x {full(0.2, 1)})", {}, False),
        # A number is bound if all elements are equal.
        (scaled, f"(Relu (Mul ?x {full(2, 2)}))", {}, True),
        (scaled, f"(Relu (Mul ?x {full(-2, 2)}))", {}, False),
        # An output that nobody uses is not replaced.
        (first_part, f"(Relu (output 0 {PARTS}))", {}, True),
        (first_part, f"(Relu (output 1 {PARTS}))", {}, False),
        # What depends on constants alone is left alone.
        (relu_twice, f"(Add ?x (Relu (Relu {full(1, 2)})))", {}, False),
        # The graph would stay the same.
        (rule(lambda x, y: (x + op.Relu(y), x + op.Relu(y))), "(Add ?x (Relu ?y))", {}, False),
    ],
)
def test_where_a_rule_matches(searched: Rule, text: str, shapes: dict, is_match: bool):
    assert bool(matches(graph_of(text, **shapes), searched)) == is_match


def test_lists_are_taken_apart():
    @rule
    def swapped(x, a: Attribute, b: Attribute):
        return op.Transpose(x, perm=(0, a, b)), op.Transpose(x, perm=(0, b, a)), a == b - 3

    @rule
    def second(x, m: Attribute):
        parts = op.Split(x, axis=0, split=(m, 2))
        return op.Relu(parts.output(1)), op.Relu(op.Slice(x, starts=(m,), ends=(m + 2,), axes=(0,)))

    graph = graph_of("(Relu (output 1 (Split ?x :axis 0 :split (list 3 2))))", x=(5,))
    assert result(graph, second) == "Relu(Slice(x))"
    assert not matches(graph, swapped)


def test_conditions_restrictions_and_types_decide():
    @rule
    def into_weight(x, w: Constant, s: ConstantScalar):
        return (x @ w) * s, x @ (w * s)

    def build(*shape: int, weight: str = full(1, 2, 2)) -> Graph:
        return graph_of(f"(Mul (MatMul ?x {weight}) {full(1, *shape)})", x=(2, 2), w=(2, 2))

    assert len(matches(build(), into_weight)) == 1
    assert len(matches(build(1, 1), into_weight)) == 1
    assert not matches(build(2), into_weight)
    assert not matches(build(1, 1, weight="?w"), into_weight)
    # The product would have another type.
    assert len(matches(build(1, 1, 1), into_weight)) == 1
    narrowed = rule(lambda x, w, s: ((x @ w) * s, x @ w))
    assert not matches(build(1, 1, 1), narrowed)


@rule
def merged(x, v: Constant, w: Constant):
    split = op.Split(x @ op.Concat(v, w, axis=-1), axis=-1, split=(v.dim(-1), w.dim(-1)))
    return (x @ v, x @ w), (split, split.output(1))


def test_several_outputs_are_replaced_together():
    products = [f"(MatMul ?{x} {full(1, 2, n)})" for n, x in enumerate("xyx", 1)]
    graph = graph_of(*products, x=(2, 2), y=(2, 2))
    (match,) = matches(graph, merged)
    first, second = (ref.node for ref in (graph.outputs[0], graph.outputs[2]))
    assert match.location == (first, second)
    changed, change = apply(graph, match)
    assert change.removed == (first, second)
    assert text(changed, changed.outputs[2]).startswith("Split(MatMul(x, Concat(")
    assert changed.outputs[2].output == 1
    assert [changed.type_of(ref).shape for ref in changed.outputs] == [(2, 1), (2, 2), (2, 3)]


@pytest.mark.parametrize(
    ("rules", "problem"),
    [
        ([rule(lambda x: (op.Rleu(x), x))], "no operator is called Rleu"),
        ([rule(lambda x: (op.Relu(x, alpha=1), x))], "Relu has no attribute alpha"),
        ([relu_twice, relu_twice], "rule relu_twice: there are 2"),
    ],
)
def test_unknown_operators_and_equal_names_are_refused(rules: list[Rule], problem: str):
    with pytest.raises(RuleError, match=problem):
        compile_rules(rules)


@pytest.mark.parametrize(
    ("left", "right", "product"),
    [
        (full(0.5, 1), full(6), "[3.0]"),
        (full(2, 3), full(6), "Mul([2.0, 2.0, 2.0], 6.0)"),
        # The product is no float32.
        (full(2.0**127, 1), full(6), f"Mul([{2.0**127}], 6.0)"),
    ],
)
def test_product_of_two_numbers_is_a_number(left: str, right: str, product: str):
    """So that another rule recognises it; constants of more elements stay as they are."""

    @rule
    def join(x, a: Constant, b: Constant):
        return (x * a) * b, x * (a * b)

    graph = graph_of(f"(Mul (Mul ?x {left}) {right})", x=(2, 3))
    assert result(graph, join) == f"Mul(x, {product})"
