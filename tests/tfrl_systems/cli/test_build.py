"""Real trees of real build systems, configured before we come along, built with a policy inside."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time

import pytest

from environments.errors import UserError
from environments.inlining.plugin.toolchain import find_toolchain

SHAPE = """\
inline int twice(int x) { return 2 * x; }
template <class T> T clamp(T x, T low, T high) { return x < low ? low : x > high ? high : x; }
struct Sum {
  int total = 0;
  void add(int x) { total += clamp(twice(x), 0, 100); }
};
"""
# twice is as small as the call: LLVM inlines it at -Oz. `never` does not.
LIBRARY = (
    '#include "shape.h"\nint measure%d(int n) { Sum s; s.add(n); s.add(%d); return s.total; }\n'
)
MAIN = """\
int measure0(int);
int measure1(int);
int main() { return measure0(3) + measure1(4) == 6 + 0 + 8 + 2 ? 0 : 1; }
"""
# Spaces are in the paths on purpose.
CMAKE = """\
cmake_minimum_required(VERSION 3.10)
project(shapes CXX)
add_library(shapes SHARED "library 0.cpp" "library 1.cpp")
add_executable(program main.cpp)
target_link_libraries(program shapes)
"""
MAKE = """\
OBJECTS = one.o two.o main.o
program: $(OBJECTS)
\t$(CXX) $(OBJECTS) -o $@
one.o: library\\ 0.cpp
\t$(CXX) $(CXXFLAGS) -c "library 0.cpp" -o $@
two.o: library\\ 1.cpp
\t$(CXX) $(CXXFLAGS) -c "library 1.cpp" -o $@
main.o: main.cpp
\t$(CXX) $(CXXFLAGS) -c main.cpp -o $@
"""
EXPORT = ("export", "--policy", "never", "--format", "clang-plugin")
CLANGS = ("clang++-19", "clang++-22")
ROOT = pathlib.Path(__file__).parents[3]


@pytest.fixture(scope="module", params=CLANGS)
def clang(request):
    path = shutil.which(request.param)
    if path is None:
        pytest.skip(f"{request.param} is not installed")
    try:
        find_toolchain(path.replace("++", ""))
    except UserError as error:
        pytest.skip(str(error))
    return path


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """A cache of plugins for these tests; its path has a space too, which clang would split at."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("my cache")))
        patch.delenv("CXX", raising=False)
        yield


def write_sources(directory: pathlib.Path) -> pathlib.Path:
    directory.mkdir()
    (directory / "shape.h").write_text(SHAPE)
    for number in range(2):
        (directory / f"library {number}.cpp").write_text(LIBRARY % (number, number))
    (directory / "main.cpp").write_text(MAIN)
    (directory / "CMakeLists.txt").write_text(CMAKE)
    (directory / "Makefile").write_text(MAKE)
    return directory


def run(*command: object, cwd: pathlib.Path, **keywords) -> None:
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, timeout=300, **keywords)
    assert done.returncode == 0, done.stdout + done.stderr


def objects(directory: pathlib.Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.rglob("*.o")}


def configure(sources: pathlib.Path, tree: pathlib.Path, clang: str, generator: str) -> None:
    options = ["-DCMAKE_CXX_FLAGS=-Oz -Werror", f"-DCMAKE_CXX_COMPILER={clang}"]
    run("cmake", "-S", sources, "-B", tree, "-G", generator, *options, cwd=sources)


@pytest.mark.parametrize("generator", ["Ninja", "Unix Makefiles"])
def test_a_configured_cmake_tree(tfrl, clang, tmp_path, monkeypatch, generator):
    sources = write_sources(tmp_path / "my project")
    plain, tree = tmp_path / "plain", tmp_path / "steered tree"
    for one in (plain, tree):
        configure(sources, one, clang, generator)
    run("cmake", "--build", plain, cwd=sources)
    monkeypatch.chdir(sources)
    command = ("--", "cmake", "--build", tree, "-j2")
    ran = tfrl("build", "--policy", "never", "--compare", plain, "--json", *command)
    assert ran.status == 0, ran.err
    found = ran.json
    assert (found["status"], found["compiles"], found["steered"]) == (0, 3, 3)
    assert found["plain"] == [] and found["departures"] > 0
    assert {pathlib.Path(one["path"]).name for one in found["images"]} == {
        "program",
        "libshapes.so",
    }
    (library,) = [one for one in found["images"] if one["path"].endswith("libshapes.so")]
    assert library["text_bytes"] > library["default_text_bytes"] > 0
    assert library["file_bytes"] < (tree / "libshapes.so").stat().st_size  # without symbols
    run(tree / "program", cwd=tree)
    # Built again, there is nothing to do, and it says so.
    ran = tfrl("build", "--policy", "never", *command)
    assert ran.status == 0 and "nothing was compiled" in ran.err


def test_make_with_llvms_own_decisions_gives_the_same_bytes(tfrl, clang, tmp_path, monkeypatch):
    monkeypatch.setenv("CXXFLAGS", "-Oz")
    built = {}
    for policy in ("", "default", "never"):
        sources = write_sources(tmp_path / f"tree {policy}")
        monkeypatch.chdir(sources)
        if not policy:
            run("make", f"CXX={clang}", cwd=sources)
        else:
            ran = tfrl("build", "--policy", policy, "--json", "--", "make", "-j2", f"CXX={clang}")
            assert ran.json["steered"] == 3
        built[policy] = objects(sources)
    assert len(built[""]) == 3
    assert built["default"] == built[""] and built["never"] != built[""]


def test_only_what_has_changed_is_compiled_again(tfrl, clang, tmp_path, monkeypatch):
    sources = write_sources(tmp_path / "project")
    monkeypatch.chdir(sources)
    monkeypatch.setenv("CXXFLAGS", "-Oz")
    run("make", f"CXX={clang}", cwd=sources)
    os.utime(sources / "library 1.cpp", (time.time() + 5, time.time() + 5))
    found = tfrl("build", "--policy", "never", "--json", "--", "make", f"CXX={clang}").json
    assert (found["compiles"], found["steered"]) == (1, 1)
    assert [one["path"] for one in found["images"]] == ["program"]


def test_other_compilers_go_their_way(tfrl, clang, tmp_path, monkeypatch):
    gcc = shutil.which("g++")
    if gcc is None:
        pytest.skip("g++ is not installed")
    sources = write_sources(tmp_path / "project")
    (sources / "start.s").write_text(".text\n")
    monkeypatch.chdir(sources)
    script = (
        f"{gcc} -Os -c main.cpp -o main.o && {clang} -O2 -c 'library 0.cpp' -o 0.o && "
        f"{clang} -Oz -Werror -c 'library 1.cpp' -o 1.o && {clang} -Werror -c start.s -o s.o && "
        f"{clang} -Werror main.o 0.o 1.o -o program"
    )
    run("sh", "-c", script, cwd=sources)
    before = objects(sources)
    found = tfrl("build", "--policy", "never", "--json", "--", "sh", "-c", script).json
    assert found["status"] == 0
    assert {one["file"]: one["reason"] for one in found["plain"]} == {
        "main.o": "compiled by GCC",
        "library 0.cpp": "no function is optimised for size (-Oz)",
    }
    assert (found["compiles"], found["steered"]) == (3, 1)
    after = objects(sources)
    assert {name for name in after if after[name] != before[name]} == {"1.o"}


def test_a_clang_that_no_plugin_was_built_for_compiles_as_alone(clang, tmp_path):
    """The library that every clang loads finds no plugin for this version, and says so."""
    from environments.inlining.plugin.source import heuristic_source
    from environments.inlining.plugin.steering import steer

    toolchain = find_toolchain(clang.replace("++", ""))
    source = write_sources(tmp_path / "project") / "library 0.cpp"
    command = [clang, "-Oz", "-Werror", "-c", source, "-o", tmp_path / "out.o"]
    run(*command, cwd=tmp_path)
    plain = (tmp_path / "out.o").read_bytes()
    with steer([toolchain], heuristic_source("never")) as steering:
        library = pathlib.Path(steering.environment["CCC_OVERRIDE_OPTIONS"].partition("=")[2])
        other = tmp_path / "set"
        shutil.copytree(library.parent.resolve(), other)
        environment = {
            **os.environ,
            **steering.environment,
            "CCC_OVERRIDE_OPTIONS": f"# ^-fpass-plugin={other / 'steer.so'}",
        }
        plugin = other / f"inliner-{toolchain.major}.so"
        whole = plugin.read_bytes()
        for damage in ("gone", "half", "another LLVM's"):
            if damage == "gone":
                plugin.unlink()
            elif damage == "half":
                plugin.write_bytes(whole[: len(whole) // 2])
            else:
                plugin.write_bytes(
                    whole.replace(b"20DefaultInlineAdvisor", b"20DefaultInlineAdvisox")
                )
            run(*command, cwd=tmp_path, env=environment)
            assert (tmp_path / "out.o").read_bytes() == plain, damage
        told = steering.compiles()
    assert [one.source for one in told] == ["library 0.cpp"] * 3
    assert [one.reason for one in told] == [
        "no plugin was built for this clang",
        "the plugin cannot be loaded by this clang",
        "the plugin cannot be loaded by this clang",
    ]


def test_a_failing_build_fails_with_its_own_status(tfrl, clang, tmp_path, monkeypatch):
    sources = write_sources(tmp_path / "project")
    (sources / "main.cpp").write_text("int main() { return undeclared; }\n")
    monkeypatch.chdir(sources)
    monkeypatch.setenv("CXXFLAGS", "-Oz")
    ran = tfrl("build", "--policy", "never", "--json", "--", "make", "-k", f"CXX={clang}")
    assert ran.status == ran.json["status"] == 2  # make's
    assert ran.json["steered"] == 2 and ran.json["images"] == []
    assert tfrl("build", "--policy", "never", "--", "sh", "-c", "exit 77").status == 77
    assert tfrl("build", "--policy", "never", "--", "sh", "-c", "kill -9 $$").status == 137


def test_without_headers_the_build_runs_and_the_package_is_named(tfrl, tmp_path, monkeypatch):
    real = next((found for one in CLANGS if (found := shutil.which(one.replace("++", "")))), None)
    if real is None:
        pytest.skip("no clang is installed")
    fake = tmp_path / "bin" / "clang"
    fake.parent.mkdir()
    fake.write_text(
        f'#!/bin/sh\n[ "$1" = --version ] && exec echo "clang version 27.1.0"\nexec {real} "$@"\n'
    )
    fake.chmod(0o755)
    sources = write_sources(tmp_path / "project")
    monkeypatch.chdir(sources)
    build = ("build", "--policy", "never", "--compiler", fake, "--json", "--")
    ran = tfrl(*build, fake, "-Oz", "-c", "main.cpp")
    assert ran.status == 0 and (sources / "main.o").is_file()
    assert ran.json["steered"] == 0 and "apt-get install llvm-27-dev" in ran.json["reason"]
    assert "the command runs as it would alone" in ran.err


def test_an_interrupted_build_can_be_finished(clang, tmp_path):
    """The whole group gets the signal, as a terminal sends it; nothing of ours is left behind."""
    sources = write_sources(tmp_path / "project")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    environment = {**os.environ, "CXXFLAGS": "-Oz", "PYTHONPATH": str(ROOT), "TMPDIR": str(scratch)}
    make = sources / "Makefile"
    slow = make.read_text().replace(
        "\t$(CXX) $(CXXFLAGS) -c main", "\ttouch begun; sleep 60\n\t$(CXX) -c main"
    )
    make.write_text(slow)
    tfrl = [sys.executable, "-m", "tfrl_systems.cli.main", "build", "--policy", "never", "--json"]
    for number in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(
            [*tfrl, "--", "make", f"CXX={clang}"],
            cwd=sources,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        while not (sources / "begun").exists():
            assert process.poll() is None
            time.sleep(0.1)
        os.killpg(process.pid, number)
        out, _ = process.communicate(timeout=60)
        assert process.returncode != 0 and json.loads(out)["status"] == process.returncode
        assert not list(scratch.iterdir())
        (sources / "begun").unlink()
    make.write_text(MAKE)
    done = subprocess.run(
        [*tfrl, "--", "make", f"CXX={clang}"], cwd=sources, env=environment, capture_output=True
    )
    found = json.loads(done.stdout)
    assert done.returncode == 0 and found["steered"] == found["compiles"] > 0
    run(sources / "program", cwd=sources)


def test_thin_lto(tfrl, clang, tmp_path, monkeypatch):
    if shutil.which(clang.replace("clang++", "lld")) is None:
        pytest.skip("lld is not installed")
    sources = write_sources(tmp_path / "project")
    monkeypatch.chdir(sources)
    script = (
        f"for f in 'library 0' 'library 1' main; do {clang} -Oz -flto=thin -Werror -c \"$f.cpp\" "
        f"|| exit 1; done; {clang} -Oz -flto=thin -fuse-ld=lld -Werror *.o -o program"
    )
    found = tfrl("build", "--policy", "never", "--json", "--", "sh", "-c", script).json
    assert (found["status"], found["steered"]) == (0, 3)
    (image,) = found["images"]
    assert image["path"] == "program" and image["text_bytes"] > 0
    run("./program", cwd=sources)


@pytest.mark.parametrize(
    ("arguments", "status", "expected"),
    [
        (["build", "--policy", "never"], 2, "expected a command after --"),
        (["build", "--policy", "never", "--", "/no/such/make"], 2, "expected a command after --"),
        (["build", "--policy", "nothing", "--", "true"], 1, "expected a policy directory or"),
        (["build", "--policy", "random", "--", "true"], 1, "cannot be compiled into a plugin"),
        (["build", "--policy", "never", "--compare", "/no", "--", "true"], 2, "a plain build"),
        (["export", "--policy", "never", "--format", "zip", "-o", "x"], 2, "invalid choice"),
        (
            [*EXPORT, "--compiler", "/no", "-o", "x"],
            1,
            "found no program '/no'",
        ),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_one_line(tfrl, arguments, status, expected):
    ran = tfrl(*arguments)
    assert ran.status == status and expected in ran.err and "Traceback" not in ran.err


def test_an_exported_plugin_needs_nothing_of_ours(tfrl, clang, tmp_path):
    source = write_sources(tmp_path / "project") / "library 0.cpp"
    plugin = tmp_path / "inliner.so"
    export = (*EXPORT, "-o", plugin)
    found = tfrl(*export, "--compiler", clang.replace("++", ""), "--json").json
    assert found["size_bytes"] == plugin.stat().st_size
    sizes = []
    for options in ([], [f"-fpass-plugin={plugin}"]):
        out = tmp_path / "out.o"
        run(clang, "-Oz", *options, "-c", source, "-o", out, cwd=tmp_path, env={"PATH": "/usr/bin"})
        sizes.append(out.read_bytes())
    assert sizes[0] != sizes[1]
    ran = tfrl(*export[:-1], "/no/such/directory/x.so", "--compiler", clang.replace("++", ""))
    assert ran.status == 1 and "name another file" in ran.err
