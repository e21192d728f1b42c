"""The report of `tfrl optimize` as one HTML page, which needs neither a network nor scripts."""

from __future__ import annotations

import html

from environments.tensor_graphs.graph.drawing import draw, only_in
from tfrl_systems.systems.tensor_graphs.optimize.outcome import Outcome

_REMOVED, _ADDED = "#cc0000", "#2b8a3e"
_STYLE = """
body { font-family: sans-serif; margin: 1.5em; color: #222; }
pre { background: #f6f6f6; padding: 0.8em; overflow-x: auto; }
table { border-collapse: collapse; }
th, td { padding: 0.2em 0.8em; border-bottom: 1px solid #ddd; text-align: left; }
td.number { text-align: right; }
.graphs { display: flex; gap: 1em; align-items: flex-start; }
.graph { flex: 1; min-width: 0; border: 1px solid #ddd; }
.graph h2 { font-size: 1em; margin: 0.5em; }
.graph div { overflow: auto; max-height: 80vh; }
"""


def make_page(outcome: Outcome) -> str:
    """Return the page as HTML."""
    before, after = outcome.before, outcome.after
    title = html.escape(str(outcome.request.model))
    graphs = "".join(
        f'<div class="graph"><h2>{heading}</h2><div>{draw(graph, marked, colour)}</div></div>'
        for heading, graph, marked, colour in (
            ("before; red: changed", before, only_in(before, after), _REMOVED),
            ("after; green: new", after, only_in(after, before), _ADDED),
        )
    )
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{title}</title><style>{_STYLE}</style></head><body>\n<h1>{title}</h1>\n"
        f"<pre>{html.escape(outcome.to_text())}</pre>\n{_rules(outcome)}"
        f"<p>Boxes tell operator, attributes and types when the pointer rests on them; their "
        f'numbers are those of the table.</p><div class="graphs">{graphs}</div>\n</body></html>\n'
    )


def _rules(outcome: Outcome) -> str:
    if not outcome.contributions:
        return ""
    rows = []
    for contribution in outcome.contributions:
        where = ", ".join(" ".join(map(str, location)) for location in contribution.locations)
        measured = (
            ""
            if contribution.measured_saving is None
            else f"{100 * contribution.measured_saving:.2f}%"
        )
        rows.append(
            f"<tr><td>{html.escape(', '.join(contribution.rules))}</td><td>{where}</td>"
            f'<td class="number">{contribution.estimated_saving_ms:.4f}</td>'
            f'<td class="number">{measured}</td></tr>'
        )
    header = (
        "<tr><th>rule</th><th>where (nodes)</th><th>estimated to save, ms</th>"
        "<th>measured to save, of the model's time</th></tr>"
    )
    return f"<table>{header}{''.join(rows)}</table>\n"
