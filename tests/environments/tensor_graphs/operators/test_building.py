"""Nodes are added in their canonical form."""

from __future__ import annotations

import pytest

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT
from environments.tensor_graphs.operators.building import add
from environments.tensor_graphs.operators.operator import OperatorError
from tests.environments.tensor_graphs.operators.test_table import floats


@pytest.mark.parametrize(
    ("op", "shape", "attributes", "expected"),
    [
        ("Flatten", (2, 3, 4), {}, (2, 12)),
        ("Flatten", ("N", 3, 4), {"axis": -1}, ("3*N", 4)),
        ("Flatten", (2, 3), {"axis": 0}, (1, 6)),
        ("Squeeze", (1, 3, 1), {"axes": (-1,)}, (1, 3)),
        ("Squeeze", (1, 3, 1), {}, (3,)),
        ("Unsqueeze", ("N", 3), {"axes": (0, -1)}, (1, "N", 3, 1)),
        ("Unsqueeze", (), {"axes": (0, 1)}, (1, 1)),
    ],
)
def test_reshapes_of_other_names(op, shape, attributes, expected):
    edit = Graph().edit()
    x = edit.add(INPUT, (), (("name", "x"),), [floats(*shape)])
    (y,) = add(edit, op, x, **attributes)
    assert edit.nodes[y.node].op == "Reshape"
    assert edit.type_of(y) == floats(*expected)


def test_inputs_that_no_reshape_has():
    edit = Graph().edit()
    x = edit.add(INPUT, (), (("name", "x"),), [floats(2)])
    with pytest.raises(OperatorError, match="^Flatten: expected one input of known rank"):
        add(edit, "Flatten", x, x)
