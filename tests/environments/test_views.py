"""Values by name, computed on demand."""

from __future__ import annotations

from environments.views import Views


def test_a_value_is_computed_when_it_is_asked_for():
    computed = []
    views = Views({"cost": lambda: computed.append("cost") or len(computed), "dear": lambda: 1 / 0})
    assert list(views) == ["cost", "dear"] and len(views) == 2 and "dear" in views
    assert not computed
    assert (views["cost"], views["cost"]) == (1, 2)
