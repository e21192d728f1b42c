"""Draw graphs as SVG, which browsers and notebooks can show.

Constants are left out, and the colour of a box shows the kind of operator. To compare two graphs,
mark the nodes that only one of them has (`only_in`).
"""

from __future__ import annotations

import html
import statistics
from collections.abc import Collection, Iterable, Mapping

from environments.tensor_graphs.graph.graph import Graph
from environments.tensor_graphs.graph.nodes import INPUT, OPAQUE, TensorType

_WIDTH, _HEIGHT = 108, 22
_STEP_X, _STEP_Y = 122, 40
_MARGIN = 12
_SWEEPS = 6
_TITLE_CHARACTERS = 400

# Colours by kind: products, elementwise, moving, normalising and reducing, pooling, the rest.
_KINDS: Mapping[str, tuple[str, ...]] = {
    "#c9daf8": ("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul"),
    "#d9ead3": ("Add", "Sub", "Mul", "Div", "Pow", "Neg", "Sqrt", "Reciprocal", "Sum", "Where"),
    "#fff2cc": (
        "Concat", "Expand", "Flatten", "Gather", "Pad", "Reshape", "Slice", "Split", "Squeeze",
        "Tile", "Transpose", "Unsqueeze",
    ),
    "#ead1dc": (
        "BatchNormalization", "InstanceNormalization", "LayerNormalization", "LogSoftmax",
        "ReduceMax", "ReduceMean", "ReduceSum", "Softmax",
    ),
    "#d0e0e3": ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool"),
    "#eeeeee": (INPUT, OPAQUE),
}  # fmt: skip
_COLOURS = {op: colour for colour, ops in _KINDS.items() for op in ops}
_OTHER = "#fce5cd"


def draw(graph: Graph, marked: Collection[int] = (), mark: str = "#cc0000") -> str:
    """Draw a graph as an <svg> element; boxes of the `marked` nodes have a frame of `mark`."""
    places = layout(graph)
    pixels = {
        number: (_MARGIN + x * _STEP_X, _MARGIN + y * _STEP_Y) for number, (x, y) in places.items()
    }
    width = max((x for x, _ in pixels.values()), default=0) + _WIDTH + _MARGIN
    height = max((y for _, y in pixels.values()), default=0) + _HEIGHT + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="11">'
    ]
    parts += _lines(graph, pixels)
    parts += [
        _box(graph, number, place, mark if number in marked else "")
        for number, place in pixels.items()
    ]
    return "\n".join([*parts, "</svg>"])


def only_in(graph: Graph, reference: Graph) -> set[int]:
    """Return the nodes of one graph that the other, made from it or the reverse, does not have."""
    return {number for number, node in graph.nodes.items() if reference.nodes.get(number) != node}


def layout(graph: Graph) -> dict[int, tuple[float, int]]:
    """Choose a column and a row for each node that is not constant, inputs above outputs."""
    shown = [number for number in graph.order() if not graph.is_constant(number)]
    above = {
        number: [used for used in graph.nodes[number].used if not graph.is_constant(used)]
        for number in shown
    }
    below: dict[int, list[int]] = {number: [] for number in shown}
    rows: dict[int, int] = {}
    for number in shown:
        rows[number] = 1 + max((rows[used] for used in above[number]), default=-1)
        for used in above[number]:
            below[used].append(number)
    layers: dict[int, list[int]] = {}
    for number in shown:
        layers.setdefault(rows[number], []).append(number)
    columns = {number: float(k) for layer in layers.values() for k, number in enumerate(layer)}
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in sorted(layers, reverse=not down):
            _place(layers[row], above if down else below, columns)
    left = min(columns.values(), default=0.0)
    return {number: (columns[number] - left, rows[number]) for number in shown}


def _place(
    layer: list[int], neighbours: Mapping[int, list[int]], columns: dict[int, float]
) -> None:
    """Move the nodes of a row below or above their neighbours, keeping them apart, in place."""
    wanted = {
        number: statistics.fmean(columns[neighbour] for neighbour in neighbours[number])
        if neighbours[number]
        else columns[number]
        for number in layer
    }
    layer.sort(key=lambda number: (wanted[number], number))
    taken = float("-inf")
    for number in layer:
        columns[number] = taken = max(wanted[number], taken + 1)
    # Keeping the nodes apart pushed some to the right, so the whole row is moved back.
    surplus = statistics.fmean(columns[number] - wanted[number] for number in layer)
    for number in layer:
        columns[number] -= surplus


def _lines(graph: Graph, pixels: Mapping[int, tuple[float, float]]) -> Iterable[str]:
    for number, (x, y) in pixels.items():
        for used in graph.nodes[number].used:
            if used not in pixels:
                continue
            from_x, from_y = pixels[used][0] + _WIDTH / 2, pixels[used][1] + _HEIGHT
            to_x = x + _WIDTH / 2
            half = (from_y + y) / 2
            yield (
                f'<path d="M{from_x:.0f} {from_y:.0f}C{from_x:.0f} {half:.0f} {to_x:.0f} '
                f'{half:.0f} {to_x:.0f} {y:.0f}" fill="none" stroke="#999"/>'
            )


def _box(graph: Graph, number: int, place: tuple[float, float], frame: str) -> str:
    node = graph.nodes[number]
    x, y = place
    stroke = f'stroke="{frame}" stroke-width="2.5"' if frame else 'stroke="#888"'
    label = node.op.replace("Normalization", "Norm")[:17]
    if node.op == INPUT:
        label = node.attribute("name")[:16]
    attributes = " ".join(f"{name}={value!r}" for name, value in node.attributes)
    title = f"{number}: {node.op} {attributes} → {', '.join(map(_type, node.types))}"
    return (
        f'<g><title>{html.escape(title[:_TITLE_CHARACTERS])}</title><rect x="{x:.0f}" y="{y:.0f}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill="{_COLOURS.get(node.op, _OTHER)}" '
        f'{stroke}/><text x="{x + _WIDTH / 2:.0f}" y="{y + 15:.0f}" text-anchor="middle">'
        f"{html.escape(label)}</text></g>"
    )


def _type(kind: TensorType | None) -> str:
    if kind is None:
        return "?"
    shape = "?" if kind.shape is None else ", ".join(map(str, kind.shape))
    return f"{kind.dtype}[{shape}]"
