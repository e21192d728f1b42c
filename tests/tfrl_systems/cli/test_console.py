"""Streams that are closed or full."""

from __future__ import annotations

import subprocess
import sys

import pytest

TFRL = f"{sys.executable} -m tfrl_systems.cli.main"


@pytest.mark.parametrize(
    ("command", "status", "out", "err"),
    [
        ("corpus info nowhere 2>&-", 1, "", ""),
        ("cache info --json 2>&-", 0, '{"caches"', ""),
        ("cache info <&- >&- 2>&-", 0, "", ""),
        ("build --policy default -- echo hi 2>&-", 0, "hi", ""),
        ("cache info | true", 0, "", ""),  # a reader who has seen enough
        ("cache info >/dev/full", 1, "", "tfrl: stdout: expected room for the result, found: No "),
        ("corpus info nowhere 2>/dev/full", 1, "", ""),
    ],
)
def test_streams_that_lead_nowhere(command, status, out, err):
    done = subprocess.run(["bash", "-c", f"{TFRL} {command}"], capture_output=True, text=True)
    assert done.returncode == status
    for text, start in ((done.stdout, out), (done.stderr, err)):
        assert len(text.splitlines()) == bool(start) and text.startswith(start)
