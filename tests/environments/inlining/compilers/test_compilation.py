"""Real faults, for real: each ends in one clear line, and the next module compiles."""

from __future__ import annotations

import pathlib
import time

import psutil
import pytest

from environments.inlining.compilers.compilation import CompilerError
from environments.inlining.compilers.compiler import run_policy
from environments.inlining.compilers.embedded import EmbeddedLlvm
from environments.inlining.compilers.system_clang import SystemClang
from environments.inlining.corpus.modules import Module
from tests.environments.inlining.small_modules import (
    HAND_WORKED_DEFAULT,
    assert_fails_in_one_line,
    default,
    many_calls,
    num_descriptors,
    write_module,
    youngest_compiler,
)


def test_truncated_bitcode(compiler, tmp_path, good):
    whole = write_module(tmp_path, "whole", many_calls(10))
    cut = Module("cut", tmp_path / "cut.bc", ".", "c")
    cut.path.write_bytes(whole.path.read_bytes()[:-700])
    assert_fails_in_one_line(compiler, cut, good, "expected")


def test_bitcode_of_a_newer_llvm(clang_19, tmp_path, good):
    # Written by LLVM 22; "captures" is an attribute that LLVM 20 brought.
    newer = write_module(
        tmp_path, "newer", "define void @f(ptr captures(none) %p) {\n  ret void\n}\n"
    )
    assert_fails_in_one_line(clang_19, newer, good, "clang ended with status 1", "error:")


def test_a_module_that_is_not_there(compiler, tmp_path, good):
    missing = Module("missing", tmp_path / "missing.bc", ".", "c")
    assert_fails_in_one_line(compiler, missing, good, "expected", "o such file")


def test_a_compiler_killed_in_the_middle(compiler, tmp_path, good):
    module = write_module(tmp_path, "module", many_calls(10), text=True)
    message = "module: expected an object, found .* signal 9"
    with compiler.compile(module) as compilation, pytest.raises(CompilerError, match=message):
        for _ in range(3):
            compilation.advise(compilation.next_site().default)
        youngest_compiler().kill()
        while (site := compilation.next_site()) is not None:
            compilation.advise(site.default)
    assert run_policy(compiler, good, default).decisions.tolist() == HAND_WORKED_DEFAULT


def test_a_compile_that_is_left_early(compiler, tmp_path, good):
    module = write_module(tmp_path, "module", many_calls(10), text=True)
    with compiler.compile(module) as compilation:
        compilation.next_site()
        process = youngest_compiler()
    assert not process.is_running()
    assert run_policy(compiler, good, default).decisions.tolist() == HAND_WORKED_DEFAULT


def test_whoever_decides_may_take_longer_than_the_compiler(good):
    compiler = EmbeddedLlvm(timeout_s=2)
    assert compiler.announced

    def think(site):
        time.sleep(0.5)
        return site.default

    assert run_policy(compiler, good, think).decisions.tolist() == HAND_WORKED_DEFAULT
    compiler.close()


# A clang that is like another in all but one thing: what it does once it has been probed.
WRAPPER = """#!/bin/sh
case "$*" in
  *probe.ll*|*--version*) exec CLANG "$@" ;;
esac
FAULT
"""


def faulty(directory: pathlib.Path, clang: SystemClang, fault: str, timeout_s: float):
    path = directory / "faulty-clang"
    path.write_text(WRAPPER.replace("CLANG", clang.executable).replace("FAULT", fault))
    path.chmod(0o755)
    return SystemClang(path, timeout_s=timeout_s)


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


# Opens the channel as LLVM does, announces no features, and says no more.
OPEN_CHANNEL = """
for word in "$@"; do case $word in
  -inliner-interactive-channel-base=*) base=${word#*=} ;;
esac; done
exec 3>"$base.out" 4<"$base.in"
echo '{"features": [], "advice": {"type": "int64_t"}}' >&3
sleep 1000
"""


@pytest.mark.parametrize("fault", ["sleep 1000", OPEN_CHANNEL], ids=["at-once", "in-the-channel"])
def test_a_compiler_that_hangs(clang, tmp_path, good, fault):
    compiler = faulty(tmp_path, clang, fault, timeout_s=0.5)
    before = children()
    with pytest.raises(CompilerError, match="expected an object within 0.5 s, found a compiler"):
        run_policy(compiler, good, default)
    compiler.close()
    assert children() <= before


def test_a_megabyte_on_stderr(clang, tmp_path, good):
    shout = "head -c 1000000 /dev/zero | tr '\\0' '\\n' >&2; head -c 1000000 /dev/zero >&2\n"
    compiler = faulty(tmp_path, clang, shout + f'exec {clang.executable} "$@"', timeout_s=60)
    assert run_policy(compiler, good, default).decisions.tolist() == HAND_WORKED_DEFAULT
    compiler.close()


def test_the_last_words_of_a_failing_compiler_are_told(clang, tmp_path, good):
    fault = "head -c 300000 /dev/zero >&2; echo >&2; printf 'fatal error: no luck' >&2; exit 3"
    compiler = faulty(tmp_path, clang, fault, timeout_s=60)
    with pytest.raises(CompilerError, match="ended with status 3: fatal error: no luck$"):
        run_policy(compiler, good, default)
    compiler.close()


def test_garbage_in_the_channel(clang, tmp_path, good):
    fault = OPEN_CHANNEL.replace("features", "garbage")
    compiler = faulty(tmp_path, clang, fault, timeout_s=60)
    before = children()
    with pytest.raises(CompilerError, match="good: interactive channel: expected a JSON header"):
        run_policy(compiler, good, default)
    compiler.close()
    assert children() <= before


def test_a_clang_that_was_uninstalled(clang, tmp_path, good):
    compiler = faulty(tmp_path, clang, "exit 1", timeout_s=60)
    pathlib.Path(compiler.executable).unlink()
    before = num_descriptors()
    with pytest.raises(CompilerError, match="good: expected .* to start, found"):
        run_policy(compiler, good, default)
    compiler.close()
    assert num_descriptors() <= before
