"""The leave-projects-out tables: figures worked by hand, and a run on a tiny corpus."""

from __future__ import annotations

import json

import pytest

from environments.errors import UserError
from environments.inlining.corpus.modules import DESCRIPTION_FILE, Corpus, Module
from tests.environments.inlining.exploration.test_explore import SAVING, pairs
from tests.environments.inlining.small_modules import many_calls, write_module
from tools.benchmarks import inlining_causes, inlining_folds, inlining_report, inlining_tables

pytestmark = pytest.mark.study

# Code 10% smaller, all that is loaded 12.5%, the file as large as the default's.
IMAGE = {
    **{"project": "p", "text_bytes": 90, "unwind_bytes": 20, "rodata_bytes": 30, "file_bytes": 200},
    **{"default_text_bytes": 100, "default_unwind_bytes": 30, "default_rodata_bytes": 30},
    "default_file_bytes": 200,
}
ABOUT = {"command": "python -m it", "commit": "abc", "left_out": {"z/large.c": 700_000}}


def record(seed, fold, modules, sizes):
    """One fold's record; sizes are (text, code) by policy, in the order of `modules`."""

    def by_module(pairs_of_sizes):
        return dict(zip(modules, map(list, pairs_of_sizes), strict=True))

    fixed = {name: by_module(sizes[name]) for name in ("default", "cost<-5")}
    return {
        "fold": fold,
        "seed": seed,
        "iterations": 1,
        "settings": {"compiler": "llvm", "corpus_sha256": "00"},
        "projects": sorted({name.split("/")[0] for name in modules}),
        "baselines": ["default", "cost<-5", "cost<-20"],
        "modules": {
            name: {"project": name.split("/")[0], "language": "c" if name[-1] == "c" else "c++"}
            for name in modules
        },
        "failures": {},
        "sizes": {
            "fixed": fixed,
            "explored": by_module(sizes["explored"]),
            "learned": [by_module(sizes["learned"])],
            "learned without exploration": [by_module(sizes["default"])],
        },
        "images": [[IMAGE]],
        "seconds": 30.0,
    }


FIRST = {
    "default": [(100, 50), (100, 60), (200, 100)],
    "cost<-5": [(110, 40), (90, 60), (200, 100)],
    "explored": [(70, 30), (95, 60), (200, 100)],
    "learned": [(80, 40), (105, 66), (180, 80)],
}
SECOND = {**FIRST, "learned": [(90, 45), (110, 60), (200, 100)]}
NAMES = ["p/a.cpp", "p/b.cpp", "q/a.c"]
RECORDS = [record(0, 0, NAMES, FIRST), record(1, 0, NAMES, SECOND)]


def test_savings_by_hand():
    one = inlining_report.saving(RECORDS[:1], "learned", 1, language="c++")
    assert one == inlining_report.Saving(2, pytest.approx(7.5), pytest.approx(100 * 4 / 110), 1)
    assert inlining_report.saving(RECORDS[:1], "learned", 1, project="q").exec_percent == (
        pytest.approx(20)
    )
    assert inlining_report.saving(RECORDS[:1], "learned", 1, project="none") is None
    never_worse = inlining_report.saving(RECORDS[:1], "learned --never-worse", 1, language="c++")
    assert (never_worse.text_percent, never_worse.worse) == (pytest.approx(10), 0)


def test_the_oracle_takes_the_best_of_what_it_met():
    def oracle(iteration):
        return inlining_report.policies_of(RECORDS[0], iteration)["oracle"]

    # Before any iteration the baselines; cost<-5 has b. Then exploration has a, and learning q/a.
    assert [oracle(0)[name][0] for name in NAMES] == [100, 90, 200]
    assert [oracle(1)[name][0] for name in NAMES] == [70, 90, 180]


def test_a_policy_that_cannot_compile_a_module(tmp_path):
    failed = record(0, 0, NAMES, FIRST)
    del failed["sizes"]["fixed"]["cost<-5"]["p/a.cpp"]
    found = inlining_report.saving([failed], "cost<-5", 1, language="c++")
    assert (found.modules, found.text_percent) == (1, pytest.approx(10))
    assert inlining_report.saving([failed], "learned", 1, language="c++").modules == 2
    inlining_report.write([failed], ABOUT, tmp_path)
    assert "| `cost<-5` (on 2 of 3) |" in (tmp_path / "table.md").read_text()


def test_spread_over_seeds():
    found = inlining_report.spread(RECORDS, "learned", 1, language="c++")
    assert found["text_percent"] == inlining_report.Spread(*map(pytest.approx, (3.75, 0, 7.5)))
    assert found["worse"].show(1) == "1.0"
    assert inlining_report.Spread(1.5, 1, 2).show(1) == "1.5 (1.0..2.0)"


def test_the_report(tmp_path):
    inlining_report.write(RECORDS, ABOUT, tmp_path)
    text = (tmp_path / "table.md").read_text()
    cells = (
        "3.75 (0.00..7.50) | 4.09 (3.64..4.55) | 1 | 5.00 (0.00..10.00) | 10.00 (0.00..20.00) | 0"
    )
    assert f"| `learned` | {cells} |" in text
    assert "z/large.c" in text and "`python -m it` at commit abc" in text
    assert "| p | 10.00 | 12.50 | 0.00 |" in text and "| c++ | 1 | 10.00 | 12.50 | 0.00 |" in text
    table = json.loads((tmp_path / "table.json").read_text())
    assert table["seeds"] == [0, 1] and table["folds"] == [["p", "q"]]
    lines = {(one["language"], one["line"]): one["text_percent"] for one in table["curves"]}
    assert [one["mean"] for one in lines["c++", "learned"]] == [0, pytest.approx(3.75)]
    assert (tmp_path / "savings.png").read_bytes()[:4] == b"\x89PNG"
    first = (tmp_path / "savings.svg").read_bytes()
    inlining_report.write(RECORDS, ABOUT, tmp_path)
    assert (tmp_path / "savings.svg").read_bytes() == first


@pytest.fixture
def modules(tmp_path):
    sizes = {"a": ("c++", 90), "b": ("c++", 60), "c": ("c++", 40), "d": ("c", 5), "e": ("c", 9)}
    made = []
    for project, (language, size_bytes) in sizes.items():
        path = tmp_path / project
        path.write_bytes(b"0" * size_bytes)
        made.append(Module(f"{project}/m", path, project, language))
    return made


def test_folds_are_even_in_each_language(modules):
    # C++: 90 | 60 + 40; C: the larger first, to the fold with fewer projects so far.
    assert inlining_folds.make_folds(modules, 2) == (("a", "e"), ("b", "c", "d"))
    folds = inlining_folds.make_folds(modules, 5)
    assert sorted(project for fold in folds for project in fold) == list("abcde")
    for num_folds in (1, 6):
        with pytest.raises(UserError, match="expected from 2 to 5"):
            inlining_folds.make_folds(modules, num_folds)


@pytest.fixture
def corpus(tmp_path):
    directory = tmp_path / "corpus"
    irs = {
        "one/a.cpp": SAVING,
        "two/a.cpp": pairs(2),
        "three/a.c": SAVING + many_calls(2).replace("declare void @sink(i32)\n", ""),
        "four/a.c": pairs(1),
        "four/large.c": pairs(1) + f'@data = global [9000 x i8] c"{"x" * 9000}"\n',
    }
    for name, ir in irs.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        write_module(directory, name, ir)
    description = {"modules": list(irs), "has_thinlto": False}
    (directory / DESCRIPTION_FILE).write_text(json.dumps(description))
    assert len(Corpus.load(directory).modules) == len(irs)
    return directory


def arguments_of(corpus, output, *more):
    arguments = ["--corpus", str(corpus), "--output", str(output), "--folds", "2", "--seeds", "1"]
    arguments += ["--cache", str(output / "cache.db"), "--max-bitcode-bytes", "8000"]
    arguments += ["--workers", "1"]
    learner = ("model=trees", "num_models=1", "num_trees=5", "min_samples_leaf=1")
    # The corpus has no inline functions of C++, which are the scope.
    for setting in ("scoped=false", *learner):
        arguments += ["--set", setting]
    return inlining_tables.parse_arguments([*arguments, *more])


def run(corpus, output, *more):
    inlining_tables.run(arguments_of(corpus, output, *more))
    return json.loads((output / "table.json").read_text())


def test_a_tiny_corpus(corpus, no_saved_models, tmp_path, capsys):
    output = tmp_path / "tables"
    table = run(corpus, output, "--iterations", "1")
    check_table(table)
    runs = sorted(path.name for path in (output / "runs").iterdir())
    assert runs[:2] == ["fold-1-seed-0-learned", "fold-1-seed-0-learned-without-exploration"]
    # Finished: nothing is done again.
    capsys.readouterr()
    again = run(corpus, output, "--iterations", "1")
    assert "iteration" not in capsys.readouterr().err
    assert again["policies"] == table["policies"] and again["seconds"] == table["seconds"]


def check_table(table):
    assert list(table["left_out"]) == ["four/large.c"] and table["failures"] == {}
    assert {len(fold) for fold in table["folds"]} == {2}
    policies = {one["policy"]: one["languages"] for one in table["policies"]}
    assert {"learned", "oracle", "default", "always", "never", "cost<-35"} <= set(policies)
    assert [policies["default"][one]["modules"] for one in ("c++", "c")] == [2, 2]
    assert policies["default"]["c"]["text_percent"]["mean"] == 0
    assert policies["oracle"]["c++"]["text_percent"]["mean"] > 0
    assert set(table["images"]["projects"]) == {"one", "two", "three", "four"}


@pytest.mark.slow
def test_a_tiny_corpus_for_longer(corpus, tmp_path, capsys):
    """Going on: what is finished is kept, and the longer run ends as if it had been one."""
    output = tmp_path / "tables"
    check_table(run(corpus, output, "--iterations", "1"))
    longer = run(corpus, output, "--iterations", "2")
    assert "iteration 1 (kept)" in capsys.readouterr().err
    assert [len(one["text_percent"]) for one in longer["curves"]] == [3] * 6
    # Finished: nothing is done again.
    again = run(corpus, output, "--iterations", "2")
    assert "iteration" not in capsys.readouterr().err
    assert again["policies"] == longer["policies"] and again["seconds"] == longer["seconds"]


def test_other_settings_need_another_directory(corpus, tmp_path):
    output = tmp_path / "tables"
    (output / "folds").mkdir(parents=True)
    kept = {"settings": {"compiler": "another"}, "iterations": 2}
    (output / "folds" / "fold-1-seed-0.json").write_text(json.dumps(kept))
    with pytest.raises(UserError, match="name another directory with --output"):
        run(corpus, output)


def test_what_a_project_saves_by_hand():
    costs = {"p": {"a": 80.0, "b": 50.0}, "q": {"c": 10.0}, "new": {"d": 1.0}}
    of_default = {"p": {"a": 100.0, "b": 60.0, "failed": 9.0}, "q": {"c": 8.0}}
    savings = inlining_causes.saving_by_project(costs, of_default)
    assert savings == {"p": pytest.approx(100 * 30 / 160), "q": -25}


def test_each_part_left_out_in_turn(corpus, no_saved_models, tmp_path, monkeypatch, capsys):
    parts = {"as it is": {}, "single changes alone": {"joint_rounds": 0}}
    monkeypatch.setattr(inlining_causes, "PARTS", parts)
    options = arguments_of(corpus, tmp_path / "causes", "--iterations", "1")
    inlining_causes.run(options)
    table = json.loads((tmp_path / "causes" / "table.json").read_text())
    assert [line["part"] for line in table["lines"]] == list(parts)
    for line in table["lines"]:
        # Two C++ projects, each held out once: what is written saves at least what the worst does.
        assert len(line["written"]) == len(line["fitted"]) == 1
        assert line["least"][0] <= line["written"][0] == line["fitted"][0]
    assert "| single changes alone | " in (tmp_path / "causes" / "table.md").read_text()
    assert "iteration 1" in capsys.readouterr().err
    inlining_causes.run(options)
    assert "iteration 1" not in capsys.readouterr().err
    again = json.loads((tmp_path / "causes" / "table.json").read_text())
    assert again["lines"] == table["lines"]
