"""Modules small enough to know every call site by heart, written as LLVM IR."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import psutil
import pytest
from llvmlite import binding as llvm

from environments.inlining.collection.store import Trajectory, TrajectoryStore
from environments.inlining.collection.tasks import Play, perform
from environments.inlining.compilers.compilation import (
    CallSite,
    Compilation,
    CompiledModule,
    CompilerError,
)
from environments.inlining.compilers.compiler import Compiler, run_policy
from environments.inlining.corpus.modules import DESCRIPTION_FILE, Module
from environments.inlining.heuristics import Default, Policy
from tests.processes import unless_ended

TRIPLE = 'target triple = "x86_64-pc-linux-gnu"\n'

# LLVM goes through it bottom-up. At -Oz these are the call sites, in this order:
#   caller -> leaf   refused   (leaf makes four calls: too large to be copied twice)
#   caller -> leaf   refused
#   caller -> once   inlined   (no larger than the call)
#   other  -> leaf   refused
#   other  -> caller refused   (caller has three calls by now)
HAND_WORKED = """
declare void @sink(i32)
define internal void @leaf(i32 %x) minsize optsize {
  call void @sink(i32 %x)
  call void @sink(i32 1)
  call void @sink(i32 2)
  call void @sink(i32 3)
  ret void
}
define linkonce_odr void @once(i32 %x) minsize optsize {
  call void @sink(i32 %x)
  ret void
}
define void @caller(i32 %x) minsize optsize {
  call void @leaf(i32 %x)
  call void @leaf(i32 7)
  call void @once(i32 7)
  ret void
}
define void @other(i32 %x) minsize optsize {
  call void @leaf(i32 %x)
  call void @caller(i32 %x)
  ret void
}
"""
HAND_WORKED_SITES = [
    ("leaf", "caller", False),
    ("leaf", "caller", False),
    ("once", "caller", True),
    ("leaf", "other", False),
    ("caller", "other", False),
]
HAND_WORKED_DEFAULT = [int(default) for _, _, default in HAND_WORKED_SITES]

NO_CALL_SITES = """
define i32 @answer() minsize optsize {
  ret i32 42
}
"""

NOTHING = "@only_data = global i32 7\n"


SINK = "declare void @sink(i32)\n"


def function(head: str, *calls: str) -> str:
    """A function at -Oz, such as "void @f(i32 %x)", that calls others, such as "@sink(i32 %x)"."""
    body = "".join(f"  call void {call}\n" for call in calls)
    return f"define {head} minsize optsize {{\n{body}  ret void\n}}\n"


def sinks(*arguments: object) -> list[str]:
    """Calls of @sink."""
    return [f"@sink(i32 {argument})" for argument in arguments]


def many_calls(count: int) -> str:
    """A module with `count` call sites, each of a function of its own."""
    functions = [
        function(f"internal void @f{number}(i32 %x)", *sinks(*range(number % 5 + 1)))
        for number in range(count)
    ]
    calls = (f"@f{number}(i32 {number})" for number in range(count))
    return "".join([SINK, *functions, function("void @all()", *calls)])


def write_module(directory: pathlib.Path, name: str, ir: str, *, text: bool = False) -> Module:
    """Writes a module as bitcode, or as text, which every version of LLVM reads."""
    path = directory / f"{name}{'.ll' if text else '.bc'}"
    if text:
        path.write_text(TRIPLE + ir)
    else:
        path.write_bytes(llvm.parse_assembly(TRIPLE + ir, llvm.create_context()).as_bitcode())
    return Module(name, path, ".", "unknown")


def write_script(path: pathlib.Path, text: str) -> pathlib.Path:
    """Writes a program of the shell, mostly one in the place of a compiler."""
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def write_corpus(directory: pathlib.Path, modules: dict[str, str]) -> pathlib.Path:
    """A corpus as `tfrl corpus build` leaves it; IR by name of the module."""
    for name, ir in modules.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_module(path.parent, path.name, ir)
    description = {"modules": sorted(modules), "has_thinlto": False}
    (directory / DESCRIPTION_FILE).write_text(json.dumps(description))
    return directory


class Replay:
    """Repeats a recorded list of decisions; after its end, LLVM's own decisions."""

    def __init__(self, decisions) -> None:
        self._decisions = np.asarray(decisions, np.int8)
        self.name = self.fingerprint = f"replay {self._decisions.tolist()}"

    def begin(self, module_name: str, names: tuple[str, ...]):
        default = Default().begin(module_name, names)

        def decide(features: np.ndarray, first: int) -> np.ndarray:
            decisions = default(features, first)
            recorded = self._decisions[first : first + len(features)]
            decisions[: len(recorded)] = recorded
            return decisions

        return decide


def play(compiler: Compiler, module: Module, policy: Policy, store: TrajectoryStore) -> Trajectory:
    """Compile a module under a policy, or take that from the store."""
    return perform(Play(policy), compiler, module, store)


class Lent:
    """A compiler whose processes go on after whoever borrows it."""

    def __init__(self, compiler: Compiler) -> None:
        self._compiler = compiler

    def __getattr__(self, name: str):
        return getattr(self._compiler, name)

    def close(self) -> None:
        pass


def default(site: CallSite) -> bool:
    """Decide as LLVM itself does."""
    return site.default


def follow_default(
    compiler: Compiler, module: Module
) -> tuple[list[CallSite], CompiledModule, Compilation]:
    """Decide as LLVM does; return the call sites, the result, and how it was compiled."""
    sites = []
    with compiler.compile(module) as compilation:
        while (site := compilation.next_site()) is not None:
            assert len(site.features) == len(compilation.announced)
            sites.append(site)
            compilation.advise(site.default)
        return sites, compilation.result(), compilation


def assert_fails_in_one_line(compiler: Compiler, module: Module, good: Module, *words: str) -> None:
    """The module fails, which its message says with these words, and a good one compiles then."""
    with pytest.raises(CompilerError) as caught:
        run_policy(compiler, module, default)
    message = str(caught.value)
    assert "\n" not in message and message.startswith(f"{module.name}: "), message
    for word in words:
        assert word in message, message
    assert run_policy(compiler, good, default).decisions.tolist() == HAND_WORKED_DEFAULT


def youngest_compiler() -> psutil.Process:
    """The process of this one's that began last of those that ask about call sites."""
    steered = [
        process
        for process in psutil.Process().children(recursive=True)
        if "-enable-ml-inliner=release" in unless_ended(process.cmdline, [])
    ]
    return max(steered, key=psutil.Process.create_time)


def num_descriptors() -> int:
    """Open file descriptors of this process."""
    return sum(1 for _ in pathlib.Path("/proc/self/fd").iterdir())


# Once @construct, which cannot throw, is inlined, the landing pad is unreachable. A plain -Oz still
# inlines @destroy there. Steered, LLVM leaves it without asking, which gives another object. (It is
# what is left of a function of pugixml.)
UNREACHABLE_CALL_SITE = """
target triple = "x86_64-unknown-linux-gnu"
declare i32 @__gxx_personality_v0(...)
define ptr @caller() minsize optsize personality ptr @__gxx_personality_v0 {
  %1 = alloca { ptr, ptr, ptr }, align 8
  call void @begin(ptr %1, ptr null)
  %2 = invoke ptr @construct(ptr null, ptr null, ptr null, ptr null, ptr null)
          to label %common.ret unwind label %3
common.ret:
  ret ptr null
3:
  %4 = landingpad { ptr, i32 }
          cleanup
  %5 = call ptr @destroy(ptr %1)
  br label %common.ret
}
define void @begin(ptr %0, ptr %1) minsize optsize {
  %3 = load ptr, ptr %1, align 8
  %4 = load i64, ptr %0, align 8
  %5 = getelementptr { ptr, { ptr, i64 } }, ptr %3, i64 %4
  store ptr %5, ptr %0, align 8
  ret void
}
define ptr @construct(ptr %0, ptr %1, ptr %2, ptr %3, ptr %4) minsize optsize {
  ret ptr %0
}
define ptr @destroy(ptr %0) minsize optsize {
  ret ptr %0
}
"""
