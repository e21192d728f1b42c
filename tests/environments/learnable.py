"""Modules in which an agent is ahead of chance after seconds."""

from __future__ import annotations

from tests.environments.inlining.exploration.test_explore import SAVING, pairs
from tests.environments.inlining.small_modules import HAND_WORKED, many_calls

MODULES = {
    "one/a.cc": SAVING,
    "two/a.cc": pairs(2),
    "two/b.cc": HAND_WORKED,
    "two/c.c": many_calls(3),
}
