"""The report of `tfrl optimize` as one HTML page, which needs neither a network nor scripts."""

from __future__ import annotations

import html
import shlex
from typing import Any

from environments.machine import package_versions
from environments.tensor_graphs.graph.drawing import LEGEND, draw, near, only_in
from environments.tensor_graphs.graph.graph import Graph
from tfrl_systems.reporting import percent
from tfrl_systems.settings import as_options
from tfrl_systems.systems.tensor_graphs.optimize.outcome import Outcome

_REMOVED, _ADDED = "#cc0000", "#2b8a3e"
# Graphs of up to so many boxes are drawn whole; of larger ones what changed and what is beside it.
_DRAWN_WHOLE = 40
_PACKAGES = ("tfrl-systems", "onnxruntime", "onnx")
_STYLE = """
body { font-family: sans-serif; margin: 1.5em; color: #222; }
pre { background: #f6f6f6; padding: 0.8em; overflow-x: auto; }
table { border-collapse: collapse; margin: 1em 0; }
th, td { padding: 0.2em 0.8em; border-bottom: 1px solid #ddd; text-align: left; }
td.number { text-align: right; }
.result { font-size: 1.2em; }
.legend span { display: inline-block; margin-right: 1.2em; }
.legend i { display: inline-block; width: 1em; height: 1em; margin-right: 0.3em;
  border: 1px solid #888; vertical-align: text-bottom; }
.graphs { display: flex; gap: 1em; align-items: flex-start; }
.graph { flex: 1; min-width: 0; border: 1px solid #ddd; }
.graph h2 { font-size: 1em; margin: 0.5em; }
.graph div { overflow: auto; max-height: 80vh; }
"""


class Report(dict[str, Any]):
    """What `tfrl optimize --json` prints; a notebook shows it as the page."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__(outcome.to_json())
        self._page = make_page(outcome)

    def _repr_html_(self) -> str:
        """Return the page in a frame, so that its style is not the notebook's."""
        frame = 'width="100%" height="640" style="border: 1px solid #ddd"'
        return f'<iframe srcdoc="{html.escape(self._page)}" {frame}></iframe>'


def make_page(outcome: Outcome) -> str:
    """Return the page as HTML."""
    title = html.escape(outcome.request.model.name)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n"
        f'<p class="result">{html.escape(_result(outcome))}</p>\n{_rules(outcome)}'
        f"{_graphs(outcome.before, outcome.after)}"
        f"<pre>{html.escape(outcome.to_text())}</pre>\n{_origin(outcome)}</body></html>\n"
    )


def _result(outcome: Outcome) -> str:
    """Say in a sentence what was won, and how sure that is."""
    output, comparison = outcome.request.place.name, outcome.comparison
    if not outcome.has_gain:
        return f"No gain available: {outcome.selection.reason}. {output} is a copy."
    if comparison is None:
        change = percent(outcome.estimated_ms, outcome.result.start_cost_ms)
        return f"{output}: {change} of the model's time, as estimated; nothing was measured."
    ratio, same = comparison.ratio, comparison.same
    low, value, high, *of_copies = (
        f"{100 * (share - 1):+.1f}%"
        for share in (ratio.low, ratio.value, ratio.high, same.low, same.high)
    )
    return (
        f"{output}: {value} of the model's time, between {low} and {high} (two copies of the model "
        f"differ by {' to '.join(of_copies)})."
    )


def _rules(outcome: Outcome) -> str:
    if not outcome.contributions:
        return ""
    start_ms = outcome.result.start_cost_ms
    rows = []
    for contribution in outcome.contributions:
        where = ", ".join(" ".join(map(str, location)) for location in contribution.locations)
        saving = contribution.measured_saving
        rows.append(
            f"<tr><td>{html.escape(', '.join(contribution.rules))}</td><td>{where}</td>"
            '<td class="number">'
            f"{percent(start_ms - contribution.estimated_saving_ms, start_ms)}</td>"
            f'<td class="number">{"" if saving is None else f"{-100 * saving:+.2f}%"}</td></tr>'
        )
    header = (
        "<tr><th>rule</th><th>where (numbers of boxes)</th><th>time, estimated</th>"
        "<th>time, measured</th></tr>"
    )
    return f"<table>{header}{''.join(rows)}</table>\n"


def _graphs(before: Graph, after: Graph) -> str:
    """Draw both graphs, or the only one; large ones where they differ."""
    removed, added = only_in(before, after), only_in(after, before)
    if not removed | added:
        return f"<details><summary>The graph</summary>\n{draw(before)}</details>\n{_legend()}"
    columns = "".join(
        f'<div class="graph"><h2>{heading}{_folded(graph, shown)}</h2>'
        f"<div>{draw(graph, marked, colour, shown)}</div></div>"
        for heading, graph, marked, colour, shown in (
            ("Before; red: changed", before, removed, _REMOVED, _shown(before, removed)),
            ("After; green: new", after, added, _ADDED, _shown(after, added)),
        )
    )
    return f'{_legend()}<div class="graphs">{columns}</div>\n'


def _shown(graph: Graph, marked: set[int]) -> set[int]:
    boxes = near(graph, graph.nodes, 0)
    return boxes if len(boxes) <= _DRAWN_WHOLE else near(graph, marked)


def _folded(graph: Graph, shown: set[int]) -> str:
    num_hidden = len(near(graph, graph.nodes, 0)) - len(shown)
    return f"; {num_hidden} boxes as before are not drawn" if num_hidden else ""


def _legend() -> str:
    kinds = "".join(
        f'<span><i style="background: {colour}"></i>{kind}</span>'
        for kind, colour in LEGEND.items()
    )
    return (
        f'<p class="legend">{kinds}</p>\n<p>The numbers at the boxes are those of the table. Boxes '
        "tell attributes and types when the pointer rests on them. Dashed lines lead through what "
        "is not drawn. Constants are left out.</p>\n"
    )


def _origin(outcome: Outcome) -> str:
    """Say what made the page."""
    options = as_options(outcome.request)
    # On the command line the model stands by itself.
    place = options.index("--model")
    del options[place]
    command = shlex.join(["tfrl", "optimize", *options])
    versions = package_versions(_PACKAGES)
    named = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return f"<pre>{html.escape(command)}\n{html.escape(named)}</pre>\n"
