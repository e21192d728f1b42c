"""The embedded LLVM: its workers are kept, and replaced."""

from __future__ import annotations

import signal

import psutil
import pytest

from environments.inlining.compilers import embedded as embedded_compiler
from environments.inlining.compilers.compiler import run_policy
from environments.inlining.compilers.embedded import EmbeddedLlvm
from environments.inlining.corpus.modules import Module
from tests.environments.inlining.small_modules import (
    HAND_WORKED_DEFAULT,
    assert_fails_in_one_line,
    default,
    many_calls,
    write_module,
    youngest_compiler,
)


@pytest.mark.ci
def test_a_second_module_at_the_same_time_is_refused(embedded, hand_worked):
    with embedded.compile(hand_worked) as compilation:
        compilation.next_site()
        with pytest.raises(RuntimeError, match="one module at a time"):
            embedded.compile(hand_worked)


def test_the_order_of_modules_does_not_matter(embedded, tmp_path):
    modules = [write_module(tmp_path, f"m{count}", many_calls(count)) for count in (3, 9)]
    forwards = [run_policy(embedded, module, default).size for module in modules]
    backwards = [run_policy(embedded, module, default).size for module in reversed(modules)]
    assert forwards == backwards[::-1]


def test_a_worker_that_was_killed_or_has_grown_is_replaced(embedded, hand_worked, monkeypatch):
    first = run_policy(embedded, hand_worked, default)
    worker = youngest_compiler()
    assert run_policy(embedded, hand_worked, default).size == first.size and worker.is_running()
    worker.kill()
    psutil.wait_procs([worker], timeout=5)
    assert run_policy(embedded, hand_worked, default).decisions.tolist() == HAND_WORKED_DEFAULT
    worker = youngest_compiler()
    monkeypatch.setattr("environments.inlining.compilers.embedded._MAX_WORKER_BYTES", 20 << 20)
    assert run_policy(embedded, hand_worked, default).size == first.size
    assert not worker.is_running()


def test_a_broken_module_does_not_cost_a_new_worker(embedded, tmp_path, good):
    run_policy(embedded, good, default)
    worker = youngest_compiler()
    broken = Module("broken", tmp_path / "broken.bc", ".", "c")
    broken.path.write_bytes(b"BC\xc0\xde" + b"\0" * 64)
    assert_fails_in_one_line(embedded, broken, good, "Malformed block", "rebuild the module")
    assert worker.is_running() and worker == youngest_compiler()


@pytest.mark.parametrize(
    ("triple", "body", "message"),
    [
        ("avr", "define void @f() { ret void }", "expected"),  # another machine
        ("x86_64-apple-macosx", "define void @f() { ret void }", "expected ELF"),
        # LLVM aborts.
        (
            "x86_64-pc-linux-gnu",
            'module asm ".this_is_no_directive"\n'
            'define void @f() { call void asm sideeffect "bogus_instruction", ""() ret void }',
            "expected",
        ),
    ],
)
def test_a_module_that_gives_no_elf_object(embedded, tmp_path, good, triple, body, message):
    source = tmp_path / "other.ll"
    source.write_text(f'target triple = "{triple}"\n{body}\n')
    assert_fails_in_one_line(embedded, Module("other", source, ".", "c"), good, message)


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
