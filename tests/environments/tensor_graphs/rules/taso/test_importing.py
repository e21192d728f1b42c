"""TASO's rule file: read by its wire format, and only what is right is taken."""

from __future__ import annotations

import pytest

from environments.errors import UserError
from environments.tensor_graphs.rules.taso.file import (
    TasoOperator,
    TasoParameter,
    message_type,
    read_taso_file,
)
from environments.tensor_graphs.rules.taso.importing import import_taso
from environments.tensor_graphs.rules.taso.translation import translate

# A rule whose source is one MUL of a variable, -20, and output 1 of operator 3, with a parameter.
WRITTEN = bytes.fromhex(
    "0a29"
    "0a1d 0813 120d 08ecffffffffffffffff01 1000 1204 0803 1001 1a04 080b 1002"
    "1a08 0800 1001 1802 2003"
)


def node(kind, inputs, **parameters):
    """inputs: places, or pairs (place, output)."""
    pairs = [place if isinstance(place, tuple) else (place, 0) for place in inputs]
    return {
        "type": TasoOperator[kind] if isinstance(kind, str) else kind,
        "inputs": [{"operator": place, "output": output} for place, output in pairs],
        "parameters": [
            {"key": TasoParameter[name], "value": value} for name, value in parameters.items()
        ],
    }


def rule(source, target, *outputs):
    """outputs: (operator in source, operator in target, output there, output here)."""
    fields = ("source", "target", "source_output", "target_output")
    pairs = [dict(zip(fields, output, strict=True)) for output in outputs]
    return message_type("Rule")(source=source, target=target, outputs=pairs)


def conv(x, w, kernel=3, activation=0):
    """Padding SAME, stride 1."""
    window = {"KERNEL_H": kernel, "KERNEL_W": kernel, "STRIDE_H": 1, "STRIDE_W": 1, "PAD": 0}
    return node("CONV2D", [x, w], **window, ACTIVATION=activation)


def relu(x):
    return node("RELU", [x])


def matmul(x, y, activation=0):
    return node("MATMUL", [x, y], ACTIVATION=activation)


def concat(x, y, axis, rank):
    return node("CONCAT", [x, y], NUM_DIMENSIONS=rank, AXIS=axis)


def split(x, axis):
    return node("SPLIT", [x], AXIS=axis, NUM_OUTPUTS=2)


def transpose(x):
    return node("TRANSPOSE", [x], NUM_DIMENSIONS=2, PERMUTATION=2, OUT_SHUFFLE=1)


RIGHT = {
    "sums are distributive": rule(
        [matmul(-1, -2), matmul(-1, -3), node("EW_ADD", [0, 1])],
        [node("EW_ADD", [-2, -3]), matmul(-1, 0)],
        (2, 1, 0, 0),
    ),
    "products side by side": rule(
        [matmul(-1, -2), matmul(-1, -3)],
        [concat(-2, -3, 1, 2), matmul(-1, 0), split(1, 1)],
        (0, 2, 0, 0),
        (1, 2, 0, 1),
    ),
    "scale moves": rule(
        [conv(-1, -2), node("MUL", [0, -20])], [node("MUL", [-2, -20]), conv(-1, 0)], (1, 1, 0, 0)
    ),
    "kernel enlarged": rule(
        [conv(-1, -2, 1)],
        [node("ENLARGE", [-2], KERNEL_H=3, KERNEL_W=3), conv(-1, 0)],
        (0, 1, 0, 0),
    ),
    "transposed product": rule(
        [transpose(-1), transpose(-2), matmul(1, 0)],
        [matmul(-1, -2), transpose(0)],
        (2, 1, 0, 0),
    ),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_rules_are_taken(name):
    taken = import_taso([RIGHT[name]], num_instances=8)
    assert not taken.rejected
    assert [accepted.name for accepted in taken.accepted] == ["taso_0"]
    assert taken.accepted[0].verified_by


@pytest.mark.parametrize(
    ("joint", "axis"),
    [(concat(0, 1, 1, 4), 0), (node("EW_ADD", [0, 1]), 1)],
    ids=["side by side", "sum"],
)
def test_rules_that_need_more_conditions_are_refused(joint, axis):
    """Two convolutions become one; it is right for those without groups."""
    wrong = rule(
        [conv(-1, -2), conv(-3, -4), joint],
        [concat(-1, -3, 1, 4), concat(-2, -4, axis, 4), conv(0, 1)],
        (2, 2, 0, 0),
    )
    taken = import_taso([wrong], num_instances=300)
    assert not taken.accepted
    assert "wrong for" in taken.rejected["taso_0"]


def test_what_says_the_same_is_taken_once():
    first = rule([matmul(-1, -2), matmul(0, -3)], [matmul(-2, -3), matmul(-1, 0)], (1, 1, 0, 0))
    again = rule([matmul(-7, -5), matmul(0, -4)], [matmul(-5, -4), matmul(-7, 0)], (1, 1, 0, 0))
    same = rule([matmul(-1, -2), relu(0)], [matmul(-1, -2, activation=2)], (1, 0, 0, 0))
    taken = import_taso([first, again, same], num_instances=8)
    assert [accepted.name for accepted in taken.accepted] == ["taso_0"]
    assert taken.rejected == {
        "taso_1": "it says what taso_0 says",
        "taso_2": "its two sides are the same here",
    }


@pytest.mark.parametrize(
    ("refused", "reason"),
    [
        (rule([node(21, [-1])], [relu(-1)], (0, 0, 0, 0)), "MERGE_GCONV"),
        (rule([node(77, [-1])], [relu(-1)], (0, 0, 0, 0)), "operator 77"),
        (rule([relu(5)], [relu(-1)], (0, 0, 0, 0)), "no output 0 of operator 5"),
        (rule([relu(-1)], [split(-1, 0)], (0, 0, 0, 0)), "where its target's SPLIT cuts"),
        (rule([relu(-1)], [relu(-1)]), "maps no output"),
    ],
)
def test_what_cannot_be_said_is_refused_with_the_reason(refused, reason):
    taken = import_taso([refused], num_instances=20)
    assert not taken.accepted
    assert reason in taken.rejected["taso_0"]


def test_numbers_are_those_of_taso():
    """The places in TASO's enums OpType and PMParameter (include/taso/ops.h)."""
    places = {"CONV2D": 3, "MATMUL": 18, "SQUEEZE": 26, "REDUCE_SUM": 41, "BROADCAST_ADD": 61}
    assert {name: TasoOperator[name].value for name in places} == places
    keys = {"NUM_OUTPUTS": 2, "PAD": 8, "PERMUTATION": 12, "KEEP_DIMS": 16}
    assert {name: TasoParameter[name].value for name in keys} == keys


def test_a_permutation_is_a_number():
    """The digits of 0 3 1 2 in base 4: 3 · 16 + 1 · 4 + 2."""
    transposed = node("TRANSPOSE", [-1], NUM_DIMENSIONS=4, PERMUTATION=54, OUT_SHUFFLE=0)
    turned = rule([transposed], [relu(-1)], (0, 0, 0, 0))
    source = translate(turned, "rule")[0].source
    assert [*map(str, source)] == ["(Transpose ?x1 :perm (list 0 3 1 2))"]


def test_numbers_are_read(tmp_path):
    path = tmp_path / "rules.pb"
    path.write_bytes(WRITTEN)
    (read,) = read_taso_file(path)
    assert str(read) == str(rule([node("MUL", [-20, (3, 1)], AXIS=2)], [], (0, 1, 2, 3)))


@pytest.mark.parametrize("content", [WRITTEN[:-3], b"srcOp { type: 18 }", b"", None])
def test_no_rule_file(content, tmp_path):
    path = tmp_path / "rules.pb"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError) as error:
        read_taso_file(path)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)
