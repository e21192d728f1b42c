"""Graphs are drawn as SVG."""

from __future__ import annotations

import collections
import xml.etree.ElementTree as ElementTree

from environments.tensor_graphs.graph.drawing import draw, near, only_in
from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import Ref
from tests.environments.tensor_graphs.rules.making import graph_of


def diamond():
    """x → Relu → (Tanh, Neg) → Add, and a weight that is not drawn."""
    both = "(Add (Tanh (Relu ?<x>)) (Neg (Relu ?<x>)))"
    graph = graph_of(f'(Mul {both} (full 1.0 (list 3) "float32"))', **{"<x>": ("N", 3)})
    return graph, next(number for number, node in graph.nodes.items() if node.op == "Neg")


def test_a_picture_is_an_svg_of_all_nodes():
    graph, neg = diamond()
    root = ElementTree.fromstring(draw(graph, {neg}, mark="#123456"))
    boxes = root.findall("{*}g")
    texts = [[text.text for text in box.findall("{*}text")] for box in boxes]
    assert texts[:2] == [["<x>", "0"], ["Relu", "1"]]
    assert sum(box.find("{*}rect").get("stroke") == "#123456" for box in boxes) == 1
    assert "float32[N, 3]" in boxes[1].find("{*}title").text
    assert len(root.findall("{*}path")) == 6
    rows = collections.defaultdict(list)
    for box, (label, _) in zip(boxes, texts, strict=True):
        rectangle = box.find("{*}rect")
        rows[float(rectangle.get("y"))].append((float(rectangle.get("x")), label))
    # Rows follow the data, and boxes do not overlap.
    labels = [[label for _, label in sorted(rows[y])] for y in sorted(rows)]
    assert [sorted(row) for row in labels] == [["<x>"], ["Relu"], ["Neg", "Tanh"], ["Add"], ["Mul"]]
    (left, _), (right, _) = sorted(rows[sorted(rows)[2]])
    assert right - left > float(boxes[0].find("{*}rect").get("width"))


def test_a_dashed_line_leads_through_what_is_not_drawn():
    """Of x → Relu → (Tanh, Neg) → Add → Mul, only x, Neg and Mul are drawn."""
    graph, neg = diamond()
    by_op = {node.op: number for number, node in graph.nodes.items()}
    root = ElementTree.fromstring(draw(graph, shown={by_op["Input"], neg, by_op["Mul"]}))
    assert len(root.findall("{*}g")) == 3
    lines = root.findall("{*}path")
    assert len(lines) == 2 and all(line.get("stroke-dasharray") for line in lines)


def test_near_a_node_is_what_it_uses_and_what_uses_it():
    graph, neg = diamond()
    assert {graph.nodes[number].op for number in near(graph, {neg})} == {"Relu", "Neg", "Add"}
    # The constant that Mul uses is not among them.
    assert {graph.nodes[number].op for number in near(graph, {neg}, radius=3)} == {
        *("Input", "Relu", "Tanh", "Neg", "Add", "Mul")
    }


def test_what_an_edit_changed_is_marked():
    graph, neg = diamond()
    edit = graph.edit()
    edit.replace({Ref(neg): graph.nodes[neg].inputs[0]})
    after = edit.finish()[0]
    assert only_in(graph, after) == {neg, *graph.users(neg)}
    assert only_in(after, graph) == set(graph.users(neg))


def test_the_empty_graph():
    ElementTree.fromstring(draw(Graph()))
