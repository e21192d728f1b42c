"""Savings of inlining's policies, worked by hand."""

from __future__ import annotations

import collections

import pytest

from tools.studies import inlining, savings, writing

# Code 10% smaller, all that is loaded 12.5%, the file as large as the default's.
IMAGE = {
    **{"project": "p", "text_bytes": 90, "unwind_bytes": 20, "rodata_bytes": 30, "file_bytes": 200},
    **{"default_text_bytes": 100, "default_unwind_bytes": 30, "default_rodata_bytes": 30},
    "default_file_bytes": 200,
}
MODULES = {"p/a.cpp": "c++", "p/b.cpp": "c++", "q/a.c": "c"}
FIRST = {
    "default": [(100, 50), (100, 60), (200, 100)],
    "cost<-5": [(110, 40), (90, 60), (200, 100)],
    "learned/1": [(95, 45), (100, 60), (200, 100)],
    "learned/2": [(80, 40), (105, 66), (180, 80)],
}
SECOND = {**FIRST, "learned/2": [(90, 45), (110, 60), (200, 100)]}


def part(sizes):
    """A part's modules and policies; sizes are (text, code) by policy, in the modules' order."""
    policies = {
        name: {"sizes": dict(zip(MODULES, map(list, pairs), strict=False)), "images": [IMAGE]}
        for name, pairs in sizes.items()
    }
    return {"languages": MODULES, "policies": policies}


def record(seed, sizes):
    """One fold's record."""
    return {"seed": seed, "written": {"learned": 2}, "parts": {"heldout": part(sizes)}}


RECORDS = [record(0, FIRST), record(1, SECOND)]


def of_policy(records, policy, language):
    rows = {(row["policy"], row["language"]): row for row in savings.of_languages(records)}
    return rows[policy, language]


def test_savings_by_language():
    learned = of_policy(RECORDS[:1], "learned", "C++")
    assert learned["text_percent"] == pytest.approx(7.5) and learned["modules"] == 2
    assert learned["code_percent"] == pytest.approx(100 * 4 / 110) and learned["worse"] == 1
    assert of_policy(RECORDS[:1], "learned", "C")["code_percent"] == pytest.approx(20)
    never_worse = of_policy(RECORDS[:1], "learned, --never-worse", "C++")
    assert (never_worse["text_percent"], never_worse["worse"]) == (pytest.approx(10), 0)
    # The oracle has 80 of a by learning, 90 of b by a threshold, 180 of the C module by learning.
    assert of_policy(RECORDS[:1], "oracle", "C++")["text_percent"] == pytest.approx(15)
    assert of_policy(RECORDS[:1], "oracle", "C")["text_percent"] == pytest.approx(10)


def test_a_policy_that_cannot_compile_a_module():
    failed = record(0, FIRST)
    del failed["parts"]["heldout"]["policies"]["cost<-5"]["sizes"]["p/a.cpp"]
    figures = of_policy([failed], "cost<-5", "C++")
    assert (figures["modules"], figures["text_percent"]) == (1, pytest.approx(10))
    assert of_policy([failed], "learned", "C++")["modules"] == 2


def test_folds_of_a_seed_are_added_up():
    """Twice the same fold under other names saves the same share of twice the modules."""
    copy = record(0, FIRST)
    part = copy["parts"]["heldout"]
    part["languages"] = {f"other/{name}": language for name, language in MODULES.items()}
    for policy in part["policies"].values():
        policy["sizes"] = {f"other/{name}": size for name, size in policy["sizes"].items()}
    figures = of_policy([RECORDS[0], copy], "learned", "C++")
    assert (figures["modules"], figures["text_percent"]) == (4, pytest.approx(7.5))


def test_the_tables_of_folds():
    languages, images = (writing.to_markdown(table, RECORDS) for table in inlining.FOLDS.tables)
    cells = "3.75 (0.00..7.50) | 4.09 (3.64..4.55) | 1 | 2 | 5.00 (0.00..10.00) | "
    assert f"| learned | {cells}10.00 (0.00..20.00) | 0 | 1 |" in languages
    assert "| p | 10.00 | 12.50 | 0.00 |" in images


def test_points_of_the_curves():
    points = list(savings.points(RECORDS[:1]))
    lines = collections.defaultdict(list)
    for point in points:
        lines[point["panel"], point["line"]].append(point["value"])
    # All three modules: 400 bytes by default, 395 after one iteration, 365 after two.
    assert lines["held-out modules", "learned"] == pytest.approx([0, 1.25, 8.75])
    # The oracle keeps b of the first iteration.
    assert lines["held-out modules", "oracle of learned"] == pytest.approx([0, 1.25, 10])
    assert lines["held-out projects, linked", "learned"] == pytest.approx([12.5] * 3)


def begun(seed, last):
    """The record of a training that began with PPO and ES, on the two modules of C++."""
    sizes = {
        "default": [(100, 50)] * 2,
        "ppo": [(80, 40), (110, 55)],
        "es": [(120, 60), (90, 45)],
        "exploring/1": [(90, 45), (100, 50)],
        "exploring/2": last,
    }
    parts = {"train": part(sizes), "heldout": part(sizes)}
    return {"seed": seed, "written": {"exploring": 2}, "parts": parts, "begin": ["ppo", "es"]}


def test_the_table_of_baselines():
    records = [begun(0, [(70, 35), (100, 50)]), begun(1, [(90, 45), (90, 45)])]
    text = writing.to_markdown(inlining.BASELINES.tables[0], records)
    assert "| oracle | 15.00 | 15.00 | 15.00 | 0.0 | 2 |  |  |" in text
    assert "| exploring | 12.50 (10.00..15.00) | 12.50 (10.00..15.00) |" in text
    assert "| ppo | 5.00 | 5.00 | 5.00 | 1.0 | 2 | 12.50 | 0.00 |" in text
