"""The margin of a compile comes from its environment: one plugin serves all of them."""

from __future__ import annotations

import pytest

from environments.inlining.plugin.source import heuristic_source
from tests.environments.inlining.small_modules import HAND_WORKED, HAND_WORKED_DEFAULT

# A policy that departs everywhere as long as its margin is below 5; its own is 5.
SOURCE = (
    heuristic_source("never")
    .replace("HasMargin = false", "HasMargin = true")
    .replace("OwnMargin = 0", "OwnMargin = 5")
    .replace("bool LlvmInlines, std::int64_t", "bool LlvmInlines, std::int64_t Margin")
    .replace("return false", "return Margin < 5 ? !LlvmInlines : LlvmInlines")
)
EXPECTED = "TFRL_INLINING_MARGIN: expected a whole number from -2^31 to 2^31, found "


def test_a_margin_takes_the_place_of_the_policys_own(compile_by):
    for text, margin, departs in (
        ("", 5, False),
        ("5", 5, False),
        ("4", 4, True),
        ("-2147483648", -(2**31), True),
        ("2147483648", 2**31, False),
    ):
        _, log, stderr = compile_by(HAND_WORKED, SOURCE, TFRL_INLINING_MARGIN=text)
        assert (log["steered"], log["margin"], stderr) == (True, margin, "")
        assert (log["departures"] > 0) == departs
        assert departs or log["decisions"] == len(HAND_WORKED_DEFAULT)


@pytest.mark.parametrize("clang", ["clang-22"], indirect=True)
def test_what_is_no_margin_is_said_and_llvm_decides(compile_by):
    plain = compile_by(HAND_WORKED, "").data
    texts = ("x", "1.5", " 1", "1 ", "0x1", "+1", "--1", "2147483649", "9" * 30, '"\n7')
    for text in texts:
        steered, log, stderr = compile_by(HAND_WORKED, SOURCE, TFRL_INLINING_MARGIN=text)
        assert steered == plain
        shown = text.replace("\n", " ")
        assert not log["steered"] and log["reason"] == f"{EXPECTED}{shown}; until it is unset"
        assert f"warning: {log['reason']}, LLVM decides\n" in stderr
    _, log, _ = compile_by(HAND_WORKED, "never", TFRL_INLINING_MARGIN="5")
    assert not log["steered"] and "this policy has no margin" in log["reason"]
