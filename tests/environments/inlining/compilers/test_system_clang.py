"""The user's clang: which is taken, and what it needs beside other compilers."""

from __future__ import annotations

import dataclasses
import json
import subprocess

import pytest

from environments.errors import UserError
from environments.inlining.collection.episode import compile_under
from environments.inlining.compilers.compiler import run_policy
from environments.inlining.compilers.object_size import read_function_bytes
from environments.inlining.compilers.system_clang import SystemClang
from environments.inlining.corpus.modules import DESCRIPTION_FILE, Corpus
from environments.inlining.heuristics import make_heuristic
from environments.inlining.plugin.compiler import PluginClang, make_clang
from tests.environments.inlining.small_modules import (
    HAND_WORKED_DEFAULT,
    HAND_WORKED_SITES,
    default,
    follow_default,
    write_script,
)
from tests.requirements import need_programs


def test_a_clang_of_its_own_options_is_asked_with_them(clang, hand_worked):
    options = ("-cc1", "-triple", "x86_64-pc-linux-gnu", "-emit-obj", "-Oz")
    own = dataclasses.replace(hand_worked, command=options)
    compiled = run_policy(clang, own, default)
    assert compiled.decisions.tolist() == HAND_WORKED_DEFAULT
    assert compiled.size == clang.compile_plain(own).size


def test_llvm_19_sends_its_default_in_the_place_of_another_feature(clang):
    is_19 = clang.facts.version.startswith("19.")
    feature = "callee_basic_block_count" if is_19 else "inlining_default"
    assert clang.facts.default_feature == feature
    assert "inlining_default" in clang.announced


def test_a_clang_whose_default_cannot_be_asked_for(clang_19, hand_worked, monkeypatch):
    """No version is known; the cost tells then, and nothing is named."""
    facts = dataclasses.replace(clang_19.facts, default_feature="")
    monkeypatch.setattr(clang_19, "facts", facts)
    sites, compiled, compilation = follow_default(clang_19, hand_worked)
    defaults = [(site.callee, site.caller, site.default) for site in sites]
    assert defaults == [(None, None, default) for _, _, default in HAND_WORKED_SITES]
    assert compiled.callees == (None,) * 5 and compilation.linkage == {}
    assert "inlining_default" not in compilation.announced


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "found no program 'no-such-clang'; install one"),
        ("echo 'gcc (Debian 12.2.0) 12.2.0'", "found .* that says 'gcc .Debian 12.2.0. 12.2.0'"),
        ("exit 1", "expected a clang that runs"),
        ("echo 'Debian clang version 14.0.6'", "found .* of version 14.0.6; install a newer one"),
        ("echo 'clang version 21.0.0'", "to ask for inlining advice, found that it does not"),
    ],
    ids=["missing", "gcc", "silent", "too-old", "no-channel"],
)
def test_a_wrong_program_is_named_at_construction(tmp_path, text, message):
    with pytest.raises(UserError, match=message) as caught:
        SystemClang("no-such-clang" if text is None else write_script(tmp_path / "compiler", text))
    assert "\n" not in str(caught.value)


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


def test_a_policy_decides_about_imported_functions(clang, corpus, plugin_cache, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(plugin_cache))
    inside = make_clang(clang.executable)
    library, module = corpus.modules
    assert set(read_function_bytes(clang.compile_plain(library).data)) == {"_Z6helperi"}
    sizes = {}
    for name in ("always", "never"):
        policy = make_heuristic(name)
        compiled = compile_under(policy, clang, module)
        assert ("_Z4useri", "_Z6helperi") in compiled.names
        sizes[name] = compiled.size.text_bytes
        if isinstance(inside, PluginClang):
            assert compile_under(policy, inside, module).data == compiled.data
    assert sizes["always"] != sizes["never"] > 0
