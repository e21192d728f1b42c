"""The plugin sees what the channel shows, decides the same, and leaves alone what it must."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess

import numpy as np
import pytest

from environments.errors import UserError
from environments.inlining.collection.episode import CompileEpisode
from environments.inlining.corpus.modules import Module
from environments.inlining.features import feature_names
from environments.inlining.heuristics import make_heuristic
from environments.inlining.plugin.building import build_plugin
from environments.inlining.plugin.source import PolicySource, heuristic_source
from environments.inlining.plugin.toolchain import find_toolchain
from tests.environments.inlining.small_modules import HAND_WORKED, many_calls, write_module

CPP = """
#include <algorithm>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>
template <class T> struct Box { T value; Box(T v) : value(v) {} ~Box() { value = T(); } };
using Element = %s;
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
ELEMENTS = ("int", "double", "unsigned char", "long")
# Names that LLVM shows without their mark, recursion, calls that must be inlined or must not.
ODD = """
declare void @sink(i32)
define internal void @"\\01marked"(i32 %x) minsize optsize {
  call void @sink(i32 %x)
  call void @sink(i32 1)
  call void @sink(i32 2)
  ret void
}
define available_externally void @elsewhere(i32 %x) minsize optsize {
  call void @"\\01marked"(i32 %x)
  call void @"\\01marked"(i32 3)
  call void @sink(i32 2)
  ret void
}
define internal void @now() minsize optsize alwaysinline {
  call void @"\\01marked"(i32 8)
  ret void
}
define void @round(i32 %x) minsize optsize {
  call void @elsewhere(i32 %x)
  call void @round(i32 %x)
  call void @now()
  call void @elsewhere(i32 7)
  ret void
}
"""
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


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    """Builds plugins into one cache; a test must name the clang's own headers to get one."""
    cache = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))

        def build(clang, source: PolicySource | str) -> pathlib.Path:
            try:
                toolchain = find_toolchain(clang.executable)
            except UserError as error:
                pytest.skip(str(error))
            if isinstance(source, str):
                source = heuristic_source(source)
            return build_plugin(toolchain, source)

        yield build


@pytest.fixture
def modules(clang, tmp_path) -> list[Module]:
    texts = {"hand": HAND_WORKED, "many": many_calls(40), "odd": ODD, "mixed": MIXED}
    found = [write_module(tmp_path, name, ir, text=True) for name, ir in texts.items()]
    for number, element in enumerate(ELEMENTS):
        source, path = tmp_path / f"{number}.cpp", tmp_path / f"{number}.bc"
        source.write_text(CPP % element)
        options = ["-x", "c++", "-Oz", "-fPIC", "-Xclang", "-disable-llvm-passes", "-emit-llvm"]
        subprocess.run([clang.executable, *options, "-c", source, "-o", path], check=True)
        found.append(Module(f"{number}.cpp", path, ".", "c++"))
    return found


def compile_with(
    clang, module: Module, plugin: pathlib.Path | None, out: pathlib.Path, *options: str
) -> tuple[bytes, list[dict], list[dict]]:
    """Return the object, and the lines of the plugin's two files."""
    rows, log = out / "rows", out / "log"
    for path in (rows, log):
        path.unlink(missing_ok=True)
    command = [*clang.command(module)[:-1], str(out / "object.o"), *options]
    if plugin is not None:
        command.append(f"-fpass-plugin={plugin}")
    environment = {**os.environ, "TFRL_INLINING_ROWS": str(rows), "TFRL_INLINING_LOG": str(log)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    read = [
        [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        for path in (rows, log)
    ]
    return (out / "object.o").read_bytes(), read[0], read[1]


@pytest.mark.parametrize("name", ["default", "never", "cost<-20"])
def test_features_decisions_and_objects_are_the_channels(clang, plugins, modules, tmp_path, name):
    plugin, policy, compared = plugins(clang, name), make_heuristic(name), 0
    for module in modules:
        if module.name == "mixed":
            continue  # the channel decides outside minsize functions as well
        with CompileEpisode(clang, module) as episode:
            known = feature_names(clang.announced)
            trajectory = episode.play(policy.begin(module.name, known))
            data = episode.compilation.result().data
        compiled, rows, (log,) = compile_with(clang, module, plugin, tmp_path)
        found = [[row["features"][one] for one in trajectory.names] for row in rows]
        assert found == trajectory.features.tolist(), module.name
        assert [row["decision"] for row in rows] == trajectory.decisions.tolist()
        if name != "default":
            assert compiled == data, module.name
        assert log["steered"] and log["decisions"] == len(rows)
        assert log["departures"] == np.sum(
            trajectory.decisions != trajectory.column("inlining_default")
        )
        compared += len(rows)
    assert compared > 500


def test_llvms_own_decisions_give_llvms_own_objects(clang, plugins, modules, tmp_path):
    plugin = plugins(clang, "default")
    for module in modules:
        plain, *nothing = compile_with(clang, module, None, tmp_path)
        steered, rows, _ = compile_with(clang, module, plugin, tmp_path)
        assert nothing == [[], []] and rows
        assert steered == plain, module.name


def test_only_functions_optimised_for_size_are_steered(clang, plugins, tmp_path):
    plugin = plugins(clang, "always")
    mixed = write_module(tmp_path, "mixed", MIXED, text=True)
    _, rows, _ = compile_with(clang, mixed, plugin, tmp_path)
    # HAND_WORKED's five sites and those that inlining makes, but none of @fast.
    plain = write_module(tmp_path, "plain", HAND_WORKED, text=True)
    _, alone, _ = compile_with(clang, plain, plugin, tmp_path)
    assert [row["decision"] for row in rows] == [True] * len(rows) and len(rows) == len(alone)

    fast = write_module(tmp_path, "fast", HAND_WORKED.replace("minsize optsize", ""), text=True)
    for level in ("-O0", "-O2", "-Os"):
        without, *_ = compile_with(clang, fast, None, tmp_path, level)
        steered, rows, (log,) = compile_with(clang, fast, plugin, tmp_path, level)
        assert steered == without and not rows
        assert not log["steered"] and log["reason"] == "no function is optimised for size (-Oz)"


def test_growth_is_not_limited_as_in_training(clang, plugins, tmp_path):
    """LLVM's advisor would stop once the module has doubled, and refuse the rest."""
    lines = "".join(f"  call void @sink(i32 {k})\n" for k in range(30))
    calls = "".join("  call void @large()\n" for _ in range(20))
    ir = (
        "declare void @sink(i32)\n"
        f"define void @large() minsize optsize {{\n{lines}  ret void\n}}\n"
        f"define void @all() minsize optsize {{\n{calls}  ret void\n}}\n"
    )
    module = write_module(tmp_path, "growing", ir, text=True)
    _, rows, _ = compile_with(clang, module, plugins(clang, "always"), tmp_path)
    assert len(rows) == 20
    limit = ("-mllvm", "-ml-advisor-size-increase-threshold=2")
    _, rows, _ = compile_with(clang, module, plugins(clang, "always"), tmp_path, *limit)
    assert 0 < len(rows) < 20  # whoever gives the option is obeyed


def test_a_feature_that_this_llvm_lacks_means_llvms_own_decisions(clang, plugins, tmp_path):
    source = heuristic_source("cost<-20")
    odd = PolicySource("odd", source.text.replace("cost_estimate", "no_such_feature"))
    module = write_module(tmp_path, "hand", HAND_WORKED, text=True)
    plain, *_ = compile_with(clang, module, None, tmp_path)
    steered, rows, (log,) = compile_with(clang, module, plugins(clang, odd), tmp_path)
    assert steered == plain and not rows
    assert not log["steered"] and log["reason"] == "this clang has no no_such_feature"


def test_a_file_that_cannot_be_written_does_not_end_a_compile(clang, plugins, tmp_path):
    module = write_module(tmp_path, "hand", HAND_WORKED, text=True)
    command = [*clang.command(module)[:-1], str(tmp_path / "object.o")]
    command.append(f"-fpass-plugin={plugins(clang, 'never')}")
    target = tmp_path / "target"
    (tmp_path / "link").symlink_to(target)
    for place in ("/no/such/directory/log", str(tmp_path / "link")):
        environment = {**os.environ, "TFRL_INLINING_LOG": place, "TFRL_INLINING_ROWS": place}
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
    assert not target.exists()  # links are not followed
