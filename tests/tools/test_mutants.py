"""Mutants are what they say, and are told from those that tests notice."""

from __future__ import annotations

import ast

import pytest

from tools import mutants

CHANGES = [
    ("x = a + b", ["x = a - b"]),
    ("x = 'a' + b", []),
    ("x += [a]", []),
    ("x = a < b", ["x = a <= b"]),
    ("x = a == 0", ["x = a == 1"]),
    ("x = a[True, 3]", []),
    ("x = (a + b).copy()", ["x = a + b", "x = (a - b).copy()"]),
    ("x = list(), list(*a), dict(a, b=c)", []),
    ("f(a, b, c)", ["f(b, a, c)"]),
    ("f(a, *b)", []),
    ("max(a, b)", []),
    ("if a:\n    raise b\nelse:\n    c", ["if False:\n    raise b\nelse:\n    c"]),
    ("if a:\n    b", []),
    ("def f(x: list[a + b]) -> g(a, b):\n    pass", []),
]


@pytest.mark.parametrize(("source", "changed"), CHANGES)
def test_a_mutant_is_one_small_change(source, changed):
    planted = [mutants.plant("a.py", source, number) for number in mutants.places(source)]
    assert sorted(mutant.text for mutant in planted) == sorted(changed)
    assert all(ast.parse(mutant.text) for mutant in planted)


@pytest.mark.ci
def test_a_mutant_is_caught_if_a_test_fails(tmp_path):
    source = "def least_three(x):\n    if x < 3:\n        return 3\n    return x\n"
    (tmp_path / "a.py").write_text(source)
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_a.py").write_text("import a\ndef test(): assert a.least_three(1) == 3")
    assert mutants.passes(tmp_path, ["test_a.py"], 60)
    planted = [mutants.plant("a.py", source, number) for number in mutants.places(source)]
    caught = {
        str(mutant): mutants.is_caught(tmp_path, mutant, ["test_a.py"], 60) for mutant in planted
    }
    # What becomes of 3 itself is not tested, because nothing would differ.
    assert caught == {
        "a.py:2 bound: 'x < 3' -> 'x <= 3'": False,
        "a.py:2 check: 'if x < 3:\\n    return 3' -> 'if False:\\n    return 3'": True,
    }
    assert (tmp_path / "a.py").read_text() == source


def test_places_are_those_of_the_seed_in_any_file(monkeypatch):
    monkeypatch.setattr(mutants, "PACKAGES", ("tfrl_systems/training",))
    drawn = mutants.draw([], 6, 41)
    assert drawn == mutants.draw([], 6, 41) != mutants.draw([], 6, 42)
    assert len({(mutant.path, mutant.change, mutant.line) for mutant in drawn}) == 6
    (own,) = mutants.draw(["tfrl_systems/episodes.py"], 1, 0)
    assert own.path == "tfrl_systems/episodes.py"
