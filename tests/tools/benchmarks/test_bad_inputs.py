"""Bad inputs end in one line; and what does not is told."""

from __future__ import annotations

import multiprocessing

import pytest

from tests.requirements import needs_root
from tools.benchmarks.bad_inputs import __main__ as bad_inputs
from tools.benchmarks.bad_inputs import verbs
from tools.benchmarks.bad_inputs.case import Case
from tools.benchmarks.bad_inputs.running import _faults_of_text, run


def test_some_bad_inputs_of_each_verb(tmp_path):
    found = bad_inputs.run_all(["corpus info", "rules list"], 0, tmp_path, every=40)
    assert len(found) >= 9
    assert [one for one in found if one.faults] == []


def test_each_verb_has_a_hundred_kinds(tmp_path):
    for name, make_cases in verbs.VERBS.items():
        kinds = [case.what for case in make_cases(0, tmp_path)]
        assert len(kinds) >= 100, name
        assert len(set(kinds)) == len(kinds), name


@pytest.mark.slow
@pytest.mark.parametrize("verb", verbs.VERBS)
def test_bad_inputs(tmp_path, verb):
    found = bad_inputs.run_all([verb], 1, tmp_path)
    assert [one for one in found if one.faults] == []


def _ending(place):
    """Run a command that succeeds and writes a file, and say that it should fail."""
    words = ("rules", "generate", "-o", "out.json", "--vocabulary", "order", "--max-size", "1",
             "--instances", "1", "--seeds", "1", "--without-written")  # fmt: skip
    return run("rules", Case("nothing", words), place, is_fresh=False).faults


def test_a_success_and_a_file_are_faults(tmp_path):
    with multiprocessing.get_context("fork").Pool(1) as pool:
        faults = pool.apply(_ending, (tmp_path / "place",))
    assert faults["wrong status"] == "expected (1,), found 0"
    assert faults["files left"] == "out.json"


def _write(place, other):
    bad_inputs.protect_all_but(place)
    (place / "mine").write_text("")
    try:
        (other / "theirs").write_text("")
    except OSError as error:
        return error.strerror
    return "written"


@needs_root
def test_cases_can_write_below_their_directory_only(tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert pool.apply(_write, (place, tmp_path)) == "Read-only file system"
    assert [one.name for one in tmp_path.rglob("*")] == ["place", "mine"]


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
    assert list(_faults_of_text(said, "", status)) == ([fault] if fault else [])
