"""Bad inputs end in one line; and what does not is told."""

from __future__ import annotations

import multiprocessing
from concurrent import futures

import pytest

from tests.requirements import needs_root
from tools.studies.bad_inputs import campaign
from tools.studies.bad_inputs.damage import Damage
from tools.studies.bad_inputs.table import ROWS, Case, Row, cases


def in_a_fork(function, *arguments):
    """Call a function in a process that may change what is a process's own."""
    with futures.ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
        return pool.submit(function, *arguments).result()


@pytest.mark.parametrize("verb", ["corpus info", "rules list"])
def test_some_bad_inputs(verb, study):
    _, _, records = study("bad_inputs", "--verb", verb, "--every", 60)
    measured = records[verb.replace(" ", "-")]["measured"]
    assert measured["cases"] >= 3 and measured["wrong"] == []


def test_each_verb_has_a_hundred_kinds():
    for verb in ROWS:
        kinds = [case.what for case in cases(verb, 0)]
        assert len(kinds) >= 100, verb
        assert len(set(kinds)) == len(kinds), verb


@pytest.mark.slow
@pytest.mark.parametrize("verb", ROWS)
def test_bad_inputs(study, verb):
    _, _, records = study("bad_inputs", "--verb", verb, "--seed", 1)
    assert records[verb.replace(" ", "-")]["measured"]["wrong"] == []


def test_a_success_and_a_file_are_faults(tmp_path):
    words = "rules generate -o out.json --vocabulary order --max-size 1 --instances 1 --seeds 1"
    case = Case(Row(f"{words} --without-written"), Damage("", None))
    faults = in_a_fork(campaign.run, case, tmp_path / "place")["faults"]
    assert faults["wrong status"] == "expected (1,), found 0"
    assert faults["files left"] == "out.json"


def _write(place, outside):
    campaign.protect_all_but(place)
    (place / "mine").write_text("")
    try:
        (outside / "theirs").write_text("")
    except OSError as error:
        return error.strerror
    return "written"


@needs_root
def test_cases_can_write_below_their_directory_only(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    assert in_a_fork(_write, place, tmp_path) == "Read-only file system"
    assert [path.name for path in tmp_path.rglob("*")] == ["place", "mine"]


@pytest.mark.parametrize(
    ("said", "status", "fault"),
    [
        ("tfrl: expected a, found b; do c\n", 1, ""),
        ("reading\ntfrl: expected a, found b; do c\n", 1, ""),
        ("usage: tfrl [-h]\ntfrl rules list: error: no option\n", 2, ""),
        ("tfrl: one\ntfrl: two\n", 1, "not one line"),
        ("tfrl: one\nand more\n", 1, "not one line"),
        ("", 1, "not one line"),
        ("Traceback (most recent call last):\nValueError\n", 1, "tracebacks"),
    ],
)
def test_one_line_is_the_last_and_the_programs_own(said, status, fault):
    assert list(campaign.faults_of_text(said, "", status)) == ([fault] if fault else [])
