"""Pairs of objects that must be equal are compared."""

from __future__ import annotations

import pytest

from tests.environments.inlining.exploration.test_explore import SAVING
from tests.tools.studies.test_inlining import write_corpus
from tools.studies import exactness

pytestmark = pytest.mark.study


def test_a_module_is_exact_and_others_are_told(study, tmp_path, monkeypatch):
    corpus = write_corpus(tmp_path / "corpus", {"one/a.cpp": SAVING})
    status, text, records = study("exactness", "--corpus", corpus, "--workers", 1)
    measured = records["embedded"]["measured"]
    assert status == 0 and measured["replay_is_recorded"] == measured["num_modules"] == 1
    assert f"| embedded | 1 | {measured['decisions']} | 1 | 1 | 1 |" in text
    wrong = {**measured, "differing": ["one/a.cpp"]}
    assert exactness.EXACTNESS.is_wrong(wrong)
