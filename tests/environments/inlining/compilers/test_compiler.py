"""Each compiler on modules whose call sites are known by heart."""

from __future__ import annotations

import numpy as np

from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.compilers.compiler import SharedCompilers, make_compiler, run_policy
from environments.inlining.corpus.bitcode_compilers import CompilerProcesses, find_compiler
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Random
from tests.environments.inlining.plugin.samples import CPP
from tests.environments.inlining.small_modules import (
    HAND_WORKED,
    HAND_WORKED_DEFAULT,
    HAND_WORKED_SITES,
    NO_CALL_SITES,
    NOTHING,
    Replay,
    default,
    follow_default,
    many_calls,
    play,
    write_module,
)


def test_call_sites_come_in_order_with_names_linkage_and_llvms_own_decision(compiler, hand_worked):
    sites, compiled, compilation = follow_default(compiler, hand_worked)
    assert compilation.announced == compiler.announced
    # Before the decision LLVM names a call site only where its default is not to inline.
    assert [(site.callee, site.caller, site.default) for site in sites] == [
        (None, None, True) if inlines else (callee, caller, False)
        for callee, caller, inlines in HAND_WORKED_SITES
    ]
    assert compiled.callees == tuple(callee for callee, _, _ in HAND_WORKED_SITES)
    assert compiled.decisions.tolist() == HAND_WORKED_DEFAULT
    assert compiled.decisions.dtype == np.int8
    assert compilation.linkage == {
        "leaf": "internal",
        "once": "linkonce_odr",
        "caller": "external",
        "other": "external",
    }


def test_the_default_gives_the_bytes_of_plain_oz(compiler, tmp_path):
    irs = {"hand": HAND_WORKED, "none": NO_CALL_SITES, "nothing": NOTHING, "many": many_calls(40)}
    compiles = {}
    for name, ir in irs.items():
        module = write_module(tmp_path, name, ir, text=True)
        compiles[name] = run_policy(compiler, module, default)
        assert compiles[name].size == compiler.compile_plain(module).size
    assert compiles["none"].decisions.tolist() == []
    assert compiles["none"].size.exec_bytes == 4  # push 42, pop, ret
    assert compiles["nothing"].size.text_bytes == 0


def test_direct_calls_as_written(compiler, hand_worked):
    assert compiler.read_calls(hand_worked) == {
        "leaf": ["sink"],
        "once": ["sink"],
        "caller": ["leaf", "once"],
        "other": ["caller", "leaf"],
    }


def test_make_compiler(clang):
    assert make_compiler().name == "embedded"
    assert make_compiler(clang.executable).identity == clang.identity


def test_the_default_and_a_recorded_list_on_a_real_module(embedded, tmp_path):
    (tmp_path / "group.cpp").write_text(CPP)
    (tmp_path / "scratch").mkdir()
    path = tmp_path / "group.bc"
    command = find_compiler().command("c++", ("-std=c++17",), "group.cpp", path)
    ended = CompilerProcesses().run(command, tmp_path, tmp_path / "scratch", timeout_s=240)
    assert ended.error == ""
    module = Module("group", path, ".", "c++")
    sites, compiled, compilation = follow_default(embedded, module)
    assert all((site.callee is None) == (site.caller is None) == site.default for site in sites)
    assert len(compiled.decisions) > 100
    assert None not in compiled.callees and set(compiled.callees) <= set(compilation.linkage)
    assert compiled.size == embedded.compile_plain(module).size
    recorded = play(embedded, module, Random(3), TrajectoryStore())
    replayed = play(embedded, module, Replay(recorded.decisions), TrajectoryStore())
    assert replayed.size == recorded.size != compiled.size
    assert np.array_equal(replayed.features, recorded.features)


class Closable:
    """A compiler as far as those who share it need it."""

    is_closed = False

    def fork(self):
        return Closable()

    def close(self):
        self.is_closed = True


def test_idle_compilers_are_closed_where_one_user_is_left():
    first = Closable()
    shared = SharedCompilers(first)
    for _ in range(3):
        shared.join()
    own, second, third = (shared.take() for _ in range(3))
    assert own is first and len({own, second, third}) == 3
    shared.give_back(second)
    shared.leave()
    assert not second.is_closed  # one of the two who are left may want it
    assert shared.take() is second
    shared.give_back(second)
    shared.give_back(third)
    shared.leave()
    assert second.is_closed and third.is_closed and not own.is_closed
