"""The graphs and baselines of the thesis: worked by hand, and as small a run as there can be."""

from __future__ import annotations

import dataclasses

import pytest

from environments.tensor_graphs import onnx_io
from environments.tensor_graphs.search import Budget
from environments.tensor_graphs.search.basic import taso
from tests.environments.tensor_graphs.search.fakes import HILL
from tests.environments.tensor_graphs.small_models import adapter, write
from tools.studies import runtimes

pytestmark = pytest.mark.study


def test_layers_of_a_graph():
    """x·W + (x·A)·B with sides of 8 and a rank of 4, then Relu; all of it twice.

    Each half has the layers W, A and B, of which A and B follow each other: 2 · 2 on the longest
    path. Their shapes are those of the other half. Weights: 2 · (8·8 + 8·4 + 4·8) = 256 numbers.
    """
    properties = runtimes.properties(onnx_io.read(adapter(size=8, rank=4, batch=2)))
    assert properties == {
        **{"layers": 6, "depth": 4, "unique": 3},
        **{"parameters": 256, "operators": 10},
    }


def test_when_a_search_finds_something_cheaper():
    """The way over the hill: 10 -> 10.2 is no gain; the next is 9, after it 5."""
    over_first = dataclasses.replace(HILL, arrows={0: {"over": 3, "down": 1}, 3: {"down": 4}})
    search = runtimes.Improvements("taso", over_first, Budget())
    assert search.run(taso).best.cost_ms == 5.0
    assert search.points == [[0, 1.0], [2, 0.9], [3, 0.5]]


def test_shares_of_what_a_search_saves():
    """From 1 to 0.8: at 0.9, which it has after 5 expansions, half is done."""
    record = {"model": "m", "expansions": 120, "improvements": [[0, 1.0], [5, 0.9], [40, 0.8]]}
    shares = {row["expansions"]: row["share"] for row in runtimes.by_steps([record])}
    assert shares == pytest.approx({"10": 50, "30": 50, "100": 100})
    nothing = {"model": "m", "expansions": 120, "improvements": [[0, 1.0]]}
    assert list(runtimes.by_steps([nothing])) == []


def test_a_tiny_run(study, tmp_path, monkeypatch):
    programs = {"no optimisations": ("model", "-disable"), "regions, all": ("regions", "")}
    monkeypatch.setattr(runtimes, "_PROGRAMS", programs)
    model = write(tmp_path / "adapter.onnx", adapter())
    words = ("--model", model, "--objective", "analytic", "--expansions", 20, "--seeds", 1)
    status, text, records = study("runtimes", *words, "--measure-seconds", 0.1)
    (record,) = records.values()
    measured = record["measured"]
    assert status == 0 and f"| {model}, regions, all | " in text
    assert measured["programs"]["no optimisations"]["ratio"][0] == 1
    # The weights alone: 2 · (192·192 + 2 · 192·96) numbers of 4 bytes are 0.56 MiB.
    assert all(program["memory_mib"] > 0.5 for program in measured["programs"].values())
    assert measured["costs"]["regions"] <= measured["costs"]["taso"] < 1
