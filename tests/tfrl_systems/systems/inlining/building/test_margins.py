"""tfrl.margins: what one build finds out, and what later ones read."""

from __future__ import annotations

import json

import pytest

from environments.errors import UserError
from environments.inlining.heuristics import make_heuristic
from tests.tfrl_systems.systems.inlining import decision_rows
from tfrl_systems.reporting import Reporter
from tfrl_systems.systems.inlining.building.margins import (
    FILE,
    PLAIN,
    Margin,
    own_margin,
    read,
    write,
)
from tfrl_systems.systems.inlining.policy.decision_policy import to_numpy


class Listener(Reporter):
    """Keeps what is said."""

    def __init__(self):
        self.lines = []

    def say(self, message):
        self.lines.append(message)


@pytest.fixture(scope="module")
def policy():
    return to_numpy(decision_rows.trained())  # its margin is 0.3


def test_margins_are_exact():
    assert [Margin(0.3).steps, Margin(-0.5).steps] == [5033165, -(2**23)]  # 0.3 * 2**24, rounded
    assert [Margin(0.3, is_own=True).steps, PLAIN.steps] == [None, None]
    assert [str(Margin(0.3, is_own=True)), str(Margin(-0.5)), str(PLAIN)] == [
        "0.3 (own)",
        "-0.5",
        "plain",
    ]


def test_policies_without_a_margin(policy):
    assert own_margin(policy) == Margin(0.3, is_own=True)
    assert own_margin(policy.with_margins(1e6)) == Margin(128.0, is_own=True)
    own = own_margin(make_heuristic("never"))
    assert own == Margin(None, is_own=True) and not own.is_plain


@pytest.mark.parametrize("margin", [Margin(0.3, is_own=True), Margin(1 / 3), PLAIN])
def test_what_is_written_is_read(policy, tmp_path, margin):
    (tmp_path / "b").mkdir()
    write(tmp_path, policy, Margin(7.0), {})
    path = write(tmp_path / "b", policy, margin, {"image_bytes": 5})
    listener = Listener()
    # The deeper directory counts.
    assert read([tmp_path, tmp_path / "b"], policy, listener) == margin
    assert len(listener.lines) == 1 and path in listener.lines[0]


def test_without_a_file_or_with_another_policys_the_own_margin_holds(policy, tmp_path):
    listener = Listener()
    assert read([tmp_path], policy, listener) == own_margin(policy)
    write(tmp_path, policy.with_margins(2.0), Margin(7.0), {})
    assert listener.lines == []
    assert read([tmp_path], policy, listener) == own_margin(policy)
    assert [line.split(" ", 1)[1] for line in listener.lines] == [
        "is of another policy and is ignored; --tune makes one for this"
    ]


@pytest.mark.parametrize(
    "damage",
    [
        "",
        {"version": 2},
        {"policy": 3},
        {"margin": True},
        {"margin": 129},
        {"margin": float("nan")},
        {"margin": ...},
    ],
)
def test_a_damaged_file_is_named(policy, tmp_path, damage):
    path = tmp_path / FILE
    write(tmp_path, policy, PLAIN, {})
    if isinstance(damage, str):
        path.write_text(damage)
    else:
        fields = {**json.loads(path.read_text()), **damage}
        path.write_text(json.dumps({k: v for k, v in fields.items() if v is not ...}))
    with pytest.raises(UserError, match=f"{path}: expected what .* --tune writes, found .*remove"):
        read([tmp_path], policy, Reporter())
