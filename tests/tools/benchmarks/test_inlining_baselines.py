"""BC-Max from learned baselines: figures worked by hand, and a run on a tiny corpus."""

from __future__ import annotations

import json

import pytest

from environments.errors import UserError
from tests.environments.inlining.exploration.test_explore import SAVING, pairs
from tests.environments.inlining.small_modules import many_calls
from tests.tfrl_systems.conftest import write_corpus
from tools.benchmarks import inlining_baselines
from tools.benchmarks import inlining_baselines_report as report

pytestmark = pytest.mark.study

EXPLORING, HEDGE = "exploring, buckets", "exploring, hedge"
PLAIN = "not exploring, buckets"
IMAGE = {
    **{"project": "p", "text_bytes": 90, "unwind_bytes": 20, "rodata_bytes": 30, "file_bytes": 150},
    **{"default_text_bytes": 100, "default_unwind_bytes": 30, "default_rodata_bytes": 30},
    "default_file_bytes": 200,
}


def record(seed, last):
    """One seed's record of two modules; `last` are their texts after two iterations."""

    def of(*texts):
        sizes = {name: [text, text // 2] for name, text in zip("ab", texts, strict=True)}
        return {"sizes": sizes, "images": [IMAGE]}

    met = {"default": of(100, 100), "ppo": of(80, 110), "es": of(120, 90)}
    for name in inlining_baselines.VARIANTS:
        met |= {f"{name}/1": of(90, 100), f"{name}/2": of(*last)}
    written = dict.fromkeys(inlining_baselines.VARIANTS, 2)
    parts = {"train": met, "heldout": met}
    return {"seed": seed, "iterations": 2, "written": written, "parts": parts}


RECORDS = [record(0, (70, 100)), record(1, (90, 90))]


def test_savings_by_hand():
    def saved(policy, iteration, column=0):
        return report.measure("heldout", column, policy, iteration)(RECORDS[0])

    assert saved("ppo", 0) == pytest.approx(5) and saved("es", 2) == pytest.approx(-5)
    # The best of the three: 80 of a, 90 of b. In the end the variant's 70 of a is there, too.
    assert saved("oracle", 0) == pytest.approx(15)
    assert saved(f"oracle of {EXPLORING}", 2) == pytest.approx(20)
    assert [saved(EXPLORING, number) for number in (0, 1, 2)] == pytest.approx([0, 5, 15])
    # Code, unwind tables and read-only data: 140 of 160.
    title = "code + unwind + read-only"
    for policy, iteration in (("ppo", 0), (EXPLORING, 0), (EXPLORING, 1)):
        found = report.image_saving(title, policy, iteration)(RECORDS[0])
        assert found == pytest.approx(12.5)
    # Of es only b is smaller than by default.
    assert report.worse("es", 0)(RECORDS[0]) == 1


def test_the_report(tmp_path):
    report.write(RECORDS, "`python -m it` at abc", tmp_path)
    text = (tmp_path / "table.md").read_text()
    assert "| oracle | 15.00 | 15.00 | 15.00 | 0.0 |  |  |" in text
    assert f"| {PLAIN} | 12.50 (10.00..15.00) |" in text and "`python -m it` at abc" in text
    assert "| 5.00, best 15.00 | 12.50 (10.00..15.00), best 17.50 (15.00..20.00) |" in text
    first = (tmp_path / "savings.svg").read_bytes()
    report.write(RECORDS, "`python -m it` at abc", tmp_path)
    assert (tmp_path / "savings.svg").read_bytes() == first


@pytest.fixture
def arguments(tmp_path):
    for part in inlining_baselines.PARTS:
        modules = {"one/a.cpp": SAVING, "two/a.cpp": pairs(2), "two/b.c": many_calls(3)}
        write_corpus(tmp_path / "corpus" / part, modules)
    words = ["--corpus", str(tmp_path / "corpus"), "--output", str(tmp_path / "out")]
    words += ["--cache", str(tmp_path / "cache.db"), "--workers", "1"]
    return [*words, "--seeds", "1", "--rounds", "1", "--iterations", "1"]


def test_a_tiny_corpus(arguments, no_saved_models, tmp_path, monkeypatch, capsys):
    small = {"num_chunks": 1, "episodes_per_chunk": 1, "hidden_sizes": (4,)}
    quick = {"model": "trees", "num_models": 1, "num_trees": 5, "min_samples_leaf": 1}
    settings = {"ppo": small, "es": small, "bc_max": {**quick, "scoped": False}}
    monkeypatch.setattr(inlining_baselines, "SETTINGS", settings)
    variants = {HEDGE: inlining_baselines.VARIANTS[HEDGE]}
    monkeypatch.setattr(inlining_baselines, "VARIANTS", variants)
    monkeypatch.setattr(report, "draw", lambda records, output: None)
    options = inlining_baselines.parse_arguments(arguments)
    inlining_baselines.run(options)
    kept = json.loads((tmp_path / "out" / "seed-0.json").read_text())
    assert set(kept["parts"]["heldout"]["ppo"]["sizes"]) == {"one/a.cpp", "two/a.cpp"}
    assert report.measure("heldout", 0, f"oracle of {HEDGE}", 1)(kept) >= 0
    workdir = tmp_path / "out" / "runs" / "seed-0" / "exploring-hedge"
    (first,) = json.loads((workdir / "result.json").read_text())["evaluation"]["iterations"]
    assert first["oracle_cost"] < first["default_cost"]
    begun = json.loads((workdir / "run.json").read_text())
    assert [one.split("/")[-2:-1] for one in begun["baselines"]] == [[], ["ppo"], ["es"]]
    assert begun["context_weights"] == "hedge" and begun["explore"]
    text = (tmp_path / "out" / "table.md").read_text()
    assert capsys.readouterr().out == ""
    # Finished: nothing is done again, and other settings need another directory.
    inlining_baselines.run(options)
    assert (tmp_path / "out" / "table.md").read_text() == text
    options.rounds = 2
    with pytest.raises(UserError, match="name another directory with --output"):
        inlining_baselines.run(options)


def test_a_corpus_of_large_modules_is_an_error(arguments):
    options = inlining_baselines.parse_arguments([*arguments, "--max-bitcode-bytes", "5"])
    with pytest.raises(UserError, match="expected C.. modules of at most 5 bytes, found none"):
        inlining_baselines.run(options)
