"""Real faults, for real: each ends in one clear line, and the next module compiles."""

from __future__ import annotations

import pathlib
import signal
import time

import psutil
import pytest
from llvmlite import binding as llvm

from environments.inlining.compilers import embedded as embedded_compiler
from environments.inlining.compilers.compilation import CompilerError
from environments.inlining.compilers.compiler import run_policy
from environments.inlining.compilers.embedded import EmbeddedLlvm
from environments.inlining.compilers.system_clang import SystemClang
from environments.inlining.corpus.modules import Module
from tests.environments.inlining.small_modules import (
    HAND_WORKED,
    HAND_WORKED_DEFAULT,
    many_calls,
    num_descriptors,
    write_module,
)


def default(site):
    return site.default


@pytest.fixture
def good(tmp_path):
    return write_module(tmp_path, "good", HAND_WORKED, text=True)


def assert_fails_in_one_line(compiler, module: Module, good: Module, *words: str) -> None:
    with pytest.raises(CompilerError) as caught:
        run_policy(compiler, module, default)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(f"{module.name}: "), message
    for word in words:
        assert word in message, message
    assert run_policy(compiler, good, default).decisions.tolist() == HAND_WORKED_DEFAULT


def test_truncated_bitcode(compiler, tmp_path, good):
    whole = write_module(tmp_path, "whole", many_calls(10))
    cut = Module("cut", tmp_path / "cut.bc", ".", "c")
    cut.path.write_bytes(whole.path.read_bytes()[:-700])
    assert_fails_in_one_line(compiler, cut, good, "expected")


def test_a_broken_module_does_not_cost_a_new_worker(embedded, tmp_path, good):
    run_policy(embedded, good, default)
    before = embedded._worker.process.pid
    broken = Module("broken", tmp_path / "broken.bc", ".", "c")
    broken.path.write_bytes(b"BC\xc0\xde" + b"\0" * 64)
    assert_fails_in_one_line(embedded, broken, good, "Malformed block", "rebuild the module")
    assert embedded._worker.process.pid == before


def test_bitcode_of_a_newer_llvm(clang_19, tmp_path, good):
    # Written by LLVM 22; "captures" is an attribute that LLVM 20 brought.
    newer = write_module(
        tmp_path, "newer", "define void @f(ptr captures(none) %p) {\n  ret void\n}\n"
    )
    assert_fails_in_one_line(clang_19, newer, good, "clang ended with status 1", "error:")


def test_bitcode_of_an_llvm_newer_than_the_embedded_one(embedded, tmp_path, good):
    newer = write_module(tmp_path, "newer", HAND_WORKED)
    newer.path.write_bytes(_with_another_epoch(newer.path.read_bytes()))
    assert_fails_in_one_line(embedded, newer, good, "Incompatible epoch", "rebuild the module")


def _with_another_epoch(data: bytes) -> bytes:
    """The bitcode with the mark of an incompatible version in the block that it begins with.

    Bitcode is a stream of bits; the bit of the epoch is found by flipping one after another.
    """
    for bit in range(8 * 16, 8 * 64):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << (bit % 8)
        try:
            llvm.parse_bitcode(bytes(changed), llvm.create_context())
        except RuntimeError as error:
            if "Incompatible epoch" in str(error):
                return bytes(changed)
    pytest.fail("no epoch found in the bitcode")


def test_a_module_that_is_not_there(compiler, tmp_path, good):
    missing = Module("missing", tmp_path / "missing.bc", ".", "c")
    assert_fails_in_one_line(compiler, missing, good, "expected", "o such file")


def test_a_module_for_another_machine(embedded, tmp_path, good):
    source = tmp_path / "other.ll"
    source.write_text('target triple = "avr"\ndefine void @f() { ret void }\n')
    assert_fails_in_one_line(embedded, Module("other", source, ".", "c"), good, "expected")


def test_an_object_that_is_no_elf(embedded, tmp_path, good):
    source = tmp_path / "other.ll"
    source.write_text('target triple = "x86_64-apple-macosx"\ndefine void @f() { ret void }\n')
    assert_fails_in_one_line(embedded, Module("other", source, ".", "c"), good, "expected ELF")


def test_an_llvm_that_aborts(embedded, tmp_path, good):
    fatal = tmp_path / "fatal.ll"
    fatal.write_text(
        'target triple = "x86_64-pc-linux-gnu"\nmodule asm ".this_is_no_directive"\n'
        'define void @f() { call void asm sideeffect "bogus_instruction", ""() ret void }\n'
    )
    assert_fails_in_one_line(embedded, Module("fatal", fatal, ".", "c"), good, "expected")


def test_a_compiler_killed_in_the_middle(compiler, tmp_path, good):
    module = write_module(tmp_path, "module", many_calls(10), text=True)
    message = "module: expected an object, found .* signal 9"
    with compiler.compile(module) as compilation, pytest.raises(CompilerError, match=message):
        for _ in range(3):
            compilation.advise(compilation.next_site().default)
        compilation._backend.process.send_signal(signal.SIGKILL)
        while (site := compilation.next_site()) is not None:
            compilation.advise(site.default)
    assert run_policy(compiler, good, default).decisions.tolist() == HAND_WORKED_DEFAULT


def test_a_worker_killed_while_it_waits_is_replaced(embedded, good):
    run_policy(embedded, good, default)
    embedded._worker.process.send_signal(signal.SIGKILL)
    psutil.wait_procs([psutil.Process(embedded._worker.process.pid)], timeout=5)
    assert run_policy(embedded, good, default).decisions.tolist() == HAND_WORKED_DEFAULT


def test_the_first_compile_of_all_may_be_killed(monkeypatch):
    """It asks LLVM what it will tell of call sites; two of three attempts may fail."""
    monkeypatch.setattr(embedded_compiler, "_announced", {})
    killed = []

    def kill(request, *arguments, begin=embedded_compiler.EmbeddedRequest.__init__, **keywords):
        begin(request, *arguments, **keywords)
        if len(killed) < 2:
            killed.append(request.process.pid)
            request.process.send_signal(signal.SIGKILL)

    monkeypatch.setattr(embedded_compiler.EmbeddedRequest, "__init__", kill)
    compiler = EmbeddedLlvm()
    assert "callee_users" in compiler.announced
    compiler.close()
    assert len(set(killed)) == 2


def test_a_compile_that_is_left_early(compiler, tmp_path, good):
    module = write_module(tmp_path, "module", many_calls(10), text=True)
    with compiler.compile(module) as compilation:
        compilation.next_site()
        process = psutil.Process(compilation._backend.process.pid)
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
