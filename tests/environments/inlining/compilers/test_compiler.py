"""Each compiler on modules whose call sites are known by heart."""

from __future__ import annotations

import numpy as np
import pytest

from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.compilers.compiler import make_compiler, run_policy
from environments.inlining.compilers.system_clang import SystemClang
from environments.inlining.corpus.bitcode_compilers import CompilerProcesses, find_compiler
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Default, Random, Replay
from tests.environments.inlining.small_modules import (
    HAND_WORKED,
    HAND_WORKED_DEFAULT,
    HAND_WORKED_SITES,
    NO_CALL_SITES,
    NOTHING,
    UNREACHABLE_CALL_SITE,
    default,
    many_calls,
    play,
    write_module,
)
from tests.requirements import need_programs


def test_call_sites_come_in_order_with_llvms_own_decision(compiler, hand_worked):
    defaults = []
    with compiler.compile(hand_worked) as compilation:
        while (site := compilation.next_site()) is not None:
            assert compilation.announced == compiler.announced
            assert len(site.features) == len(compiler.announced)
            defaults.append(site.default)
            compilation.advise(site.default)
        compiled = compilation.result()
    assert defaults == [default for _, _, default in HAND_WORKED_SITES]
    assert compiled.decisions.tolist() == HAND_WORKED_DEFAULT
    assert compiled.decisions.dtype == np.int8


def test_names_and_linkage_where_llvm_tells_them(compiler, hand_worked):
    seen = []
    with compiler.compile(hand_worked) as compilation:
        while (site := compilation.next_site()) is not None:
            seen.append((site.callee, site.caller))
            compilation.advise(site.default)
        compiled = compilation.result()
        linkage = dict(compilation.linkage)
    # Before the decision LLVM names a call site only where its default is not to inline.
    assert seen == [
        (None, None) if inlines else (callee, caller)
        for callee, caller, inlines in HAND_WORKED_SITES
    ]
    assert compiled.callees == tuple(callee for callee, _, _ in HAND_WORKED_SITES)
    assert linkage == {
        "leaf": "internal",
        "once": "linkonce_odr",
        "caller": "external",
        "other": "external",
    }


@pytest.mark.parametrize("ir", [HAND_WORKED, NO_CALL_SITES, NOTHING, many_calls(40)])
def test_the_default_gives_the_bytes_of_plain_oz(compiler, tmp_path, ir):
    module = write_module(tmp_path, "module", ir, text=True)
    assert run_policy(compiler, module, default).size == compiler.compile_plain(module).size


def test_a_call_site_that_inlining_makes_unreachable_is_not_asked_about(compiler, tmp_path):
    """Why the default's decisions alone do not always give a plain -Oz."""
    module = write_module(tmp_path, "module", UNREACHABLE_CALL_SITE, text=True)
    steered = run_policy(compiler, module, default)
    assert steered.callees == ("begin", "construct") and steered.decisions.tolist() == [1, 1]
    # It is asked about where the landing pad stays reachable.
    refused = run_policy(compiler, module, lambda site: 0)
    assert refused.callees == ("begin", "construct", "destroy")
    assert steered.size != compiler.compile_plain(module).size


def test_other_decisions_give_other_bytes_and_a_replay_the_same(compiler, tmp_path):
    module = write_module(tmp_path, "module", many_calls(12), text=True)
    default_size = run_policy(compiler, module, default).size
    never = run_policy(compiler, module, lambda site: 0)
    assert never.decisions.tolist() == [0] * 12
    assert never.size.text_bytes > default_size.text_bytes  # each is called once, by one
    recorded = iter(never.decisions)
    assert run_policy(compiler, module, lambda site: next(recorded)).size == never.size


def test_a_module_without_call_sites_is_no_error(compiler, tmp_path):
    module = write_module(tmp_path, "module", NO_CALL_SITES, text=True)
    compiled = run_policy(compiler, module, default)
    assert compiled.decisions.tolist() == [] and compiled.size.exec_bytes == 4  # push 42, pop, ret


def test_a_module_without_functions_has_no_text(compiler, tmp_path):
    module = write_module(tmp_path, "module", NOTHING, text=True)
    assert run_policy(compiler, module, default).size.text_bytes == 0


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


SOURCE = """
#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

std::map<std::string, std::vector<int>> group(const std::vector<std::string>& words) {
  std::map<std::string, std::vector<int>> groups;
  for (int i = 0; i < static_cast<int>(words.size()); ++i) groups[words[i]].push_back(i);
  for (auto& [word, places] : groups) std::sort(places.rbegin(), places.rend());
  return groups;
}

int first_of(const std::vector<std::string>& words, const std::string& word) {
  auto groups = group(words);
  if (groups.find(word) == groups.end()) throw std::out_of_range("no " + word);
  return groups.at(word).back();
}
"""


@pytest.fixture(scope="module")
def real_module(tmp_path_factory) -> Module:
    directory = tmp_path_factory.mktemp("real")
    (directory / "group.cpp").write_text(SOURCE)
    command = find_compiler().command("c++", ("-std=c++17",), "group.cpp", directory / "group.bc")
    (directory / "scratch").mkdir()
    ended = CompilerProcesses().run(command, directory, directory / "scratch", timeout_s=240)
    assert ended.error == ""
    return Module("group", directory / "group.bc", ".", "c++")


def test_the_default_gives_the_bytes_of_plain_oz_of_a_real_module(embedded, real_module):
    compiled = run_policy(embedded, real_module, lambda site: site.default)
    assert len(compiled.decisions) > 100
    assert compiled.size == embedded.compile_plain(real_module).size


def test_so_it_does_on_clang_22(clangs, real_module):
    need_programs("clang-22")
    clang = clangs.setdefault("clang-22", SystemClang("clang-22", timeout_s=60))
    compiled = run_policy(clang, real_module, lambda site: site.default)
    assert len(compiled.decisions) > 100
    assert compiled.size == clang.compile_plain(real_module).size


def test_a_recorded_list_gives_the_recorded_bytes(embedded, real_module):
    recorded = play(embedded, real_module, Random(3), TrajectoryStore())
    replayed = play(embedded, real_module, Replay(recorded.decisions), TrajectoryStore())
    assert replayed.size == recorded.size
    assert np.array_equal(replayed.features, recorded.features)
    default = play(embedded, real_module, Default(), TrajectoryStore())
    assert default.size != recorded.size


def test_callees_are_named_before_the_decision_where_the_default_refuses(embedded, real_module):
    with embedded.compile(real_module) as compilation:
        while (site := compilation.next_site()) is not None:
            assert (site.callee is None) == site.default
            assert (site.caller is None) == site.default
            compilation.advise(site.default)
        compiled = compilation.result()
        linkage = compilation.linkage
    assert None not in compiled.callees
    assert set(compiled.callees) <= set(linkage)
