"""What generated rules contain and save, as small as it can be."""

from __future__ import annotations

import pytest

from tests.environments.tensor_graphs.small_models import adapter, write
from tools.studies import generation, writing

pytestmark = pytest.mark.study


def test_rules_of_one_operator(study, tmp_path):
    model = write(tmp_path / "adapter.onnx", adapter())
    words = ("--vocabulary", "taso matrices", "--size", 1, "--instances", 10)
    words += ("--model", model, "--search", "taso", "--expansions", 5)
    status, text, records = study("generation", *words)
    assert status == 0
    # Of one operator there is 1 x = x alone, which is written too; TASO's operators have no zero.
    generated = records["taso-matrices-1"]["measured"]
    assert (generated["rules"], generated["new"]) == (1, 0)
    places = records["contained-elementwise"]["measured"]["written"]
    assert places["times_one"] == {"operators": True, "small": True, "how": "itself"}
    assert places["plus_zero"] == {"operators": True, "small": True, "how": ""}
    assert "| taso matrices, 1 | " in text and "| elementwise | " in text
    assert f"| {model}, taso | " in text and "written: cost" in text and "both: cost" in text


def test_the_table_of_written_rules_by_hand():
    places = {
        "a": {"operators": False, "small": True, "how": ""},
        "b": {"operators": True, "small": False, "how": "chain"},
        "c": {"operators": True, "small": True, "how": "itself"},
        "d": {"operators": True, "small": True, "how": "chain"},
        "e": {"operators": True, "small": True, "how": ""},
    }
    text = writing.to_markdown(
        generation.GENERATION.tables[1], [{"kind": "compare", "of": "layout", "written": places}]
    )
    # Five rules: one with other operators, one larger and contained; three within reach.
    assert "| layout | 5 | 1 | 1 | 1 | 3 | 1 | 1 | 1 |" in text
    assert "| all | 5 | 1 | 1 | 1 | 3 | 1 | 1 | 1 |" in text
