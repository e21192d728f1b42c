"""The page of `--report`, which a person may send to a colleague."""

from __future__ import annotations

import html
import re

from tests.environments.tensor_graphs.execution.models import chain
from tests.environments.tensor_graphs.small_models import write
from tfrl_systems import experiments

QUICK = ("--objective", "analytic", "--expansions", "50", "--no-measure")


def test_of_a_long_model_it_draws_what_changed_and_what_is_beside_it(tmp_path, optimized):
    """Thirty Tanh, two Relus of which the second goes, and thirty Tanh."""
    model = chain(*["Tanh"] * 30, "Relu", "Relu", *["Tanh"] * 30)
    page = tmp_path / "report.html"
    ran, path, out = optimized(model, *QUICK, "--report", page)
    assert ran.json["gain"] is True
    text = html.unescape(page.read_text())
    change = 100 * (ran.json["estimated_ms_after"] / ran.json["estimated_ms_before"] - 1)
    assert f"{out.name}: {change:.2f}% of the model's time, as estimated" in text
    before, after = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
    # The Relu that went, the other one, and those Tanh that use them or are used.
    assert before.count("<rect") in (3, 4)
    assert before.count("<rect") + int(re.search(r"changed; (\d+) boxes", text)[1]) == 63
    assert after.count("<rect") < 5
    assert f"tfrl optimize --objective analytic --expansions 50 {path}" in text


def test_without_a_gain_there_is_one_graph_which_is_folded(tmp_path, optimized):
    page = tmp_path / "report.html"
    ran, _, out = optimized(chain("Tanh", "Exp"), *QUICK, "--report", page)
    assert ran.json["gain"] is False
    text = page.read_text()
    assert f"No gain available: {ran.json['reason']}. {out.name} is a copy." in text
    assert text.count("<svg") == 1 and "<details><summary>The graph" in text


def test_a_notebook_shows_the_page(tmp_path):
    model = write(tmp_path / "m.onnx", chain("Tanh", "Relu", "Relu"))
    silent = {"reporter": experiments.Reporter(), "objective": "analytic", "expansions": 20}
    report = experiments.optimize(model, measure=False, **silent)
    shown = report._repr_html_()
    assert shown.startswith("<iframe srcdoc=") and shown.count("<") == 2
    page = html.unescape(shown)
    assert "time, as estimated" in page and page.count("<svg") == 2
    assert isinstance(report, dict) and report["gain"] is True
