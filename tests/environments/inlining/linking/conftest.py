"""Two modules that share a function."""

from __future__ import annotations

import dataclasses

import pytest

from tests.environments.inlining.small_modules import write_module

# Both modules hold a copy of @shared, as C++ objects do of an inline function.
_ONE_OF_TWO = """
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
  call void @sink(i32 {number})
  ret void
}}
"""


def one_of_two(number, name):
    """Return a module; two of another number share no code but @shared."""
    return _ONE_OF_TWO.format(number=number, name=name)


@pytest.fixture
def compiler(embedded):
    return embedded


@pytest.fixture
def project(tmp_path):
    return [
        dataclasses.replace(write_module(tmp_path, name, one_of_two(number, name)), project="p")
        for number, name in enumerate(("one", "two"))
    ]


def sizes_of(compiler, modules):
    return [(module, compiler.compile_plain(module).size) for module in modules]
