"""Draw graphs as SVG, which browsers and notebooks can show.

Constants are left out. The colour of a box shows the kind of operator (LEGEND), and the small
number is the node's. To compare two graphs, mark the nodes that only one of them has (`only_in`),
and draw what is `near` them.
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
_TITLE_CHARACTERS, _LABEL_CHARACTERS = 400, 14

# For each kind of operator its colour and its operators.
_KINDS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "products": ("#c9daf8", ("Conv", "ConvTranspose", "Einsum", "Gemm", "MatMul")),
    "elementwise": (
        "#d9ead3",
        ("Add", "Sub", "Mul", "Div", "Pow", "Neg", "Sqrt", "Reciprocal", "Sum", "Where"),
    ),
    "moving data": ("#fff2cc", (
        "Concat", "Expand", "Flatten", "Gather", "Pad", "Reshape", "Slice", "Split", "Squeeze",
        "Tile", "Transpose", "Unsqueeze",
    )),
    "normalising and reducing": ("#ead1dc", (
        "BatchNormalization", "InstanceNormalization", "LayerNormalization", "LogSoftmax",
        "ReduceMax", "ReduceMean", "ReduceSum", "Softmax",
    )),
    "pooling": ("#d0e0e3", ("AveragePool", "GlobalAveragePool", "GlobalMaxPool", "MaxPool")),
    "inputs and what no rule knows": ("#eeeeee", (INPUT, OPAQUE)),
}  # fmt: skip
_COLOURS = {op: colour for colour, ops in _KINDS.values() for op in ops}
_OTHER = "#fce5cd"

LEGEND: Mapping[str, str] = {
    **{kind: colour for kind, (colour, _) in _KINDS.items()},
    "all others": _OTHER,
}
"""The colour of each kind of operator."""


def draw(
    graph: Graph,
    marked: Collection[int] = (),
    mark: str = "#cc0000",
    shown: Collection[int] | None = None,
) -> str:
    """Draw a graph as an <svg> element.

    The boxes of `marked` nodes have a frame in the colour `mark`. Of `shown` nodes alone, all by
    default, there are boxes; a dashed line leads through the others.
    """
    links = _links(graph, graph.nodes if shown is None else shown)
    pixels = {
        number: (_MARGIN + x * _STEP_X, _MARGIN + y * _STEP_Y)
        for number, (x, y) in _layout(links).items()
    }
    width = max((x for x, _ in pixels.values()), default=0) + _WIDTH + _MARGIN
    height = max((y for _, y in pixels.values()), default=0) + _HEIGHT + _MARGIN
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="11">'
    ]
    parts += _lines(links, pixels)
    parts += [
        _box(graph, number, place, mark if number in marked else "")
        for number, place in pixels.items()
    ]
    return "\n".join([*parts, "</svg>"])


def near(graph: Graph, marked: Collection[int], radius: int = 1) -> set[int]:
    """Return the marked nodes, and those within so many edges that are not constant."""
    region = set(marked) & graph.nodes.keys()
    for _ in range(radius):
        for number in tuple(region):
            region.update(graph.nodes[number].used, graph.users(number))
    return {number for number in region if not graph.is_constant(number)}


def only_in(graph: Graph, reference: Graph) -> set[int]:
    """Return the nodes of one graph that the other, made from it or the reverse, does not have."""
    return {number for number, node in graph.nodes.items() if reference.nodes.get(number) != node}


_Links = Mapping[int, Mapping[int, bool]]
"""For each node that is drawn those that it uses, and whether it uses them directly."""


def _links(graph: Graph, shown: Collection[int]) -> _Links:
    links: dict[int, dict[int, bool]] = {}
    rows: dict[int, int] = {}
    # For each node that is not drawn the nearest ones that are, on the paths to it.
    behind: dict[int, list[int]] = {}
    for number in graph.order():
        if graph.is_constant(number):
            continue
        used = graph.nodes[number].used
        direct = [source for source in used if source in links]
        hidden = [source for between in used if between in behind for source in behind[between]]
        sources = {**dict.fromkeys(hidden, False), **dict.fromkeys(direct, True)}
        last = max((rows[source] for source in sources), default=-1)
        if number in shown:
            links[number], rows[number] = sources, last + 1
        else:
            behind[number] = [source for source in sources if rows[source] == last]
    return links


def _layout(links: _Links) -> dict[int, tuple[float, int]]:
    """Choose a column and a row for each node, inputs above outputs."""
    below: dict[int, list[int]] = {number: [] for number in links}
    rows: dict[int, int] = {}
    for number, above in links.items():
        rows[number] = 1 + max((rows[used] for used in above), default=-1)
        for used in above:
            below[used].append(number)
    layers: dict[int, list[int]] = {}
    for number in links:
        layers.setdefault(rows[number], []).append(number)
    columns = {number: float(k) for layer in layers.values() for k, number in enumerate(layer)}
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for row in sorted(layers, reverse=not down):
            _place(layers[row], links if down else below, columns)
    left = min(columns.values(), default=0.0)
    return {number: (columns[number] - left, rows[number]) for number in links}


def _place(
    layer: list[int], neighbours: Mapping[int, Collection[int]], columns: dict[int, float]
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


def _lines(links: _Links, pixels: Mapping[int, tuple[float, float]]) -> Iterable[str]:
    for number, (x, y) in pixels.items():
        for used, is_direct in links[number].items():
            from_x, from_y = pixels[used][0] + _WIDTH / 2, pixels[used][1] + _HEIGHT
            to_x = x + _WIDTH / 2
            half = (from_y + y) / 2
            dashes = "" if is_direct else ' stroke-dasharray="3 4"'
            yield (
                f'<path d="M{from_x:.0f} {from_y:.0f}C{from_x:.0f} {half:.0f} {to_x:.0f} '
                f'{half:.0f} {to_x:.0f} {y:.0f}" fill="none" stroke="#999"{dashes}/>'
            )


def _box(graph: Graph, number: int, place: tuple[float, float], frame: str) -> str:
    node = graph.nodes[number]
    x, y = place
    stroke = f'stroke="{frame}" stroke-width="2.5"' if frame else 'stroke="#888"'
    label = node.attribute("name") if node.op == INPUT else node.op
    if node.op == OPAQUE:
        label = node.attribute("operator").rpartition(":")[2]
    label = label.replace("Normalization", "Norm")[:_LABEL_CHARACTERS]
    attributes = " ".join(f"{name}={value!r}" for name, value in node.attributes)
    title = f"{number}: {node.op} {attributes} → {', '.join(map(_type, node.types))}"
    return (
        f'<g><title>{html.escape(title[:_TITLE_CHARACTERS])}</title><rect x="{x:.0f}" y="{y:.0f}" '
        f'width="{_WIDTH}" height="{_HEIGHT}" rx="4" fill="{_COLOURS.get(node.op, _OTHER)}" '
        f'{stroke}/><text x="{x + 6:.0f}" y="{y + 15:.0f}">{html.escape(label)}</text>'
        f'<text x="{x + _WIDTH - 5:.0f}" y="{y + 15:.0f}" text-anchor="end" font-size="8" '
        f'fill="#666">{number}</text></g>'
    )


def _type(kind: TensorType | None) -> str:
    if kind is None:
        return "?"
    shape = "?" if kind.shape is None else ", ".join(map(str, kind.shape))
    return f"{kind.dtype}[{shape}]"
