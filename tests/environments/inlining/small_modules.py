"""Modules small enough to know every call site by heart, written as LLVM IR."""

from __future__ import annotations

import pathlib

from llvmlite import binding as llvm

from environments.inlining.corpus import Module

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


def many_calls(count: int) -> str:
    """A module with `count` call sites, each of a function of its own."""
    parts = ["declare void @sink(i32)\n"]
    for number in range(count):
        body = "".join(f"  call void @sink(i32 {value})\n" for value in range(number % 5 + 1))
        parts.append(
            f"define internal void @f{number}(i32 %x) minsize optsize {{\n{body}  ret void\n}}\n"
        )
    calls = "".join(f"  call void @f{number}(i32 {number})\n" for number in range(count))
    parts.append(f"define void @all() minsize optsize {{\n{calls}  ret void\n}}\n")
    return "".join(parts)


def write_module(directory: pathlib.Path, name: str, ir: str, *, text: bool = False) -> Module:
    """Writes a module as bitcode, or as text, which every version of LLVM reads."""
    path = directory / f"{name}{'.ll' if text else '.bc'}"
    if text:
        path.write_text(TRIPLE + ir)
    else:
        path.write_bytes(llvm.parse_assembly(TRIPLE + ir, llvm.create_context()).as_bitcode())
    return Module(name, path, ".", "unknown")


def num_descriptors() -> int:
    """Open file descriptors of this process."""
    return sum(1 for _ in pathlib.Path("/proc/self/fd").iterdir())
