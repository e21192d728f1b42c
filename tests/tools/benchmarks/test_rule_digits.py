"""The table of the digits that rules lose."""

from __future__ import annotations

import json

import pytest

from environments.tensor_graphs.rules.verification.digits import RATIOS, Loss
from tools.benchmarks import rule_digits

pytestmark = pytest.mark.study

RULES = [
    {
        "name": "scaled",
        "source": ["(Mul (Sub ?x ?c) ?s)"],
        "target": ["(Sub (Mul ?x ?s) (Mul ?c ?s))"],
    },
    {"name": "turned", "source": ["(Sub ?x ?c)"], "target": ["(Neg (Sub ?c ?x))"]},
]


def test_the_table_has_what_loses_digits(tmp_path, capsys):
    path = tmp_path / "rules.json"
    path.write_text(json.dumps({"rules": RULES}))
    rule_digits.run(rule_digits.parse_arguments([str(path), "--instances", "60"]))
    out = capsys.readouterr().out
    assert "| scaled | 0.0% |" in out and "turned" not in out
    assert "1 of 2 rules, 60 instances of each" in out


def test_a_row_by_hand():
    """Of four instances, one loses a factor of 100, one that of 20; an exact source has none."""
    losses = [Loss(0, 1e3, 1e-3, 1e-1), None, Loss(0, 1e3, 1e-3, 2e-2), Loss(0, 1e3, 0.0, 1.0)]
    found = dict.fromkeys(RATIOS, [None] * 4) | {1e3: losses}
    assert rule_digits.row("name", found) == ["name", "0.0%", "75.0%", "0.0%", "0.0%", "1e+02"]
