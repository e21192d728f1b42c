"""The figures of the BC-Max paper, from sizes worked by hand, and from a run on tiny corpora."""

from __future__ import annotations

import json

import pytest

from environments.inlining.corpus.modules import Corpus
from tests.environments.inlining.exploration.test_explore import SAVING, pairs
from tests.environments.inlining.small_modules import write_corpus
from tests.tools.studies.test_savings import IMAGE
from tools.studies import bc_max_figures, writing
from tools.studies.bc_max_figures import AS_PRINTED, NONE

MODULES = ("p/a.cpp", "p/b.cpp")


def record(seed, explored):
    """Text of two modules under each policy; an image is 12.5% smaller than the default's."""
    texts = {
        "default": (60, 100),
        "es": (100, 100),
        "ppo": (100, 100),
        f"{NONE}/1": (90, 110),
        f"{NONE}/2": (90, 100),
        f"{AS_PRINTED}/1": (90, 110),
        f"{AS_PRINTED}/2": explored,
    }
    policies = {
        name: {
            "sizes": {module: [text, 0] for module, text in zip(MODULES, of_modules, strict=True)},
            "images": [] if name == "es" else [IMAGE],
        }
        for name, of_modules in texts.items()
    }
    # Under ES the image is as large as the default's.
    policies["es"]["images"] = [{**IMAGE, "unwind_bytes": 30, "text_bytes": 100}]
    part = {"policies": policies}
    fits = {NONE: [[0.9, 0.5], [1.0, None]], AS_PRINTED: [[0.9, 0.5], [0.75, None]]}
    return {"seed": seed, "fits": fits, "parts": {"train": part, "heldout": part}}


def test_the_tables_by_hand():
    records = [record(0, (90, 90)), record(1, (70, 110))]
    saved, held_out, distances, differences = (
        writing.to_markdown(table, records) for table in bc_max_figures.BC_MAX.tables
    )
    # Of 200 bytes of ES: the default saves 40; iteration 1 none, and iteration 2 10, 20 and 20.
    assert "| es, -Oz | 20.00 |  |  |" in saved
    assert f"| es, {NONE} |  | 0.00 | 5.00 |" in saved
    assert f"| es, {AS_PRINTED} |  | 0.00 | 10.00 |" in saved
    # The oracle of ES and iteration 1 is (90, 100); iteration 2 adds (90, 90) or (70, 100).
    assert f"| es, oracle of {AS_PRINTED} |  | 5.00 | 12.50 (10.00..15.00) |" in saved
    assert f"| es, {NONE} |  |  | 0.00 | 12.50 | 5.00 | 12.50 |" in held_out
    # Iteration 1: 5 behind (90, 100), 0 behind ES. Iteration 2: 0 or 5 behind; 10 against 5 before.
    cells = "5.00 | 0.00 | 10.00 | 2.50 (0.00..5.00) | -5.00 | 25.00"
    assert f"| es, {AS_PRINTED} | {cells} |" in distances
    cells = "5.00, 2 of 2 | 5.00, 2 of 2 | 0.00, 0 of 2 | 2.50 (0.00..5.00), 1 of 2 |"
    assert differences.endswith(cells)
    lines = {point["line"] for point in bc_max_figures.points(records)}
    assert lines == {NONE, AS_PRINTED, f"oracle of {NONE}", f"oracle of {AS_PRINTED}"}


@pytest.mark.study
def test_from_es_and_ppo(arguments, study, no_saved_models, tmp_path, monkeypatch):
    figures = {"es": {AS_PRINTED: {}}, "ppo": {"Hedge": {"context_weights": "hedge"}}}
    monkeypatch.setattr(bc_max_figures, "FIGURES", figures)
    irs = {"one/a.cpp": SAVING, "two/a.cpp": pairs(2), "three/a.c": pairs(1)}
    corpus = write_corpus(tmp_path / "corpus", irs)
    small = ("--set", "num_chunks=1", "--set", "episodes_per_chunk=1", "--rounds", 1)
    words = ("--corpus", corpus, *arguments, *small, "--set", "scope=all")
    status, text, records = study("bc_max", *words)
    assert status == 0 and f"| es, {AS_PRINTED} | " in text and "| ppo, oracle of Hedge | " in text
    about = records["seed-0"]["about"]
    assert about["held_out"] == ["one"] or about["held_out"] == ["two"]
    run = tmp_path / "out/runs/seed-0"
    learned_on = Corpus.load(run / "corpora/train").modules
    assert {module.project for module in learned_on} == {"one", "two"} - set(about["held_out"])
    begun = json.loads((run / "exploring-as-printed/run.json").read_text())
    assert [path.split("/")[-2] for path in begun["baselines"]] == ["es"]
    assert (begun["around"], begun["flip_share"], begun["margins"]) == ("all", 0.1, [])
    assert begun["bucketed_by"] == "first" and not begun["advantage"] and not begun["scoped"]
