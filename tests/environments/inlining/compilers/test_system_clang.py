"""The user's clang: which is taken, and what it needs beside other compilers."""

from __future__ import annotations

import dataclasses
import json
import pathlib
import subprocess

import pytest

from environments.errors import UserError
from environments.inlining.collection.episode import compile_under
from environments.inlining.compilers.compiler import run_policy
from environments.inlining.compilers.system_clang import SystemClang
from environments.inlining.corpus.modules import DESCRIPTION_FILE, Corpus
from environments.inlining.heuristics import make_heuristic
from environments.inlining.plugin.compiler import PluginClang, make_clang
from tests.environments.inlining.small_modules import (
    HAND_WORKED,
    HAND_WORKED_DEFAULT,
    HAND_WORKED_SITES,
    default,
    num_descriptors,
    write_module,
)
from tests.requirements import need_programs


def test_a_clang_of_its_own_options_is_asked_with_them(clang, tmp_path):
    module = write_module(tmp_path, "module", HAND_WORKED, text=True)
    options = ("-cc1", "-triple", "x86_64-pc-linux-gnu", "-emit-obj", "-Oz")
    own = type(module)(module.name, module.path, ".", "c", options)
    assert run_policy(clang, own, default).decisions.tolist() == HAND_WORKED_DEFAULT
    assert run_policy(clang, own, default).size == clang.compile_plain(own).size


def test_llvm_19_sends_its_default_in_the_place_of_another_feature(clang):
    is_19 = clang.facts.version.startswith("19.")
    feature = "callee_basic_block_count" if is_19 else "inlining_default"
    assert clang.facts.default_feature == feature
    assert "inlining_default" in clang.announced


def test_a_clang_whose_default_cannot_be_asked_for(clang, hand_worked, monkeypatch):
    """No version is known; the cost tells then, and nothing is named."""
    facts = dataclasses.replace(clang.facts, default_feature="")
    monkeypatch.setattr(clang, "facts", facts)
    seen = []
    with clang.compile(hand_worked) as compilation:
        while (site := compilation.next_site()) is not None:
            seen.append((site.callee, site.caller, site.default))
            compilation.advise(site.default)
        compiled = compilation.result()
        linkage = compilation.linkage
    assert seen == [(None, None, default) for _, _, default in HAND_WORKED_SITES]
    assert compiled.callees == (None,) * 5 and linkage == {}
    assert "inlining_default" not in compilation.announced


def test_clang_leaks_no_descriptor(clang, tmp_path):
    module = write_module(tmp_path, "module", HAND_WORKED, text=True)
    run_policy(clang, module, default)
    descriptors = num_descriptors()
    for _ in range(5):
        run_policy(clang, module, default)
    assert num_descriptors() <= descriptors


def script(directory: pathlib.Path, text: str) -> pathlib.Path:
    path = directory / "compiler"
    path.write_text("#!/bin/sh\n" + text)
    path.chmod(0o755)
    return path


def test_a_program_that_is_not_there():
    with pytest.raises(UserError, match="found no program 'no-such-clang'; install one"):
        SystemClang("no-such-clang")


@pytest.mark.parametrize(
    "text, message",
    [
        ("echo 'gcc (Debian 12.2.0) 12.2.0'", "found .* that says 'gcc .Debian 12.2.0. 12.2.0'"),
        ("exit 1", "that says 'nothing'"),
        ("echo 'Debian clang version 14.0.6'", "found .* of version 14.0.6; install a newer one"),
        ("echo 'clang version 21.0.0'", "to ask for inlining advice, found that it does not"),
    ],
    ids=["gcc", "silent", "too-old", "no-channel"],
)
def test_a_wrong_program_is_named_at_construction(tmp_path, text, message):
    with pytest.raises(UserError, match=message) as caught:
        SystemClang(script(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_gcc_itself_is_refused():
    try:
        SystemClang("gcc")
    except UserError as error:
        assert "expected" in str(error) and "gcc" in str(error)
    else:
        pytest.fail("gcc was taken for clang")


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
