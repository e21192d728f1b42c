"""One real C++ module with templates and exceptions, compiled here by the embedded clang."""

from __future__ import annotations

import numpy as np
import pytest

from environments.inlining.collection.store import TrajectoryStore
from environments.inlining.collection.tasks import play
from environments.inlining.compilers.compiler import run_policy
from environments.inlining.compilers.system_clang import SystemClang
from environments.inlining.corpus.bitcode_compilers import CompilerProcesses, find_compiler
from environments.inlining.corpus.modules import Module
from environments.inlining.heuristics import Default, Random, Replay
from tests.requirements import need_programs

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
def module(tmp_path_factory) -> Module:
    directory = tmp_path_factory.mktemp("real")
    (directory / "group.cpp").write_text(SOURCE)
    command = find_compiler().command("c++", ("-std=c++17",), "group.cpp", directory / "group.bc")
    (directory / "scratch").mkdir()
    ended = CompilerProcesses().run(command, directory, directory / "scratch", timeout_s=240)
    assert ended.error == ""
    return Module("group", directory / "group.bc", ".", "c++")


def test_the_default_gives_the_bytes_of_plain_oz(embedded, module):
    compiled = run_policy(embedded, module, lambda site: site.default)
    assert len(compiled.decisions) > 100
    assert compiled.size == embedded.compile_plain(module).size


def test_the_default_gives_the_bytes_of_plain_oz_on_clang_22(clangs, module):
    need_programs("clang-22")
    clang = clangs.setdefault("clang-22", SystemClang("clang-22", timeout_s=60))
    compiled = run_policy(clang, module, lambda site: site.default)
    assert len(compiled.decisions) > 100
    assert compiled.size == clang.compile_plain(module).size


def test_a_recorded_list_gives_the_recorded_bytes(embedded, module):
    recorded = play(embedded, module, Random(3), TrajectoryStore())
    replayed = play(embedded, module, Replay(recorded.decisions), TrajectoryStore())
    assert replayed.size == recorded.size
    assert np.array_equal(replayed.features, recorded.features)
    default = play(embedded, module, Default(), TrajectoryStore())
    assert default.size != recorded.size


def test_callees_are_named_before_the_decision_where_the_default_refuses(embedded, module):
    with embedded.compile(module) as compilation:
        while (site := compilation.next_site()) is not None:
            assert (site.callee is None) == site.default
            assert (site.caller is None) == site.default
            compilation.advise(site.default)
        compiled = compilation.result()
        linkage = compilation.linkage
    assert None not in compiled.callees
    assert set(compiled.callees) <= set(linkage)
