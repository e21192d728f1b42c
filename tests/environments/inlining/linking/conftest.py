"""Two modules that share a function."""

from __future__ import annotations

import dataclasses

import pytest

from tests.environments.inlining.small_modules import SINK, function, sinks, write_module

# Both modules hold a copy of @shared, as C++ objects do of an inline function.
_SHARED = function("linkonce_odr void @shared(i32 %x) noinline", *sinks("%x", 1, 2))
_SHARED = "$shared = comdat any\n" + SINK + _SHARED.replace(" {", " comdat {")


def one_of_two(number, name):
    """Return a module; two of another number share no code but @shared."""
    return _SHARED + function(f"void @{name}()", "@shared(i32 3)", *sinks(number))


def write_project(directory, irs):
    """Write the modules of a project; IR by name."""
    modules = [write_module(directory, name, ir) for name, ir in irs.items()]
    return [dataclasses.replace(module, project="p") for module in modules]


@pytest.fixture
def compiler(embedded):
    return embedded


@pytest.fixture
def project(tmp_path):
    names = enumerate(("one", "two"))
    return write_project(tmp_path, {name: one_of_two(number, name) for number, name in names})


def sizes_of(compiler, modules):
    return [(module, compiler.compile_plain(module).size) for module in modules]
