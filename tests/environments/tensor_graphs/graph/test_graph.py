"""Graphs are immutable; edits make others of them."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from environments.tensor_graphs.graph.graph import CycleError, Graph
from environments.tensor_graphs.graph.nodes import INPUT, Change, Ref, TensorType

TYPE = TensorType("float32", (2, 3))


def chain(*ops: str) -> tuple[Graph, list[Ref]]:
    """Make input → op → op …; return the graph and a reference to each node's output."""
    edit = Graph().edit()
    refs = [edit.add(INPUT, [], (("name", "x"),), [TYPE])]
    for op in ops:
        refs.append(edit.add(op, [refs[-1]], (), [TYPE]))
    edit.set_outputs([refs[-1]], ["y"])
    return edit.finish()[0], refs


def test_equal_nodes_are_one():
    edit = Graph().edit()
    x = edit.add(INPUT, [], (("name", "x"),), [TYPE])
    assert edit.add("Relu", [x], (), [TYPE]) == edit.add("Relu", [x], (), [TYPE])
    zeros, more_zeros = np.zeros(3, np.float32), np.zeros(3, np.float32)
    assert edit.add_constant(zeros) == edit.add_constant(more_zeros)
    assert edit.add_constant(zeros) != edit.add_constant(np.zeros(3, np.int32))


def test_an_edit_does_not_change_its_graph():
    graph, (x, relu, tanh) = chain("Relu", "Tanh")
    before = hash(graph), dict(graph.nodes)
    edit = graph.edit()
    edit.replace({relu: x})
    changed, change = edit.finish()
    assert (hash(graph), dict(graph.nodes)) == before
    assert change == Change(added=(), removed=(relu.node,), rewired=(tanh.node,))
    assert changed == chain("Tanh")[0]


def test_users_that_become_equal_become_one():
    """Sigmoid(Relu(x)) and Sigmoid(Tanh(x)) are one node when Tanh(x) is replaced by Relu(x)."""
    edit = Graph().edit()
    x = edit.add(INPUT, [], (("name", "x"),), [TYPE])
    ends = []
    for op in ("Relu", "Tanh"):
        ends.append(edit.add("Sigmoid", [edit.add(op, [x], (), [TYPE])], (), [TYPE]))
    edit.set_outputs([edit.add("Add", ends, (), [TYPE])], ["y"])
    graph, _ = edit.finish()
    relu, tanh = (graph.nodes[end.node].inputs[0] for end in ends)
    edit = graph.edit()
    edit.replace({tanh: relu})
    graph, change = edit.finish()
    assert [graph.nodes[number].op for number in graph.order()] == [INPUT, "Relu", "Sigmoid", "Add"]
    assert graph.nodes[graph.outputs[0].node].inputs == (ends[0], ends[0])
    assert change.removed == (tanh.node, ends[1].node)


def test_a_node_can_be_replaced_by_one_that_uses_it():
    graph, (x, relu, tanh) = chain("Relu", "Tanh")
    edit = graph.edit()
    twice = edit.add("Relu", [relu], (), [TYPE])
    edit.replace({relu: twice}, built={twice.node})
    graph, change = edit.finish()
    assert graph == chain("Relu", "Relu", "Tanh")[0]
    assert change == Change(added=(twice.node,), removed=(), rewired=(tanh.node,))


def test_a_cycle_is_refused():
    """f(x) and g(f(x)) cannot both be replaced by what uses g(f(x))."""
    graph, (x, relu, tanh) = chain("Relu", "Tanh")
    edit = graph.edit()
    pair = edit.add("Pair", [x, tanh], (), [TYPE, TYPE])
    edit.replace({relu: Ref(pair.node, 0), tanh: Ref(pair.node, 1)})
    with pytest.raises(CycleError):
        edit.finish()


def test_another_type_is_refused():
    graph, (x, relu) = chain("Relu")
    edit = graph.edit()
    integers = edit.add("Cast", [x], (), [TensorType("int32", (2, 3))])
    with pytest.raises(ValueError, match="int32"):
        edit.replace({relu: integers})


def test_a_node_becomes_constant_when_its_inputs_do():
    edit = Graph().edit()
    x = edit.add(INPUT, [], (("name", "x"),), [TYPE])
    zero = edit.add_constant(np.zeros((2, 3), np.float32))
    product = edit.add("Mul", [x, zero], (), [TYPE])
    root = edit.add("Sqrt", [product], (), [TYPE])
    opaque = edit.add("Opaque", [zero], (), [TYPE])
    edit.set_outputs([root, opaque], ["y", "z"])
    graph, _ = edit.finish()
    assert [graph.is_constant(ref.node) for ref in (zero, root, opaque)] == [True, False, False]
    edit = graph.edit()
    edit.replace({product: zero})
    graph, change = edit.finish()
    assert graph.is_constant(root.node)
    assert change.rewired == (root.node,)


def test_what_a_node_depends_on():
    """Add(Relu(x), Tanh(Relu(x))) depends on all four nodes, and Tanh not on the sum."""
    graph, (x, relu, tanh) = chain("Relu", "Tanh")
    edit = graph.edit()
    total = edit.add("Add", [relu, tanh], (), [TYPE])
    edit.set_outputs([total], ["y"])
    graph, _ = edit.finish()
    masks = [1 << ref.node for ref in (x, relu, tanh, total)]
    # In both orders: the sets below are kept.
    for number in (3, 2, 1, 0, 3):
        node = (x, relu, tanh, total)[number].node
        assert graph.dependencies(node) == sum(masks[: number + 1])


def test_structure_alone_decides_the_hash():
    """Equal graphs that were made differently have other numbers for their nodes."""
    direct, _ = chain("Relu", "Tanh")
    graph, (x, relu, *_) = chain("Relu", "Sigmoid", "Tanh")
    edit = graph.edit()
    edit.replace({Ref(2): relu})
    reached, _ = edit.finish()
    assert set(reached.nodes) != set(direct.nodes)
    assert hash(reached) == hash(direct) != hash(graph)
    assert [reached.nodes[number].op for number in reached.order()] == [INPUT, "Relu", "Tanh"]


def test_the_hash_is_the_same_in_every_process():
    module = "tests.environments.tensor_graphs.graph.test_graph"
    code = f"from {module} import chain; print(hash(chain('Relu')[0]))"
    hashes = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": "."},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert hashes == {f"{hash(chain('Relu')[0])}\n"}


def test_outputs_stay_in_order_and_unused_nodes_go():
    edit = Graph().edit()
    x = edit.add(INPUT, [], (("name", "x"),), [TYPE])
    unused_input = edit.add(INPUT, [], (("name", "unused"),), [TYPE])
    relu = edit.add("Relu", [x], (), [TYPE])
    edit.add("Tanh", [x], (), [TYPE])
    edit.set_outputs([relu, x, relu], ["a", "b", "c"])
    graph, _ = edit.finish()
    assert set(graph.nodes) == {x.node, unused_input.node, relu.node}
    edit = graph.edit()
    edit.replace({relu: x})
    assert edit.finish()[0].outputs == (x, x, x)
