"""Modules with call sites of many kinds, small enough to compile in a blink."""

from __future__ import annotations

import pathlib
import subprocess

from environments.inlining.corpus.modules import Module
from tests.environments.inlining.small_modules import (
    HAND_WORKED,
    SINK,
    function,
    many_calls,
    sinks,
    write_module,
)

CPP = """
#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
template <class T> struct Box { T value; Box(T v) : value(v) {} ~Box() { value = T(); } };
using Element = double;
std::map<std::string, std::vector<Element>> groups;
static int depth(int n) { return n < 2 ? n : depth(n - 1) + depth(n - 2); }
int add(const std::string& word, Element place) {
  Box<Element> box(place);
  groups[word].push_back(box.value);
  for (auto& [key, places] : groups) std::sort(places.rbegin(), places.rend());
  return depth(static_cast<int>(groups.size()));
}
int first_of(const std::string& word) {
  if (groups.find(word) == groups.end()) throw std::out_of_range("no " + word);
  return static_cast<int>(groups.at(word).back()) + add(word + "x", Element(1));
}
"""
# Names that LLVM shows without their mark, recursion, calls that must be inlined or must not.
ODD = (
    SINK
    + function('internal void @"\\01marked"(i32 %x)', *sinks("%x", 1, 2))
    + function(
        "available_externally void @elsewhere(i32 %x)",
        *('@"\\01marked"(i32 %x)', '@"\\01marked"(i32 3)', "@sink(i32 2)"),
    )
    + function("internal void @now() alwaysinline", '@"\\01marked"(i32 8)')
    + function(
        "void @round(i32 %x)",
        *("@elsewhere(i32 %x)", "@round(i32 %x)", "@now()", "@elsewhere(i32 7)"),
    )
)
# The same calls in a function that is not optimised for size, where nothing may change.
MIXED = (
    HAND_WORKED
    + """
define void @fast(i32 %x) {
  call void @leaf(i32 %x)
  call void @other(i32 %x)
  ret void
}
"""
)


TEXTS = {"hand": HAND_WORKED, "many": many_calls(40), "odd": ODD, "mixed": MIXED}


def samples_of(clang, lend) -> dict[str, Module]:
    """The modules by name, made once; the clang compiles the one that is C++."""

    def make(directory: pathlib.Path) -> None:
        directory.mkdir()
        for name, ir in TEXTS.items():
            write_module(directory, name, ir, text=True)
        source, path = directory / "cpp.cpp", directory / "cpp.bc"
        source.write_text(CPP)
        options = ["-x", "c++", "-Oz", "-fPIC", "-Xclang", "-disable-llvm-passes", "-emit-llvm"]
        subprocess.run([clang.executable, *options, "-c", source, "-o", path], check=True)

    directory = lend(f"samples-{clang.name}", make)
    texts = {name: Module(name, directory / f"{name}.ll", ".", "unknown") for name in TEXTS}
    return {**texts, "cpp": Module("cpp", directory / "cpp.bc", ".", "c++")}
