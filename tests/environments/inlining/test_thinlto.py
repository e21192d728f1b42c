"""Modules of a real ThinLTO link: what was imported is there, and a policy decides about it."""

from __future__ import annotations

import json
import pathlib
import subprocess

import pytest

from environments.inlining.collection.playing import compile_under
from environments.inlining.corpus.modules import DESCRIPTION_FILE, Corpus
from environments.inlining.heuristics import make_heuristic
from environments.inlining.plugin.compiler import PluginClang, make_clang
from tests.requirements import need_programs

# `user` gets `helper` from the other module; it is too large for LLVM to inline it by itself.
SOURCES = {
    "library": """
        int sink(int);
        int helper(int x) { return sink(x) + sink(x + 1) + sink(x + 2) + sink(x + 3) + sink(7); }
        """,
    "user": """
        int helper(int);
        int user(int n) { return helper(n) - helper(n + 1); }
        """,
}


@pytest.fixture
def corpus(clang, tmp_path) -> Corpus:
    """As ml-compiler-opt extracts it: modules after importing, and an index for each."""
    need_programs(clang.name.replace("clang", "lld"))
    build = tmp_path / "build"
    build.mkdir()

    def run(*words: str) -> None:
        command = [clang.executable, "-Oz", "-fPIC", "-flto=thin", *words]
        subprocess.run(command, cwd=build, check=True)

    for name, text in SOURCES.items():
        (build / f"{name}.cpp").write_text(text)
        run("-c", f"{name}.cpp", "-o", f"{name}.o")
    save = ("-Wl,--save-temps=import", "-Wl,--thinlto-emit-index-files")
    run("-fuse-ld=lld", "-shared", *save, *(f"{name}.o" for name in SOURCES), "-o", "lib.so")
    directory = tmp_path / "corpus"
    directory.mkdir()
    for name in SOURCES:
        (imported,) = build.glob(f"*{name}.o*.3.import.bc")
        imported.rename(directory / f"{name}.bc")
        (build / f"{name}.o.thinlto.bc").rename(directory / f"{name}.thinlto.bc")
        command = ("-Oz", "-c", "-fPIC")
        (directory / f"{name}.cmd").write_text("\0".join(command))
    description = {"modules": sorted(SOURCES), "has_thinlto": True}
    (directory / DESCRIPTION_FILE).write_text(json.dumps(description))
    return Corpus.load(directory)


def functions(data: bytes, path: pathlib.Path) -> set[str]:
    path.write_bytes(data)
    shown = subprocess.run(
        ["nm", "--defined-only", path], check=True, capture_output=True, text=True
    ).stdout
    return {line.split()[-1] for line in shown.splitlines()}


def test_what_a_module_defines_is_compiled(clang, corpus, tmp_path):
    defined = {
        module.name: functions(clang.compile_plain(module).data, tmp_path / "plain.o")
        for module in corpus.modules
    }
    assert defined["library"] == {"_Z6helperi"}
    assert defined["user"] >= {"_Z4useri"}


def test_a_policy_decides_about_imported_functions(clang, corpus, plugin_cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(plugin_cache))
    inside = make_clang(clang.executable)
    module = next(module for module in corpus.modules if module.name == "user")
    sizes = {}
    for name in ("always", "never"):
        policy = make_heuristic(name)
        compiled = compile_under(policy, clang, module)
        assert ("_Z4useri", "_Z6helperi") in compiled.names
        sizes[name] = compiled.size.text_bytes
        if isinstance(inside, PluginClang):
            assert compile_under(policy, inside, module).data == compiled.data
    assert sizes["always"] != sizes["never"] > 0
