"""What is around a command: streams that are closed or full, and Ctrl-C at any moment."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys

import pytest

from tfrl_systems.cli import cache, main

TFRL = f"{sys.executable} -m tfrl_systems.cli.main"
INTERRUPTED = (130, "", "tfrl: interrupted\n")


@pytest.mark.parametrize(
    ("command", "status", "out", "err"),
    [
        ("corpus info nowhere 2>&-", 1, "", ""),
        ("cache info --json 2>&-", 0, '{"caches"', ""),
        ("cache info >&-", 0, "", ""),
        ("cache info <&- >&- 2>&-", 0, "", ""),
        ("build --policy default -- echo hi 2>&-", 0, "hi", ""),
        ("cache info >/dev/full", 1, "", "tfrl: stdout: expected room for the result, found: No "),
        ("corpus info nowhere 2>/dev/full", 1, "", ""),
    ],
)
def test_streams_that_lead_nowhere(command, status, out, err):
    done = subprocess.run(["bash", "-c", f"{TFRL} {command}"], capture_output=True, text=True)
    assert done.returncode == status
    for text, start in ((done.stdout, out), (done.stderr, err)):
        assert len(text.splitlines()) == bool(start) and text.startswith(start)


def test_a_user_without_home_and_name():
    """Even the help names a file in the cache."""
    code = """
import os, pwd, sys
os.getuid = lambda: 1 << 30
from tfrl_systems.cli.main import main
sys.exit(main(["doctor", "--help"]))
"""
    environment = {name: value for name, value in os.environ.items() if name != "HOME"}
    environment.pop("XDG_CACHE_HOME", None)
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")


def press(*_):
    """Ctrl-C."""
    signal.raise_signal(signal.SIGINT)


def press_while_something_loads(_):
    """Whose import says so in its own way."""
    try:
        press()
    except KeyboardInterrupt:
        raise ImportError("cannot import name 'half' from partially initialised module") from None


@pytest.mark.parametrize("run", [press, press_while_something_loads])
def test_ctrl_c_in_a_verb(tfrl, run, default_signals, monkeypatch):
    monkeypatch.setattr(cache, "run_info", run)
    ran = tfrl("cache", "info")
    assert (ran.status, ran.out, ran.err) == INTERRUPTED
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_before_the_command_line_is_read(tfrl, default_signals, monkeypatch):
    monkeypatch.setattr(importlib, "import_module", press)
    ran = tfrl("cache", "info")
    assert (ran.status, ran.out, ran.err) == INTERRUPTED


def test_an_error_is_no_interruption(tfrl, default_signals, monkeypatch):
    def fail(_):
        raise ImportError("a fault of ours")

    monkeypatch.setattr(cache, "run_info", fail)
    with pytest.raises(ImportError, match="a fault of ours"):
        tfrl("cache", "info")


def test_an_ignored_ctrl_c_stays_ignored(tfrl, default_signals, monkeypatch):
    """As under nohup."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    monkeypatch.setattr(cache, "run_info", lambda _: press() or 0)
    assert tfrl("cache", "info").status == 0
    assert main.signal.getsignal(signal.SIGINT) is signal.SIG_IGN
