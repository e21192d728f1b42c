"""Questions to a process that has ended, buried or not."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil

from tests.processes import is_alive, unless_ended, wait_for_end


def test_a_process_that_ends_before_it_is_asked():
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    process = psutil.Process(child.pid)
    assert is_alive(process) and "input()" in unless_ended(process.cmdline, [])
    child.stdin.close()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert_ended(process)
    child.wait()
    assert_ended(process)


def assert_ended(process: psutil.Process) -> None:
    assert unless_ended(process.cmdline, []) == [] and not is_alive(process)
    wait_for_end([process])
