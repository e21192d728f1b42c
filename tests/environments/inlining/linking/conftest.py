"""Two modules that share a function."""

from __future__ import annotations

import dataclasses

import pytest

from tests.environments.inlining.small_modules import write_module

# Both modules hold a copy of @shared, as C++ objects do of an inline function.
ONE_OF_TWO = """
$shared = comdat any
declare void @sink(i32)
define linkonce_odr void @shared(i32 %x) noinline minsize optsize comdat {{
  call void @sink(i32 %x)
  call void @sink(i32 1)
  call void @sink(i32 2)
  ret void
}}
define void @{name}() minsize optsize {{
  call void @shared(i32 3)
  call void @sink(i32 4)
  ret void
}}
"""


@pytest.fixture
def compiler(embedded):
    return embedded


@pytest.fixture
def project(tmp_path):
    return [
        dataclasses.replace(write_module(tmp_path, name, ONE_OF_TWO.format(name=name)), project="p")
        for name in ("one", "two")
    ]


def sizes_of(compiler, modules):
    return [(module, compiler.compile_plain(module).size) for module in modules]
