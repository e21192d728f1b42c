"""Studies of inlining on tiny corpora."""

from __future__ import annotations

import json

import pytest

from environments.errors import UserError
from environments.inlining.corpus.modules import Module
from tests.environments.inlining.exploration.test_explore import SAVING, pairs
from tests.environments.inlining.small_modules import many_calls, write_corpus
from tools.studies import inlining

LARGE = pairs(1) + f'@data = global [9000 x i8] c"{"x" * 9000}"\n'


@pytest.fixture
def modules(tmp_path):
    sizes = {"a": ("c++", 90), "b": ("c++", 60), "c": ("c++", 40), "d": ("c", 5), "e": ("c", 9)}
    corpus_modules = []
    for project, (language, size_bytes) in sizes.items():
        path = tmp_path / project
        path.write_bytes(b"0" * size_bytes)
        corpus_modules.append(Module(f"{project}/m", path, project, language))
    return corpus_modules


def test_folds_are_even_in_each_language(modules):
    # C++: 90 | 60 + 40; C: the larger first, to the fold with fewer projects so far.
    assert inlining.make_folds(modules, 2) == [["a", "e"], ["b", "c", "d"]]
    folds = inlining.make_folds(modules, 5)
    assert sorted(project for fold in folds for project in fold) == list("abcde")
    with pytest.raises(UserError, match="expected at most 5"):
        inlining.make_folds(modules, 6)


@pytest.mark.slow
def test_projects_held_out_in_turn(arguments, study, no_saved_models, tmp_path):
    irs = {
        "one/a.cpp": SAVING,
        "two/a.cpp": pairs(2),
        "three/a.c": SAVING + many_calls(2).replace("declare void @sink(i32)\n", ""),
        "four/a.c": pairs(1),
        "four/large.c": LARGE,
    }
    corpus = write_corpus(tmp_path / "corpus", irs)
    words = ("--corpus", corpus, "--folds", 2, "--max-bitcode-bytes", 8000, *arguments)
    status, text, records = study("folds", *words)
    assert status == 0 and set(records) == {"fold-0-seed-0", "fold-1-seed-0"}
    held_out = [record["about"]["held_out"] for record in records.values()]
    assert sorted(project for fold in held_out for project in fold) == [
        "four", "one", "three", "two",
    ]  # fmt: skip
    for record in records.values():
        part = record["measured"]["parts"]["heldout"]
        assert "four/large.c" not in part["languages"] and len(part["languages"]) == 2
        assert set(record["measured"]["written"]) == {"learned", "learned without exploration"}
        assert {"default", "always", "cost<-35", "learned/1"} <= set(part["policies"])
    assert "| oracle | " in text and "| three | " in text
    assert (tmp_path / "out" / "savings.svg").exists()
    assert study("folds", *words)[2] == records


@pytest.mark.slow
def test_bc_max_begins_with_what_was_learned(
    arguments, study, no_saved_models, tmp_path, monkeypatch
):
    hedge = "exploring, hedge"
    monkeypatch.setattr(inlining, "ALGORITHMS", {hedge: inlining.ALGORITHMS[hedge]})
    modules = {"one/a.cpp": SAVING, "two/a.cpp": pairs(2), "two/b.c": many_calls(3)}
    for part in ("train", "validation", "heldout"):
        write_corpus(tmp_path / "corpus" / part, modules)
    small = ("--set", "num_chunks=1", "--set", "episodes_per_chunk=1", "--set", "scope=all")
    words = ("--corpus", tmp_path / "corpus", "--rounds", 1, *arguments, *small)
    status, text, records = study("baselines", *words)
    measured = records["seed-0"]["measured"]
    sizes = measured["parts"]["heldout"]["policies"]["ppo"]["sizes"]
    assert status == 0 and set(sizes) == {"one/a.cpp", "two/a.cpp"}
    begun = json.loads((tmp_path / "out/runs/seed-0/exploring-hedge/run.json").read_text())
    assert [path.split("/")[-2:-1] for path in begun["baselines"]] == [[], ["ppo"], ["es"]]
    assert begun["context_weights"] == "hedge" and begun["explore"]
    assert f"| {hedge} | " in text and "| ppo | " in text
    (tmp_path / "out/records/seed-0.json").unlink()
    status, text, _ = study("baselines", *words, "--max-bitcode-bytes", 5)
    assert status == 1 and "expected modules for train, found none small enough" in text
