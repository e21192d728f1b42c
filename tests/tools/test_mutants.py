"""Mutants are what they say, and are told from those that tests notice."""

from __future__ import annotations

import ast

import pytest

from tools import mutants

CHANGES = [
    ("x = a + b", ["x = a - b"]),
    ("x -= y", ["x += y"]),
    ("x = 'a' + b", []),
    ("x += [a]", []),
    ("x = a < b", ["x = a <= b"]),
    ("x = a >= b", ["x = a > b"]),
    ("x = a == 0", ["x = a == 1"]),
    ("x = a[True, 3]", []),
    ("x = (a + b).copy()", ["x = a + b", "x = (a - b).copy()"]),
    ("x = np.array(a or b)", ["x = a or b"]),
    ("x = list(), list(*a), dict(a, b=c)", []),
    ("f(a, b, c)", ["f(b, a, c)"]),
    ("f(a, *b)", []),
    ("f(a, a)", []),
    ("max(a, b)", []),
    ("if a:\n    return b", ["if False:\n    return b"]),
    ("if a:\n    raise b\nelse:\n    c", ["if False:\n    raise b\nelse:\n    c"]),
    ("if a:\n    b", []),
    ("def f(x: list[a + b]) -> g(a, b):\n    pass", []),
]


@pytest.mark.parametrize(("source", "changed"), CHANGES)
def test_a_mutant_is_one_small_change(source, changed):
    planted = [mutants.plant("a.py", source, number) for number in mutants.places(source)]
    assert sorted(mutant.text for mutant in planted) == sorted(changed)
    assert all(ast.parse(mutant.text) for mutant in planted)


def test_a_mutant_is_caught_if_a_test_fails(tmp_path):
    source = "def clamp(x):\n    if x < 0:\n        return 0\n    return x\n"
    (tmp_path / "a.py").write_text(source)
    (tmp_path / "pytest.ini").touch()
    (tmp_path / "test_a.py").write_text("import a\ndef test(): assert a.clamp(-1) == 0")
    assert mutants.passes(tmp_path, ["test_a.py"], 60)
    planted = [mutants.plant("a.py", source, number) for number in mutants.places(source)]
    caught = {
        str(mutant): mutants.is_caught(tmp_path, mutant, ["test_a.py"], 60) for mutant in planted
    }
    # Whether 0 itself is clamped is not tested, because nothing would differ.
    assert caught == {
        "a.py:2 bound: 'x < 0' -> 'x <= 0'": False,
        "a.py:2 bound: '0' -> '1'": False,
        "a.py:2 check: 'if x < 0:\\n    return 0' -> 'if False:\\n    return 0'": True,
        "a.py:3 bound: '0' -> '1'": True,
    }
    assert (tmp_path / "a.py").read_text() == source
