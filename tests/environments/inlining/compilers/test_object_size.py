"""Sizes of objects, against LLVM's own tools."""

from __future__ import annotations

import subprocess

from environments.inlining.compilers.compiler import run_policy
from environments.inlining.compilers.object_size import read_function_bytes, read_object_size
from tests.environments.inlining.small_modules import default
from tests.requirements import need_one_of


def test_sizes_are_those_of_the_sections_and_of_the_functions(compiler, hand_worked, tmp_path):
    data = run_policy(compiler, hand_worked, default).data
    size, by_function = read_object_size(data), read_function_bytes(data)
    assert set(by_function) == {"leaf", "caller", "other"}  # once is inlined and dropped
    assert size.exec_bytes <= sum(by_function.values()) <= size.text_bytes
    (tmp_path / "module.o").write_bytes(data)
    program = need_one_of("size", "llvm-size-19")
    shown = subprocess.check_output([program, tmp_path / "module.o"], text=True)
    assert int(shown.splitlines()[1].split()[0]) == size.text_bytes
