"""Compilers that make bitcode: which are taken, and how one ends that fails."""

from __future__ import annotations

import contextlib
import os
import signal
import stat
import subprocess
import sys
import time

import pytest

from environments.errors import UserError
from environments.inlining.corpus import bitcode_compilers
from environments.inlining.corpus.bitcode_compilers import CompilerProcesses, find_compiler
from tests.environments.inlining.small_modules import write_script


def test_killed_compiler_is_reported(tmp_path):
    processes = CompilerProcesses()
    run = processes.run(["/bin/sh", "-c", "kill -SEGV $$"], tmp_path, tmp_path, 10)
    assert run.error == "killed by SIGSEGV"
    processes.close()
    assert processes.run(["/bin/true"], tmp_path, tmp_path, 10).error == "the build was stopped"


def test_compiler_that_prints_megabytes_does_not_block(tmp_path):
    loud = (
        "head -c 3000000 /dev/zero | tr '\\0' x >&2; echo; echo 'a.c:1:2: error: loud' >&2; exit 1"
    )
    run = CompilerProcesses().run(["/bin/sh", "-c", loud], tmp_path, tmp_path, 30)
    assert run.error and len(run.error) <= 500


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (None, "found no program"),
        ("echo no clang", "found 'no clang'"),
        ("exit 1", "a clang that runs"),
        ("echo Debian clang version 14.0.6", "found 'Debian clang version 14.0.6'"),
    ],
)
def test_unusable_compilers(tmp_path, script, message):
    program = tmp_path / "clang"
    if script is not None:
        write_script(program, script)
    with pytest.raises(UserError, match=message):
        find_compiler(str(program))


def test_missing_embedded_compiler_says_what_to_install(monkeypatch):
    monkeypatch.setattr(bitcode_compilers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install ziglang"):
        find_compiler()


def test_a_build_that_is_killed_as_it_asks_a_compiler_leaves_nothing(tmp_path):
    scratch, begun = tmp_path / "scratch", tmp_path / "begun"
    scratch.mkdir()
    script = f'touch "$TMPDIR/x"\necho $$ > {begun}\nexec sleep 1000'
    program = write_script(tmp_path / "clang", script)
    code = f"from {bitcode_compilers.__name__} import *; find_compiler({str(program)!r})"
    environment = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen([sys.executable, "-c", code], env=environment) as build:
        while not begun.exists() or not begun.read_text():
            assert build.poll() is None
            time.sleep(0.02)
        (directory,) = scratch.glob("*/*")
        assert stat.S_IMODE(directory.stat().st_mode) == 0o700 and (directory / "x").exists()
        build.kill()
    deadline_s = time.monotonic() + 60
    while list(scratch.iterdir()):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)
    with contextlib.suppress(ProcessLookupError):  # Mostly it has been ended, too.
        os.kill(int(begun.read_text()), signal.SIGKILL)
