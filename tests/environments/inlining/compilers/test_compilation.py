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
    write_script,
    youngest_compiler,
)


def test_truncated_and_missing_bitcode(compiler, tmp_path, good):
    whole = write_module(tmp_path, "whole", many_calls(10))
    cut = Module("cut", tmp_path / "cut.bc", ".", "c")
    cut.path.write_bytes(whole.path.read_bytes()[:-700])
    assert_fails_in_one_line(compiler, cut, good, "expected")
    missing = Module("missing", tmp_path / "missing.bc", ".", "c")
    assert_fails_in_one_line(compiler, missing, good, "expected", "o such file")


def test_a_compiler_killed_in_the_middle_and_one_that_is_left_early(compiler, tmp_path, good):
    module = write_module(tmp_path, "module", many_calls(10), text=True)
    message = "module: expected an object, found .* signal 9"
    with compiler.compile(module) as compilation, pytest.raises(CompilerError, match=message):
        for _ in range(3):
            compilation.advise(compilation.next_site().default)
        youngest_compiler().kill()
        while (site := compilation.next_site()) is not None:
            compilation.advise(site.default)
    assert run_policy(compiler, good, default).decisions.tolist() == HAND_WORKED_DEFAULT
    with compiler.compile(module) as compilation:
        compilation.next_site()
        process = youngest_compiler()
    assert not process.is_running()
    assert run_policy(compiler, good, default).decisions.tolist() == HAND_WORKED_DEFAULT


def test_nothing_is_leaked(compiler, good):
    run_policy(compiler, good, default)
    compiler.compile_plain(good)
    descriptors, memory_bytes = num_descriptors(), memory_of_children()
    for _ in range(20):
        run_policy(compiler, good, default)
        compiler.compile_plain(good)
    assert num_descriptors() <= descriptors
    assert memory_of_children() - memory_bytes < 20 << 20


def test_whoever_decides_may_take_longer_than_the_compiler(good):
    compiler = EmbeddedLlvm(timeout_s=2)
    assert compiler.announced

    def think(site):
        time.sleep(0.5)
        return site.default

    assert run_policy(compiler, good, think).decisions.tolist() == HAND_WORKED_DEFAULT
    compiler.close()


# A clang that is like another in all but one thing: what it does once it has been probed.
WRAPPER = """
case "$*" in
  *probe.ll*|*--version*) exec CLANG "$@" ;;
esac
FAULT
"""


@pytest.fixture
def make_faulty(tmp_path, clang_19):
    compilers = []

    def make(fault: str, timeout_s: float = 60) -> SystemClang:
        script = WRAPPER.replace("FAULT", fault).replace("CLANG", clang_19.executable)
        path = write_script(tmp_path / "faulty-clang", script)
        compilers.append(SystemClang(path, timeout_s=timeout_s))
        return compilers[-1]

    yield make
    for compiler in compilers:
        compiler.close()


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children(recursive=True)}


def memory_of_children() -> int:
    return sum(child.memory_info().rss for child in psutil.Process().children(recursive=True))


# Opens the channel as LLVM does, announces no features, and says no more.
OPEN_CHANNEL = """
for word in "$@"; do case $word in
  -inliner-interactive-channel-base=*) base=${word#*=} ;;
esac; done
exec 3>"$base.out" 4<"$base.in"
echo '{"features": [], "advice": {"type": "int64_t"}}' >&3
sleep 1000
"""


@pytest.mark.parametrize(
    ("fault", "timeout_s", "message"),
    [
        ("sleep 1000", 0.5, "good: expected an object within 0.5 s, found a compiler"),
        (OPEN_CHANNEL, 0.5, "good: expected an object within 0.5 s, found a compiler"),
        (
            OPEN_CHANNEL.replace("features", "garbage"),
            60,
            "good: interactive channel: expected a JSON header",
        ),
        (
            "head -c 300000 /dev/zero >&2; echo >&2; printf 'fatal error: no luck' >&2; exit 3",
            60,
            "ended with status 3: fatal error: no luck$",
        ),
    ],
    ids=["hangs-at-once", "hangs-in-the-channel", "garbage-in-the-channel", "fails"],
)
def test_a_compiler_that_hangs_or_fails(make_faulty, good, fault, timeout_s, message):
    compiler = make_faulty(fault, timeout_s)
    before = children()
    with pytest.raises(CompilerError, match=message):
        run_policy(compiler, good, default)
    compiler.close()
    assert children() <= before


def test_a_megabyte_on_stderr(make_faulty, good):
    shout = "head -c 1000000 /dev/zero | tr '\\0' '\\n' >&2; head -c 1000000 /dev/zero >&2\n"
    compiler = make_faulty(shout + 'exec CLANG "$@"')
    assert run_policy(compiler, good, default).decisions.tolist() == HAND_WORKED_DEFAULT


def test_a_clang_that_was_uninstalled(make_faulty, good):
    compiler = make_faulty("exit 1")
    pathlib.Path(compiler.executable).unlink()
    before = num_descriptors()
    with pytest.raises(CompilerError, match="good: expected .* to start, found"):
        run_policy(compiler, good, default)
    assert num_descriptors() <= before
