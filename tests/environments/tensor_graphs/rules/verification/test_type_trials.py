"""For which integers a rule is right: worked by hand, then on random graphs.

Integers wrap around, and truth values are no numbers.
"""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import pytest

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import CONSTANT, INPUT, TensorType
from environments.tensor_graphs.operators import building, table
from environments.tensor_graphs.operators.operator import OperatorError
from environments.tensor_graphs.rewriting.engine import Engine
from environments.tensor_graphs.rules import files as rule_files
from environments.tensor_graphs.rules.language.rule import GROUPS
from environments.tensor_graphs.rules.verification.type_trials import Wrapping
from environments.tensor_graphs.rules.verification.verify import verify, verify_all
from tests.environments.tensor_graphs.random_graphs import finished
from tests.environments.tensor_graphs.rules.making import FLOATS, NoCosts, make, walk

SIGNED, UNSIGNED, OTHER = "signed", "unsigned", "other"
HALVED = "(Div (Mul ?x (full 2.0)) (full 2.0))"


def types_of(rule, num_instances=40):
    """The groups besides that of floats, for which each of these rules is right."""
    verdict = verify(rule, num_instances)
    assert verdict.is_right, verdict.how
    assert verdict.types[0] == "float"
    return list(verdict.types[1:])


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        # int8: 12 · 12 = 144 is -112. Unsigned numbers have no sign.
        ("(Abs (Mul ?x ?x))", "(Mul ?x ?x)", [UNSIGNED]),
        # Relu is for floats and signed integers only.
        ("(Relu (Mul ?x ?x))", "(Mul ?x ?x)", []),
        # int8: 100 / 16 / 16 = 0, but 16 · 16 is 0.
        ("(Div (Div ?x ?a) ?b)", "(Div ?x (Mul ?a ?b))", []),
        # int8: 1 / 2 · 2 = 0, but 1 · 2 / 2 = 1; 100 · 2 = 200 is -56, and its half is -28.
        ("(Mul (Div ?x ?y) ?z)", "(Div (Mul ?x ?z) ?y)", []),
        ("(Div (Mul (Mul ?x ?x) ?y) ?y)", "(Mul ?x ?x)", []),
        (HALVED, "?x", []),
        # int8: 3 / 2 · 2 = 2.
        ("(Mul (Div ?x (full 2.0)) (full 2.0))", "?x", []),
        # int8: -(-(-128)) = -128. Neg is for signed numbers only.
        ("(Neg (Neg ?x))", "?x", [SIGNED]),
        # int8: |-128| is -128, whose Relu is 0.
        ("(Relu (Abs ?x))", "(Abs ?x)", []),
        # Sums and products modulo 2ⁿ are a ring.
        ("(Add (Add ?x ?y) ?z)", "(Add ?x (Add ?y ?z))", [SIGNED, UNSIGNED]),
        ("(Mul (Add ?x ?y) ?z)", "(Add (Mul ?x ?z) (Mul ?y ?z))", [SIGNED, UNSIGNED]),
        ("(Add (Sub ?x ?y) ?y)", "?x", [SIGNED, UNSIGNED]),
        # uint8: 0 - x exists, -x does not.
        ("(Sub (full 0.0) ?x)", "(Neg ?x)", [SIGNED]),
        # int8: 127 < 127 + 1 = -128 is wrong.
        ("(Less (Add ?x ?z) (Add ?y ?z))", "(Less ?x ?y)", []),
        ("(Less ?x ?y)", "(Greater ?y ?x)", [SIGNED, UNSIGNED]),
        ("(Max ?x ?x)", "?x", [SIGNED, UNSIGNED]),
        # No unsigned number is below 0; but Relu takes none, and few signed ones in onnxruntime.
        ("(Max ?x (full 0.0))", "(Relu ?x)", []),
        ("(Relu (Relu ?x))", "(Relu ?x)", [SIGNED]),
        # onnxruntime multiplies matrices of integers by MatMul only.
        ("(MatMul ?x ?y)", "(Gemm ?x ?y)", []),
        # What only moves elements moves all.
        ("(Transpose (Transpose ?x :perm $p) :perm $q)", "(Transpose ?x :perm (permute $p $q))",
         [SIGNED, UNSIGNED, OTHER]),
        ("(Reshape (Reshape ?x :shape $s) :shape $t)", "(Reshape ?x :shape $t)",
         [SIGNED, UNSIGNED, OTHER]),
        ("(Where ?c ?x ?x)", "(Where (Not ?c) ?x ?x)", [SIGNED, UNSIGNED, OTHER]),
        # Roots are of floats.
        ("(Sqrt (Abs ?x))", "(Sqrt (Abs (Abs ?x)))", []),
    ],
)  # fmt: skip
def test_types(source, target, expected):
    conditions = ["(= (rank ?x) 2)", "(= (rank ?y) 2)"] if "MatMul" in source else []
    assert types_of(make(source, target, *conditions)) == expected


def test_conditions_bound_the_types():
    """Where a rule does not match, it need not be right."""
    rule = make("(Div (Mul ?x ?y) ?z)", "(Mul (Div ?x ?z) ?y)", FLOATS)
    assert types_of(rule) == []
    assert types_of(make("(Add ?x ?y)", "(Add ?y ?x)", FLOATS)) == []
    signed = '(not (in (dtype ?x) (list "uint8" "uint16" "uint32" "uint64")))'
    assert types_of(make("(Add ?x ?y)", "(Add ?y ?x)", signed)) == [SIGNED]


def test_numbers_that_a_rule_takes_are_of_any_size():
    """int8: x + 100 + 100 is x - 56; 100 / 16 / 16 is 0, but 16 · 16 is 0."""
    added = make(
        "(Add (Add ?x (full $a)) (full $b))", "(Add ?x (full (+ $a $b) (list) (dtype ?x)))"
    )
    assert types_of(added) == [SIGNED, UNSIGNED]
    divided = make(
        "(Div (Div ?x (full $a)) (full $b))",
        "(Div ?x (full (* $a $b) (list) (dtype ?x)))",
        "(> $a 0)",
        "(> $b 0)",
    )
    assert types_of(divided, 200) == []


def test_conversions_are_tried_with_large_numbers():
    """46341 · 46341 is negative in int32, and 46341 is a float."""
    rule = make('(Abs (Mul (Cast ?x :to "int32") (Cast ?x :to "int32")))',
                '(Mul (Cast ?x :to "int32") (Cast ?x :to "int32"))')  # fmt: skip
    verdict = verify(rule, 120)
    assert not verdict.is_right and "output 0 is -" in verdict.how
    negated = make('(Neg (Neg (Cast ?x :to "int32")))', '(Cast ?x :to "int32")')
    assert verify(negated, 120).is_right


def test_a_rule_must_be_right_with_each_seed():
    rule = make("(Abs (Mul ?x ?x))", "(Mul ?x ?x)")
    assert verify_all([rule], 60, (1, 2))["rule"].types == ("float", UNSIGNED)
    moves = make("(Transpose ?x :perm $p)", "(Transpose ?x :perm (permute $p (range 0 (rank ?x))))")
    assert verify_all([moves], 60, (1, 2))["rule"].types == GROUPS


OF_SIGNED = ("Add", "Sub", "Mul", "Mul", "Div", "Div", "Max", "Neg", "Abs", "Relu", "Transpose",
          "Concat")  # fmt: skip
OF_UNSIGNED = tuple(op for op in OF_SIGNED if op not in ("Neg", "Relu"))
MOVES = ("Transpose", "Transpose", "Reshape", "Concat")
OPERATORS = {
    "int8": OF_SIGNED,
    "int64": OF_SIGNED,
    "uint8": OF_UNSIGNED,
    "uint32": OF_UNSIGNED,
    "bool": MOVES,
}
ATTRIBUTES = {
    "Transpose": {"perm": (1, 0)},
    "Concat": {"axis": 0},
    "Reshape": {"shape": (2, -1)},
}
UNARY = ("Neg", "Abs", "Relu", "Transpose", "Reshape")


def elements(dtype, rng, shape):
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    limits = np.iinfo(dtype)
    drawn = rng.integers(limits.min, limits.max, shape, dtype, endpoint=True)
    return (drawn >> rng.integers(0, limits.bits - 1)).astype(dtype)


def random_graph(dtype, seed):
    """Operators on matrices of 4 × 4 and on numbers, and what becomes of them."""
    rng, numbers = random.Random(seed), np.random.default_rng(seed)
    edit = Graph().edit()
    refs = [edit.add_constant(np.asarray(elements(dtype, numbers, s))) for s in ((4, 4), (), ())]
    refs += [edit.add(INPUT, [], (("name", name),), [TensorType(dtype, (4, 4))]) for name in "xy"]
    for _ in range(20):
        op = rng.choice(OPERATORS[dtype])
        # Rules match chains of operators, squares, and what is done with constants.
        last, earlier = refs[-1], rng.choice(refs[-2:] if rng.random() < 0.3 else refs)
        inputs = [last] if op in UNARY else [last, earlier]
        try:
            refs += building.add(edit, op, *inputs, **ATTRIBUTES.get(op, {}))
        except OperatorError:
            continue
    return finished(edit, refs)


def values_of(graph, seed, key):
    """What a graph computes; results that ONNX does not define depend on the key."""
    rng, algebra = np.random.default_rng(seed), Wrapping(key)
    values = {}
    for number in graph.order():
        node = graph.nodes[number]
        if node.op == INPUT:
            values[number] = (elements(node.types[0].dtype, rng, node.types[0].shape),)
        elif node.op == CONSTANT:
            values[number] = (node.value,)
        else:
            arrays = [values[ref.node][ref.output] for ref in node.inputs]
            with np.errstate(all="ignore"):
                values[number] = table.evaluate(node.op, arrays, node.attributes, algebra)
    return [values[ref.node][ref.output] for ref in graph.outputs]


def are_equal(graph, changed, seed):
    """Whether both compute the same, wherever the first one computes something."""
    runs = [[values_of(side, seed, key) for side in (graph, changed)] for key in range(4)]
    for place in range(len(graph.outputs)):
        is_defined = np.all([run[0][place] == runs[0][0][place] for run in runs], axis=0)
        if any(np.any(is_defined & (run[0][place] != run[1][place])) for run in runs):
            return False
    return True


def keeps_integers(engine, dtype, seed):
    """Whether random steps keep what a random graph computes, and how many there were."""
    graph = random_graph(dtype, seed)
    state, count = walk(engine, graph, seed)
    return all(are_equal(graph, state.graph, number) for number in range(4)), count


@pytest.mark.parametrize("dtype", OPERATORS)
@pytest.mark.parametrize("seeds", [range(12), pytest.param(range(12, 150), marks=pytest.mark.slow)])
def test_rules_keep_integers(dtype, seeds):
    engine = Engine(rule_files.load(), NoCosts())
    outcomes = [keeps_integers(engine, dtype, seed) for seed in seeds]
    assert all(is_kept for is_kept, _ in outcomes)
    assert sum(count for _, count in outcomes) > len(seeds)


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_rules_of_floats_do_not(dtype):
    """Else the test before would show nothing."""
    rules = [rule for rule in rule_files.load() if rule.types == ("float",)]
    engine = Engine([dataclasses.replace(rule, types=GROUPS) for rule in rules], NoCosts())
    assert not all(keeps_integers(engine, dtype, seed)[0] for seed in range(40))


def compute(op, *arrays, key=0, **attributes):
    algebra = Wrapping(key)
    complete = table.complete(op, attributes, None)
    with np.errstate(all="ignore"):
        (result,) = table.evaluate(op, arrays, complete, algebra)
    return result, algebra.is_defined


@pytest.mark.parametrize(
    ("op", "arrays", "expected"),
    [
        ("Add", [[100], [100]], [-56]),  # 200 - 256
        ("Mul", [[16], [16]], [0]),
        ("Mul", [[12], [12]], [-112]),  # 144 - 256
        ("Neg", [[-128]], [-128]),
        ("Abs", [[-128]], [-128]),
        ("Div", [[-7, 7, -7, -128], [2, -2, -2, 3]], [-3, -3, 3, -42]),
    ],
)
def test_int8_by_hand(op, arrays, expected):
    result, is_defined = compute(op, *(np.array(array, np.int8) for array in arrays))
    assert result.dtype == np.int8 and result.tolist() == expected and is_defined


@pytest.mark.parametrize("shapes", [((), ()), ((), (2,)), ((2,), ())])
@pytest.mark.parametrize("divisor", [0, 3])
def test_quotients_keep_their_type(shapes, divisor):
    """Also where NumPy takes arrays of shape [] for numbers of any type."""
    a, b = (np.full(shape, x, np.uint8) for shape, x in zip(shapes, (200, divisor), strict=True))
    quotient, _ = compute("Div", a, b)
    assert quotient.dtype == np.uint8 and quotient.shape == np.broadcast_shapes(*shapes)


@pytest.mark.parametrize(("a", "b"), [(5, 0), (-128, -1)])
def test_a_quotient_that_does_not_exist_depends_on_the_key(a, b):
    results = [
        compute("Div", np.array([a, 6], np.int8), np.array([b, 3], np.int8), key=key)
        for key in range(4)
    ]
    assert not any(is_defined for _, is_defined in results)
    assert len({int(quotients[0]) for quotients, _ in results}) > 1
    assert {int(quotients[1]) for quotients, _ in results} == {2}


def test_a_number_that_a_type_does_not_hold_depends_on_the_key():
    x = np.array([-3.7, 300.0, np.nan], np.float32)
    integers = [compute("Cast", x, key=key, to="int8")[0] for key in range(4)]
    assert {int(array[0]) for array in integers} == {-3}
    assert (
        len({int(array[1]) for array in integers}) > 1
        and len({int(array[2]) for array in integers}) > 1
    )


def test_floats_are_left_alone():
    quotient, is_defined = compute("Div", np.float32([1, -1]), np.float32([0, 0]))
    assert quotient.tolist() == [np.inf, -np.inf] and is_defined
